"""One connection of a box to the egress proxy: its head, the way to the origin, and the bytes both ways.

A connection carries one tunnel or one HTTP exchange and is closed: nothing that follows a first request can be taken
for part of it. Every byte is counted against the box, every wait has an end.
"""

import asyncio
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Final, Protocol

import h11

from turnkeeper.destinations import Destination
from turnkeeper.sandbox.egress_admission import STREAM_BYTES, Connection, EgressLimits
from turnkeeper.sandbox.egress_http import EgressRefused, answer_headers, read_inner_request, read_request
from turnkeeper.sandbox.egress_secrets import BoxSecrets, HostSecrets, StreamMask
from turnkeeper.sandbox.egress_tls import BoxAuthority, origin_context

MAX_HEAD_BYTES: Final = 32 * 1024
MAX_UNREAD_BYTES: Final = 512 * 1024
"""How much of a request that was refused is still taken in."""
_READ_BYTES: Final = 64 * 1024
_LAST_WORD_MS: Final = 1_000
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class BytesSpent(Exception):
    """The box has moved as many bytes as it may."""


@dataclass(slots=True)
class Traffic:
    """What a box has moved, in bytes of all its connections."""

    limit: int
    sent: int = 0
    received: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.sent + self.received >= self.limit

    def add_sent(self, count: int) -> None:
        """Bytes from the box, about to go out. Raises `BytesSpent`."""
        self.sent += count
        self._check()

    def add_received(self, count: int) -> None:
        """Bytes to the box, about to go in. Raises `BytesSpent`."""
        self.received += count
        self._check()

    def _check(self) -> None:
        if self.sent + self.received > self.limit:
            raise BytesSpent


@dataclass(frozen=True, slots=True)
class Vault:
    """The secrets of a box, who vouches for their hosts to it, and how those are verified.

    Without an authority nothing is added inside TLS; without `tls` the machine's own authorities count.
    """

    secrets: BoxSecrets = field(default_factory=BoxSecrets)
    authority: BoxAuthority | None = None
    tls: ssl.SSLContext | None = None


NO_VAULT: Final = Vault()


class Connector(Protocol):
    """Where connections to origins come from."""

    async def connect(self, destination: Destination, via: str) -> Connection:
        """A connection. Raises `EgressRefused`."""
        ...


class Exchange:
    """Serves one connection of a box."""

    def __init__(
        self, box: Connection, connector: Connector, traffic: Traffic, limits: EgressLimits, vault: Vault = NO_VAULT
    ) -> None:
        self._reader, self._writer = box
        self._vault = vault
        self._secrets: HostSecrets | None = None
        self._mask: StreamMask | None = None
        self._connector = connector
        self._traffic = traffic
        self._limits = limits
        self._state = h11.Connection(our_role=h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._idle: asyncio.Timeout | None = None
        self._begun = False

    async def serve(self) -> None:
        """Serves it to its end. Raises nothing that the box could cause."""
        try:
            async with asyncio.timeout(self._limits.max_connection_ms / 1000):
                await self._serve()
        except EgressRefused as refused:
            await self._refuse(refused.status, refused.message)
        except BytesSpent:
            await self._refuse(403, "the turn has moved as many bytes as it may")
        except TimeoutError:
            await self._refuse(504, "nothing moved for too long")
        except (h11.RemoteProtocolError, ValueError):
            await self._refuse(400, "this is not HTTP/1.1")
        except OSError:
            # One of the two sides went away; the other sees the end of the connection.
            pass
        finally:
            await close_stream(self._writer)

    async def _serve(self) -> None:
        request = await self._head()
        if request is None:
            return
        if self._traffic.is_spent:
            raise BytesSpent
        wanted = read_request(request)
        origin = await self._connector.connect(wanted.destination, wanted.via)
        self._secrets = self._vault.secrets.of(wanted.destination)
        try:
            async with asyncio.timeout(self._limits.idle_timeout_ms / 1000) as self._idle:
                if wanted.forward is not None:
                    await self._forward(wanted.forward, origin)
                elif self._secrets is None or self._vault.authority is None:
                    await self._tunnel(origin)
                else:
                    await self._inside(self._vault.authority, wanted.destination, origin)
        finally:
            await close_stream(origin[1])

    async def _head(self) -> h11.Request | None:
        try:
            async with asyncio.timeout(self._limits.head_timeout_ms / 1000):
                while (event := self._state.next_event()) is h11.NEED_DATA:
                    self._state.receive_data(await self._reader.read(_READ_BYTES))
        except TimeoutError as error:
            raise EgressRefused(408, "no whole request came in time") from error
        return event if isinstance(event, h11.Request) else None

    async def _tunnel(self, origin: Connection) -> None:
        early, _ = self._state.trailing_data
        self._begun = True
        self._writer.write(_ESTABLISHED)
        if early:
            self._traffic.add_sent(len(early))
            origin[1].write(early)
        await _both(
            self._pump(self._reader, origin[1], outward=True), self._pump(origin[0], self._writer, outward=False)
        )

    async def _inside(self, authority: BoxAuthority, destination: Destination, origin: Connection) -> None:
        """One exchange inside the program's TLS, so that a secret can be added to it."""
        host, limit_s = destination.host, self._limits.connect_timeout_ms / 1000
        if self._state.trailing_data[0]:
            raise EgressRefused(400, "the program speaks before it is connected")
        try:
            await origin[1].start_tls(
                self._vault.tls or origin_context(), server_hostname=host, ssl_handshake_timeout=limit_s
            )
        except (ssl.SSLError, ConnectionError) as error:
            raise EgressRefused(502, f"{destination} has no TLS that can be verified") from error
        self._writer.write(_ESTABLISHED)
        await self._writer.start_tls(authority.context(host), ssl_handshake_timeout=limit_s)
        self._state = h11.Connection(our_role=h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        request = await self._head()
        if request is not None:
            await self._forward(read_inner_request(request, destination), origin)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, outward: bool) -> None:
        count = self._traffic.add_sent if outward else self._traffic.add_received
        while data := await source.read(STREAM_BYTES):
            self._moved()
            count(len(data))
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    async def _forward(self, request: h11.Request, origin: Connection) -> None:
        state = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        if self._secrets is not None:
            self._mask = self._secrets.mask()
            headers = self._secrets.added(request.headers)
            request = h11.Request(method=request.method, target=request.target, headers=headers)
        await self._send_out(state, request, origin[1])
        upload = asyncio.ensure_future(self._upload(state, origin[1]))
        download = asyncio.ensure_future(self._download(state, origin[0]))
        try:
            await asyncio.wait({upload, download}, return_when=asyncio.FIRST_COMPLETED)
            if upload.done() and not isinstance(upload.exception(), OSError):
                upload.result()
            # An origin may answer before it has read everything, and stop reading then.
            await download
        except (h11.ProtocolError, ValueError) as error:
            raise EgressRefused(502, "one of the two sides broke HTTP/1.1") from error
        finally:
            await _stopped(upload, download)

    async def _upload(self, state: h11.Connection, sink: asyncio.StreamWriter) -> None:
        while True:
            if self._state.they_are_waiting_for_100_continue:
                self._writer.write(self._sent(h11.InformationalResponse(status_code=100, headers=[])))
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                self._state.receive_data(await self._reader.read(_READ_BYTES))
                self._moved()
            elif isinstance(event, h11.Data):
                await self._send_out(state, event, sink)
            elif isinstance(event, h11.EndOfMessage):
                await self._send_out(state, h11.EndOfMessage(), sink)
                return
            else:
                return

    async def _download(self, state: h11.Connection, source: asyncio.StreamReader) -> None:
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                state.receive_data(await source.read(STREAM_BYTES))
                self._moved()
            elif isinstance(event, h11.Response):
                answer = self._answer(event)
                self._begun = True
                await self._send_in(answer)
            elif isinstance(event, h11.Data):
                data = bytes(event.data)
                await self._send_body(data if self._mask is None else self._mask.feed(data))
            elif isinstance(event, h11.EndOfMessage):
                await self._send_body(b"" if self._mask is None else self._mask.rest())
                await self._send_in(h11.EndOfMessage())
                return
            elif not isinstance(event, h11.InformationalResponse):
                return

    def _answer(self, answer: h11.Response) -> h11.Response:
        headers, reason = answer_headers(answer.headers), answer.reason
        if self._secrets is not None:
            headers, reason = self._secrets.masked_headers(headers), self._secrets.masked(reason)
        return h11.Response(status_code=answer.status_code, headers=headers, reason=reason)

    async def _send_out(self, state: h11.Connection, event: h11.Event, sink: asyncio.StreamWriter) -> None:
        data = state.send(event) or b""
        self._traffic.add_sent(len(data))
        sink.write(data)
        await sink.drain()
        self._moved()

    async def _send_in(self, event: h11.Event) -> None:
        data = self._sent(event)
        self._traffic.add_received(len(data))
        self._writer.write(data)
        await self._writer.drain()

    async def _send_body(self, data: bytes) -> None:
        if data:
            await self._send_in(h11.Data(data=data))

    def _sent(self, event: h11.Event) -> bytes:
        return self._state.send(event) or b""

    def _moved(self) -> None:
        if self._idle is not None and not self._idle.expired():
            self._idle.reschedule(asyncio.get_running_loop().time() + self._limits.idle_timeout_ms / 1000)

    async def _refuse(self, status: int, message: str) -> None:
        if self._begun or self._writer.is_closing():
            self._writer.transport.abort()
            return
        body = f"egress: {message}\n".encode()
        head = f"HTTP/1.1 {status} Refused\r\ncontent-type: text/plain; charset=utf-8\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        try:
            async with asyncio.timeout(_LAST_WORD_MS / 1000):
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                # Closed with something unread, the answer would be lost with it. Nobody reads on for ever, though.
                left = MAX_UNREAD_BYTES
                while left > 0 and (data := await self._reader.read(_READ_BYTES)):
                    left -= len(data)
        except OSError:
            # Gone, or still talking when the time was over.
            self._writer.transport.abort()


async def close_stream(writer: asyncio.StreamWriter) -> None:
    """Closes a connection; what its other side does not read in time is dropped."""
    writer.close()
    try:
        async with asyncio.timeout(_LAST_WORD_MS / 1000):
            await writer.wait_closed()
    except OSError:
        # Broken, or still not empty: a `TimeoutError` is one too.
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise


async def _both(first: Coroutine[None, None, None], second: Coroutine[None, None, None]) -> None:
    tasks = {asyncio.ensure_future(first), asyncio.ensure_future(second)}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        await _stopped(*tasks)


async def _stopped(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
