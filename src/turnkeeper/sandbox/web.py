"""HTTP requests of the platform's own on an agent's behalf, through the same admission as its box's (contract 2.1).

Answers for requests that leave by no other way: the lists, the Guardian, a checked and pinned address, the secrets for
that host, bytes and time that count against the turn. What comes back is bounded and looked through for secrets. One
request is one connection, and no answer leads to another request.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import h11

from turnkeeper.destinations import Destination, DestinationInvalid, parse_destination
from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.egress_admission import STREAM_BYTES, Connection, EgressLimits
from turnkeeper.sandbox.egress_exchange import (
    MAX_HEAD_BYTES,
    BytesSpent,
    Connector,
    Traffic,
    Vault,
    close_stream,
)
from turnkeeper.sandbox.egress_http import EgressRefused
from turnkeeper.sandbox.egress_secrets import HostSecrets
from turnkeeper.sandbox.egress_tls import origin_context
from turnkeeper.sandbox.sse import EventTooLarge, SseDecoder

VIA: Final = "mcp"
EVENT_STREAM: Final = "text/event-stream"
_PORTS: Final = {"https": 443, "http": 80}


class WebFailed(TurnkeeperError):
    """A request was refused on its way, or has no answer that can be read."""

    code = "web_failed"


@dataclass(frozen=True, slots=True)
class _Address:
    destination: Destination
    target: str
    secure: bool


class Web:
    """Requests of one turn."""

    def __init__(self, connector: Connector, limits: EgressLimits, vault: Vault) -> None:
        self._connector = connector
        self._limits = limits
        self._vault = vault
        self._traffic = Traffic(limits.max_bytes)
        self._open: list[WebAnswer] = []

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_ms: int, max_bytes: int
    ) -> "WebAnswer":
        """The head of an answer, within the time. `max_bytes` is what one part of it may have. Raises `WebFailed`."""
        address = _address(url)
        request = _request(method, address, headers, body)
        async with _named_failures(address.destination):
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await self._connector.connect(address.destination, VIA)
                secrets = self._vault.secrets.of(address.destination)
                answer = WebAnswer(connection, address.destination, self._traffic, secrets, max_bytes)
                self._open = [*(other for other in self._open if not other.closed), answer]
                try:
                    if address.secure:
                        await self._secured(connection, address.destination)
                    await answer.ask(request, body)
                except BaseException:
                    await answer.close()
                    raise
        return answer

    async def close(self) -> None:
        """Ends what is open. Safe to call again."""
        for answer in self._open:
            await answer.close()

    async def _secured(self, connection: Connection, destination: Destination) -> None:
        limit_s = self._limits.connect_timeout_ms / 1000
        context = self._vault.tls or origin_context()
        await connection[1].start_tls(context, server_hostname=destination.host, ssl_handshake_timeout=limit_s)


class WebAnswer:
    """An answer whose head is there. `headers` have small letters."""

    def __init__(
        self,
        connection: Connection,
        destination: Destination,
        traffic: Traffic,
        secrets: HostSecrets | None,
        max_bytes: int,
    ) -> None:
        self._reader, self._writer = connection
        self._destination = destination
        self._traffic = traffic
        self._secrets = secrets
        self._mask = None if secrets is None else secrets.mask()
        self._max_bytes = max_bytes
        self._state = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._events: SseDecoder | None = None
        self._parts: deque[bytes] = deque()
        self._body = bytearray()
        self._over = False
        self.closed = False
        self.status = 0
        self.headers: dict[str, str] = {}

    async def ask(self, request: h11.Request, body: bytes) -> None:
        """Sends it, and reads the head of the answer. Raises as a connection does, and `EgressRefused`."""
        if self._secrets is not None:
            headers = self._secrets.added(request.headers)
            request = h11.Request(method=request.method, target=request.target, headers=headers)
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            data = self._state.send(event) or b""
            self._traffic.add_sent(len(data))
            self._writer.write(data)
        await self._writer.drain()
        event = await self._next()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next()
        if not isinstance(event, h11.Response):
            raise EOFError("it closed the connection")  # noqa: TRY004  it is no matter of types
        headers = list(event.headers) if self._secrets is None else self._secrets.masked_headers(event.headers)
        self.status = event.status_code
        self.headers = {name.decode("ascii"): value.decode("latin-1") for name, value in headers}
        if self.headers.get("content-type", "").partition(";")[0].strip().lower() == EVENT_STREAM:
            self._events = SseDecoder(self._max_bytes)

    async def part(self, *, timeout_ms: int) -> bytes | None:
        """The data of the next event of a stream, or a whole body; None at the end.

        Raises `WebFailed`, and `TimeoutError` where nothing more came in time: what came is kept.
        """
        async with _named_failures(self._destination, late=False), asyncio.timeout(timeout_ms / 1000):
            while not self._parts and not self._over:
                self._take(await self._next())
        return self._parts.popleft() if self._parts else None

    async def close(self) -> None:
        """Ends the connection. Safe to call again."""
        self.closed = True
        await close_stream(self._writer)

    def _take(self, event: h11.Event | type[h11.NEED_DATA]) -> None:
        if isinstance(event, h11.Data):
            data = bytes(event.data)
            self._keep(data if self._mask is None else self._mask.feed(data))
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            self._over = True
            self._keep(b"" if self._mask is None else self._mask.rest())
            if self._events is None:
                self._parts.append(bytes(self._body))

    def _keep(self, data: bytes) -> None:
        if self._events is not None:
            self._parts.extend(event.data for event in self._events.feed(data))
            return
        self._body += data
        if len(self._body) > self._max_bytes:
            raise EventTooLarge(f"the answer is over {self._max_bytes} bytes")

    async def _next(self) -> h11.Event:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(STREAM_BYTES)
            self._traffic.add_received(len(data))
            self._state.receive_data(data)
        if isinstance(event, h11.Event):
            return event
        return h11.ConnectionClosed()


@asynccontextmanager
async def _named_failures(destination: Destination, *, late: bool = True) -> AsyncGenerator[None]:
    try:
        yield
    except EgressRefused as refused:
        raise WebFailed(refused.message) from refused
    except TimeoutError as error:
        if not late:
            raise
        raise WebFailed(f"{destination} did not answer in time") from error
    except EventTooLarge as error:
        raise WebFailed(error.message) from error
    except BytesSpent as error:
        raise WebFailed("the turn has moved as many bytes as it may") from error
    except (OSError, EOFError, h11.ProtocolError) as error:
        raise WebFailed(f"{destination} could not be spoken to: {error}") from error


def _address(url: str) -> _Address:
    parts = urlsplit(url)
    try:
        destination = parse_destination(parts.netloc, default_port=_PORTS.get(parts.scheme))
    except DestinationInvalid as error:
        raise WebFailed(error.message) from error
    return _Address(destination, parts.path or "/", parts.scheme == "https")


def _request(method: str, address: _Address, headers: Mapping[str, str], body: bytes) -> h11.Request:
    usual = _PORTS["https" if address.secure else "http"]
    shown = address.destination.shown_host if address.destination.port == usual else str(address.destination)
    own = {"host": shown, "content-length": str(len(body)), "connection": "close", "accept-encoding": "identity"}
    return h11.Request(method=method, target=address.target, headers=list({**headers, **own}.items()))
