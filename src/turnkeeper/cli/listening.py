"""What every command that listens has: an address that is bound first, and signals that begin the end."""

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

import uvicorn
from uvicorn.loops.auto import auto_loop_factory

from turnkeeper.api.server import ApiServer
from turnkeeper.cli.bounded_http import BoundedHttp
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.http import AsgiApp
from turnkeeper.settings import ServerSettings

COLLECT_AFTER_OBJECTS: Final = 20_000
"""How many containers may be new before the cycle collector looks at them; the interpreter's own figure is 700."""

_Result = TypeVar("_Result")


class AddressUnusable(TurnkeeperError):
    """The address to listen on is taken, or is not ours."""

    code = "address_unusable"


@contextlib.contextmanager
def bound_socket(server: ServerSettings) -> Generator[socket.socket, None, None]:
    """A socket at the address, before anything else is started: a taken port is the most common mistake."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only where it is: 40 ms an answer otherwise.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((server.host, server.port))
        except OSError as error:
            raise AddressUnusable(
                f"{server.host} port {server.port} cannot be listened on: {error.strerror}",
                hint="Choose another with --port, or 0 for a free one.",
            ) from error
        yield bound


def shown_address(bound: socket.socket) -> str:
    """The address as a URL has it."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def uvicorn_config(server: ServerSettings, app: AsgiApp) -> uvicorn.Config:
    """How every port of ours is served."""
    return uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=BoundedHttp,
        ws="none",
        limit_concurrency=server.max_connections,
        timeout_graceful_shutdown=max(1, server.drain_ms // 1000),
    )


class GracefulServer(ApiServer):
    """Listens; leaves signals to whoever runs it."""

    def stop(self) -> None:
        """Begins the graceful end."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """No handlers of its own: a signal during the start or the drain has to count too."""
        yield


def run_loop(main: Coroutine[Any, Any, _Result]) -> _Result:
    """`asyncio.run` on the loop that uvicorn would choose, uvloop where it is installed.

    For a process that does little but answer: an echo cost 44 to 63 µs of processor time on it, against 59 to 71.
    """
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        return runner.run(main)


def spare_collector() -> None:
    """Keeps the cycle collector away from what was loaded until now, and lets it look at new objects less often.

    For a process that does little but answer, and makes no cycles on its way: of a busy Guardian's processor time the
    collector had 4.6 %. Memory stays flat (`make soak`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)


class Stopping:
    """What signals do: the first begins the graceful end, the second cancels whatever still waits.

    Until `graceful` is set, the first one cancels too.
    """

    def __init__(self) -> None:
        self.at_once = False
        self.graceful: Callable[[], None] = self._cancel
        self._signals = 0
        self._main = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._arrived)

    def _arrived(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self.graceful()
        else:
            self._cancel()

    def _cancel(self) -> None:
        self.at_once = True
        if self._main is not None:
            self._main.cancel()
