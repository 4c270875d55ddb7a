"""What `turnkeeper webhooks listen` does: takes, on this machine, what a real endpoint gets.

Answers for an endpoint that lives as long as the command, for each request that it gets being shown once, and for the
answer to it: that of the address it is passed on to, where there is one. Must never take what is not signed for it.
Why an endpoint and no reading of events: docs/decisions/0016-listening-is-an-endpoint.md.
"""

import json
import signal
import socket
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Final

import httpx
import typer
from rich.console import Console
from rich.text import Text

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.client import RequestInvalid, Turnkeeper, WebhookEndpoint, WebhookRejected, verify_webhook
from turnkeeper.events.webhooks.endpoints import MAX_BODY_BYTES

FORWARD_TIMEOUT_S: Final = 10.0
"""Shorter than what the server waits for an answer, so that it hears one."""
READ_TIMEOUT_S: Final = 15.0
HINT: Final = (
    "The server must be allowed to send to this machine: webhooks.allow_http = true and"
    ' webhooks.networks = ["127.0.0.0/8"] in its settings. Or name an address that leads here with --address.'
)

_OF_THE_CONNECTION: Final = frozenset({"accept-encoding", "connection", "content-length", "host"})
_TAKEN, _NOT_OURS, _TOO_LARGE, _UNREACHABLE = 204, 401, 413, 502


class Receiver:
    """Where requests go: to the terminal, and to an address if one was named. Ends after `limit` of them."""

    def __init__(self, forward_to: str | None, *, limit: int | None, as_json: bool) -> None:
        self.over = threading.Event()
        self.secret = ""
        self._forward_to = None if forward_to is None else _checked(forward_to)
        self._as_json = as_json
        self._left = limit
        self._turn = threading.Lock()
        self._console = Console(highlight=False, soft_wrap=True)

    def take(self, headers: Mapping[str, str], body: bytes) -> int:
        """Shows a request and passes it on. The status that it is answered with."""
        try:
            event = verify_webhook(self.secret, headers, body)
        except WebhookRejected as error:
            typer.echo(f"refused: {error.message}", err=True)
            return _NOT_OURS
        with self._turn:
            if self._left == 0:
                return _UNREACHABLE
            self._left = None if self._left is None else self._left - 1
            is_last = self._left == 0
            self._show(
                event.type, {name: value for name, value in headers.items() if name.startswith("webhook-")}, body
            )
        status = _TAKEN if self._forward_to is None else self._forward(self._forward_to, headers, body)
        if is_last:
            self.over.set()
        return status

    def _show(self, event_type: str, headers: Mapping[str, str], body: bytes) -> None:
        if self._as_json:
            typer.echo(json.dumps({"headers": headers, "body": body.decode()}, ensure_ascii=False))
            return
        self._console.print(Text(event_type, style="bold"))
        for name, value in headers.items():
            self._console.print(Text(f"  {name}: {value}", style="dim"))
        self._console.print(Text(f"  {body.decode()}"))

    def _forward(self, address: str, headers: Mapping[str, str], body: bytes) -> int:
        try:
            status = httpx.post(
                address,
                content=body,
                headers=headers,
                timeout=FORWARD_TIMEOUT_S,
                trust_env=False,
                follow_redirects=False,
            ).status_code
        except httpx.TransportError as error:
            typer.echo(f"-> {address}: {type(error).__name__}", err=True)
            return _UNREACHABLE
        typer.echo(f"-> {address}: {status}", err=True)
        return status


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests arrive: a port of this machine, and the address that the server is told (None: that port)."""

    port: int
    address: str | None


def listen(turnkeeper: Turnkeeper, receiver: Receiver, types: Sequence[str], place: Place) -> None:
    """Makes an endpoint, hands over what it gets until the receiver is done or a signal comes, and deletes it."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        receiver.over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with _server(receiver, place.port) as server:
        address = place.address or f"http://127.0.0.1:{server.server_port}/"
        with _endpoint(turnkeeper, address, types) as endpoint:
            receiver.secret = endpoint.secret or ""
            typer.echo(f"signed with {receiver.secret}", err=True)
            with _serving(server):
                typer.echo("listening", err=True)
                receiver.over.wait()


class _Server(ThreadingHTTPServer):
    # Requests that were taken are answered before the command ends.
    daemon_threads = False


@contextmanager
def _endpoint(turnkeeper: Turnkeeper, address: str, types: Sequence[str]) -> Generator[WebhookEndpoint, None, None]:
    name = f"turnkeeper webhooks listen on {socket.gethostname()}"
    try:
        made = turnkeeper.webhooks.create(address, types=types, description=name)
    except RequestInvalid as error:
        raise UsageRefused(f"the server does not send to {address}: {error.message}", hint=HINT) from error
    try:
        yield made
    finally:
        turnkeeper.webhooks.delete(made.id)


@contextmanager
def _server(receiver: Receiver, port: int) -> Generator[ThreadingHTTPServer, None, None]:
    class Handler(BaseHTTPRequestHandler):
        timeout = READ_TIMEOUT_S

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            too_large = not length.isdecimal() or int(length) > MAX_BODY_BYTES
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(_TOO_LARGE if too_large else receiver.take(headers, self.rfile.read(int(length))))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    try:
        server = _Server(("127.0.0.1", port), Handler)
    except OSError as error:
        raise UsageRefused(f"port {port} cannot be listened on: {error.strerror}") from error
    with server:
        yield server


@contextmanager
def _serving(server: ThreadingHTTPServer) -> Generator[None, None, None]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _checked(address: str) -> str:
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise UsageRefused(f"{address} is no address: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise UsageRefused(f"{address} is no address: http or https and a host")
    return address
