"""A small HTTP/1.1 server side over asyncio streams: whole requests in, answers out, whole or as they come.

h11 has the protocol; this module has the reads, the writes, the body cap, the deadline of a request, and one thing a
framework would not give as directly: a handler is canceled the moment its client leaves. What a client does not read
stops the handler's next write. Knows nothing about models.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import h11

MAX_HEAD_BYTES: Final = 16 * 1024
REQUEST_TIMEOUT_MS: Final = 60_000
"""How long a request may take to arrive once its first byte has."""
MAX_EARLY_BYTES: Final = 64 * 1024
"""How much of further requests is held while one is served."""

_READ_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request with its whole body; header names are in lower case, a repeated header has its last value."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One answer with its whole body. `close` ends the connection after it."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    close: bool = False


class Reply(Protocol):
    """An answer that is sent as it comes: its head, then pieces of its body."""

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Sends the head. A handler that has begun returns `None`, and does not raise, to end the body."""
        ...

    async def write(self, piece: bytes) -> None:
        """Sends a piece; returns when the client has taken enough of what went before. Raises `ClientLeft`."""
        ...


Handler: TypeAlias = Callable[[HttpRequest, Reply], Awaitable[HttpAnswer | None]]


class ClientLeft(Exception):
    """The client closed its side while its request was being served, or sent more than can be held for later."""


class _BodyTooLarge(Exception):
    """The body is over the cap; the rest of it is not read."""


async def serve_connection(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handle: Handler,
    *,
    max_body_bytes: int,
    request_timeout_ms: int = REQUEST_TIMEOUT_MS,
) -> None:
    """Serves one connection until either side is done. The handler is canceled when the client leaves.

    A body over `max_body_bytes` is answered 413, a malformed request 400, one that does not arrive in time 408; none
    of these reaches the handler.
    """
    connection = _Connection(reader, writer, max_body_bytes, request_timeout_ms)
    try:
        while await connection.serve_one(handle):
            pass
    except (ClientLeft, ConnectionError):
        pass
    finally:
        writer.close()


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        max_body_bytes: int,
        request_timeout_ms: int,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._max_body_bytes = max_body_bytes
        self._request_timeout_ms = request_timeout_ms
        self._state = h11.Connection(our_role=h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def serve_one(self, handle: Handler) -> bool:
        """Serves one request. Returns whether the connection can carry another."""
        try:
            request = await self._received()
        except TimeoutError:
            await self._send(_refusal(408, "request_timeout", f"no whole request in {self._request_timeout_ms} ms"))
            return False
        except _BodyTooLarge:
            await self._send(_refusal(413, "request_too_large", f"over {self._max_body_bytes} bytes"))
            return False
        except (h11.RemoteProtocolError, ValueError) as error:
            # A length of thousands of digits is more than Python makes a number of: a ValueError.
            status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
            await self._send(_refusal(status, "bad_request", "not an HTTP/1.1 request"))
            return False
        if request is None:
            return False
        await self._watched(self._answered(handle, request))
        if self._state.our_state is h11.DONE and self._state.their_state is h11.DONE:
            self._state.start_next_cycle()
            return True
        return False

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """`Reply.begin`."""
        # h11 frames a body without a length in chunks, or closes after it for a client of HTTP/1.0.
        await self._write(self._state.send(h11.Response(status_code=status, headers=list(headers.items()))))

    async def write(self, piece: bytes) -> None:
        """`Reply.write`."""
        await self._write(self._state.send(h11.Data(data=piece)))

    async def _answered(self, handle: Handler, request: HttpRequest) -> None:
        answer = await handle(request, self)
        if answer is not None:
            await self._send(answer)
        else:
            await self._write(self._state.send(h11.EndOfMessage()))

    async def _received(self) -> HttpRequest | None:
        # An idle connection may wait for as long as it likes; a request that has begun may not.
        if not self._state.trailing_data[0]:
            self._state.receive_data(await self._reader.read(_READ_BYTES))
        async with asyncio.timeout(self._request_timeout_ms / 1000):
            return await self._receive()

    async def _receive(self) -> HttpRequest | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Request):
                head = event
                await self._check_head(head)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._max_body_bytes:
                    raise _BodyTooLarge
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            elif isinstance(event, h11.ConnectionClosed):
                return None

    async def _check_head(self, head: h11.Request) -> None:
        for name, value in head.headers:
            if name == b"content-length" and int(value) > self._max_body_bytes:
                raise _BodyTooLarge
        if self._state.they_are_waiting_for_100_continue:
            await self._write(self._state.send(h11.InformationalResponse(status_code=100, headers=[])))

    async def _next_event(self) -> h11.Event:
        while True:
            event = self._state.next_event()
            if event is h11.PAUSED:
                raise ClientLeft
            if event is not h11.NEED_DATA:
                assert not isinstance(event, type)  # noqa: S101  - the two sentinels are handled above
                return event
            self._state.receive_data(await self._reader.read(_READ_BYTES))

    async def _watched(self, answering: Awaitable[None]) -> None:
        running = asyncio.ensure_future(answering)
        watching = asyncio.ensure_future(self._take_early_bytes())
        try:
            await asyncio.wait({running, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                watching.result()
            await running
        finally:
            running.cancel()
            watching.cancel()
            await asyncio.gather(running, watching, return_exceptions=True)

    async def _take_early_bytes(self) -> None:
        held_bytes = 0
        while held_bytes <= MAX_EARLY_BYTES:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                break
            held_bytes += len(data)
            self._state.receive_data(data)
        raise ClientLeft

    async def _send(self, answer: HttpAnswer) -> None:
        if self._state.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        headers = {"content-type": "application/json", **answer.headers, "content-length": str(len(answer.body))}
        if answer.close:
            headers["connection"] = "close"
        head = h11.Response(status_code=answer.status, headers=list(headers.items()))
        parts = (self._state.send(head), self._state.send(h11.Data(data=answer.body)))
        await self._write(b"".join(part or b"" for part in (*parts, self._state.send(h11.EndOfMessage()))))

    async def _write(self, data: bytes | None) -> None:
        try:
            self._writer.write(data or b"")
            await self._writer.drain()
        except ConnectionError as error:
            raise ClientLeft from error


def _request(head: h11.Request, body: bytes) -> HttpRequest:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return HttpRequest(head.method.decode("latin-1"), head.target.decode("latin-1"), headers, body)


def _refusal(status: int, code: str, message: str) -> HttpAnswer:
    body = f'{{"error":{{"code":"{code}","message":"{message}"}}}}'
    return HttpAnswer(status, body.encode(), close=True)
