"""What HTTP alone costs: the Guardian's server and loop around an application that does nothing.

`python -m benchmarks.echo` prints its address once it listens.
"""

import sys

import uvicorn

from turnkeeper.cli.listening import bound_socket, run_loop, shown_address, uvicorn_config
from turnkeeper.guardian.http import Receive, Scope, Send
from turnkeeper.settings import ServerSettings

ANSWER = b'{"ok":true}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body to its end and answers."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


def main() -> int:
    """Serves until it is ended."""
    settings = ServerSettings(port=0)
    with bound_socket(settings) as bound:
        server = uvicorn.Server(uvicorn_config(settings, app))
        print(shown_address(bound), flush=True)
        run_loop(server.serve(sockets=[bound]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
