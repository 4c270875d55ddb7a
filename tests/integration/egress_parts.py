"""Parts for tests of the egress proxy: an origin on loopback, names of our own, a desk that notes what it hears."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from turnkeeper.addresses import parse_networks
from turnkeeper.destinations import parse_rules
from turnkeeper.sandbox.egress import EgressProxy
from turnkeeper.sandbox.egress_admission import EgressLimits, EgressPolicy
from turnkeeper.sandbox.egress_exchange import NO_VAULT, Vault, close_stream

DEADLINE_S: Final = 60
LOOPBACK: Final = "127.0.0.0/8"

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine to its end, within the deadline."""

    async def within() -> None:
        await asyncio.wait_for(work, DEADLINE_S)

    asyncio.run(within())


@dataclass
class Names:
    """A resolver that knows what it is told; each look-up takes the next answer, the last one for ever."""

    known: dict[str, list[Sequence[str]]] = field(default_factory=dict[str, list[Sequence[str]]])
    asked: list[str] = field(default_factory=list[str])

    def know(self, name: str, *answers: Sequence[str]) -> None:
        self.known[name] = list(answers)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        del port
        self.asked.append(host)
        answers = self.known.get(host)
        if answers is None:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


@dataclass
class Desk:
    """Allows all but the hosts of `reasons`."""

    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    asked: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    told: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    async def ask(self, host: str, port: int, via: str) -> str | None:
        self.asked.append((host, port, via))
        return self.reasons.get(host)

    async def refused(self, host: str, port: int) -> None:
        self.told.append((host, port))


@dataclass
class Origin:
    """A server; `heads` is what it was sent before the first empty line, `bodies` what came after."""

    port: int = 0
    heads: list[bytes] = field(default_factory=list[bytes])


@contextlib.asynccontextmanager
async def origin(
    answer: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", *, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Origin]:
    """An origin that answers every request with the same bytes, and closes."""
    made = Origin()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            made.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()

    async with serving(serve, tls=tls) as made.port:
        yield made


@contextlib.asynccontextmanager
async def serving(serve: Serve, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """A server on loopback until the end of the block; it has ended every handler by then."""
    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            await close_stream(writer)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.ensure_future(handle(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


@dataclass
class Door:
    """A proxy that listens on this machine's loopback, as it otherwise does in a box's."""

    proxy: EgressProxy
    port: int
    names: Names
    desk: Desk

    async def say(self, text: bytes, *, then: bytes = b"") -> bytes:
        """What comes back for these bytes until the proxy closes; `then` is sent after the first answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(text)
            first = await reader.read(65_536)
            if then:
                writer.write(then)
            return first + await reader.read()
        except ConnectionError:
            return b""
        finally:
            await close_stream(writer)

    async def get(self, host: str, port: int, path: str = "/") -> bytes:
        """A plain GET by the rules."""
        return await self.say(f"GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())


@contextlib.asynccontextmanager
async def door(
    folder: Path,
    *allow: str,
    networks: Sequence[str] = (LOOPBACK,),
    limits: EgressLimits | None = None,
    reasons: Mapping[str, str] | None = None,
    vault: Vault = NO_VAULT,
) -> AsyncGenerator[Door]:
    """A proxy with one allow list."""
    names, desk = Names(), Desk(reasons or {})
    policy = EgressPolicy((parse_rules(allow),), parse_networks(networks))
    proxy = EgressProxy(folder, policy, desk, limits=limits, resolver=names, vault=vault)
    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    proxy.serve(listener)
    try:
        yield Door(proxy, port, names, desk)
    finally:
        await proxy.close()
