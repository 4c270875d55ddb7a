"""What `turnkeeper webhooks listen` does: sees new events of every session, and makes of each what would be sent.

Answers for each event once, in its session's order. It looks, once in a while, how far each session has come; no
endpoint is made, nothing is stored.
"""

import json
import secrets
import signal
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Final, Self

import httpx
import typer
from rich.console import Console
from rich.text import Text

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.shown import render_json
from turnkeeper.client import Event, Turnkeeper
from turnkeeper.clock import SystemClock, epoch_ms
from turnkeeper.events.webhooks.endpoints import MAX_BODY_BYTES, wants
from turnkeeper.events.webhooks.signing import SECRET_BYTES, headers, render_secret
from turnkeeper.ids import RandomIds

POLL_S: Final = 0.5
MAX_SESSIONS: Final = 1_000
"""The newest sessions, which are looked at."""
FORWARD_TIMEOUT_S: Final = 15.0


class Receiver:
    """Where events go: to the terminal, and to an address if one was named."""

    def __init__(self, forward_to: str | None, *, as_json: bool) -> None:
        self.secret = render_secret(secrets.token_bytes(SECRET_BYTES))
        self._forward_to = forward_to
        self._as_json = as_json
        self._clock = SystemClock()
        self._ids = RandomIds(self._clock)
        self._http = httpx.Client(trust_env=False, follow_redirects=False, timeout=FORWARD_TIMEOUT_S)
        self._console = Console(highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def take(self, event: Event) -> None:
        """Prints the request that an endpoint would get, and makes it where it was told to."""
        body = body_of(event)
        sent = headers(
            [self.secret],
            event_id=event.id or "",
            delivery_id=self._ids.new("whd"),
            attempt=1,
            timestamp_s=epoch_ms(self._clock.now()) // 1_000,
            body=body,
        )
        if self._as_json:
            typer.echo(json.dumps({"headers": sent, "body": body.decode()}, ensure_ascii=False))
        else:
            self._show(event, sent, body)
        if self._forward_to is not None:
            self._forward(self._forward_to, sent, body)

    def _show(self, event: Event, sent: dict[str, str], body: bytes) -> None:
        self._console.print(Text(event.type, style="bold"))
        for name, value in sent.items():
            self._console.print(Text(f"  {name}: {value}", style="dim"))
        self._console.print(Text(f"  {body.decode()}"))

    def _forward(self, address: str, sent: dict[str, str], body: bytes) -> None:
        try:
            answer = self._http.post(address, content=body, headers=sent)
        except httpx.InvalidURL as error:
            raise UsageRefused(f"{address} is no address: {error}") from error
        except httpx.TransportError as error:
            typer.echo(f"-> {address}: {type(error).__name__}", err=True)
        else:
            typer.echo(f"-> {address}: {answer.status_code}", err=True)


class Listener:
    """The sessions of a server, and how far each has been seen."""

    def __init__(self, turnkeeper: Turnkeeper, receiver: Receiver, types: Sequence[str]) -> None:
        self._turnkeeper = turnkeeper
        self._receiver = receiver
        self._types = types
        self._seen: dict[str, int] = {}

    def listen(self, limit: int | None) -> None:
        """Hands over new events until there were `limit`, or until a signal."""
        over = threading.Event()

        def stop(_number: int, _frame: FrameType | None) -> None:
            over.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        self._seen = self._heads()
        typer.echo("listening", err=True)
        left = limit
        while not over.wait(POLL_S):
            for session_id, head in reversed(self._heads().items()):
                for event in self._news(session_id, head):
                    self._receiver.take(event)
                    left = None if left is None else left - 1
                    if left == 0:
                        return

    def _heads(self) -> dict[str, int]:
        sessions = self._turnkeeper.sessions.list(limit=MAX_SESSIONS)
        return {session.id: session.last_sequence for session in sessions}

    def _news(self, session_id: str, head: int) -> list[Event]:
        seen = self._seen.get(session_id, 0)
        if head <= seen:
            return []
        found = list(self._turnkeeper.sessions.get(session_id).events(after=seen))
        self._seen[session_id] = max([head, *(event.sequence or 0 for event in found)])
        return [event for event in found if wants(self._types, (), event.type, None)]


def body_of(event: Event) -> bytes:
    """The body that is sent for an event: its envelope, without the data if it would be too long."""
    whole = render_json(event).encode()
    if len(whole) <= MAX_BODY_BYTES:
        return whole
    return render_json(Event({**event.members, "data": None, "data_url": f"/v1/events/{event.id}"})).encode()
