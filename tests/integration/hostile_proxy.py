"""A proxy that spoils HTTP as networks do: refuses, loses answers, cuts streams anywhere. Loopback only."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

PIECE = 65_536


@dataclass(frozen=True)
class Refuse:
    """Takes the request and hangs up; it never arrives."""


@dataclass(frozen=True)
class Lose:
    """The request arrives and is done; its answer is lost."""


@dataclass(frozen=True)
class Cut:
    """The answer breaks off after so many bytes."""

    after_bytes: int


@dataclass(frozen=True)
class Say:
    """Answers by itself."""

    status: str
    body: str = "a proxy's page"
    headers: str = "Content-Type: text/html\r\n"


Fault = Refuse | Lose | Cut | Say


@dataclass
class HostileProxy:
    """Forwards to a port. `faults` are for the next requests whose first line has the text, one each."""

    target_port: int
    faults: dict[str, list[Fault]] = field(default_factory=dict[str, list[Fault]])
    seen: Counter[str] = field(default_factory=Counter[str])
    url: str = ""
    handling: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.handling.add(asyncio.create_task(self._handle(reader, writer)))

    async def close(self) -> None:
        for task in self.handling:
            task.cancel()
        await asyncio.gather(*self.handling, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _request(reader)
            line = request.partition(b"\r\n")[0].decode()
            self.seen[line.rpartition(" ")[0]] += 1
            await self._suffer(self._fault(line), request, writer)

    def _fault(self, line: str) -> Fault | None:
        return next((faults.pop(0) for text, faults in self.faults.items() if faults and text in line), None)

    async def _suffer(self, fault: Fault | None, request: bytes, writer: asyncio.StreamWriter) -> None:
        match fault:
            case Refuse():
                return
            case Say(status, body, headers):
                head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write((head + body).encode())
                await writer.drain()
            case _:
                await self._forward(request, writer, fault)

    async def _forward(self, request: bytes, writer: asyncio.StreamWriter, fault: Fault | None) -> None:
        upstream, sending = await asyncio.open_connection("127.0.0.1", self.target_port)
        left = fault.after_bytes if isinstance(fault, Cut) else None
        try:
            sending.write(request)
            while piece := await upstream.read(PIECE):
                if isinstance(fault, Lose):
                    continue
                writer.write(piece if left is None else piece[:left])
                await writer.drain()
                if left is not None and (left := left - len(piece)) <= 0:
                    return
        finally:
            sending.close()
            with suppress(ConnectionError):
                await sending.wait_closed()


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
    size = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
    # One request a connection: what is done to it is done to nothing else.
    return b"\r\n".join([*lines, b"Connection: close", b"", b""]) + await reader.readexactly(size)


@asynccontextmanager
async def hostile_proxy(target_port: int) -> AsyncGenerator[HostileProxy]:
    """An open proxy before the port."""
    proxy = HostileProxy(target_port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with server:
            yield proxy
    finally:
        await proxy.close()
