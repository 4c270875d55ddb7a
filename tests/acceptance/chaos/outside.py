"""What stands outside of the platform: a receiver of webhooks that is not to be relied on."""

import json
import random
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

FAILS: Final = 0.25
"""The share of first tries that it refuses; later ones it takes, so that a run need not wait for hours."""


@dataclass
class Receiver:
    """Takes signed events, most of the time. `taken` has the bodies by event id."""

    address: str
    chance: random.Random
    secret: str = ""
    taken: dict[str, set[bytes]] = field(default_factory=dict[str, set[bytes]])
    refused: int = 0
    repeats: int = 0
    wrong: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # its sender was killed in the middle: nothing was delivered
                    return
                status = receiver.take(body, {name.lower(): value for name, value in self.headers.items()})
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((self.address, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://{self.address}:{self._server.server_port}/hook"

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """The status of the answer."""
        with self._lock:
            if headers["webhook-attempt"] == "1" and self.chance.random() < FAILS:
                self.refused += 1
                return self.chance.choice((500, 429, 404))
            self._check(body, headers)
            bodies = self.taken.setdefault(headers["webhook-id"], set())
            self.repeats += bool(bodies)
            bodies.add(body)
            return 204

    def _check(self, body: bytes, headers: dict[str, str]) -> None:
        # Its time is that of the sender's clock, which jumps in these runs.
        at = headers["webhook-timestamp"]
        try:
            signed = Webhook(self.secret).sign(headers["webhook-id"], _time(at), body.decode())
            if signed not in headers["webhook-signature"].split(" "):
                self.wrong.append(f"signature of {headers['webhook-id']}")
        except WebhookVerificationError as error:
            self.wrong.append(repr(error))
        if json.loads(body)["id"] != headers["webhook-id"]:
            self.wrong.append(f"body of {headers['webhook-id']}")

    def close(self) -> None:
        """Takes no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=20)


def _time(seconds: str) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(int(seconds), UTC)
