"""Heads of requests over a real socket: too large, too slow, pipelined."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
import uvicorn

from turnkeeper.cli import bounded_http
from turnkeeper.cli.bounded_http import MAX_HEAD_BYTES
from turnkeeper.cli.listening import uvicorn_config
from turnkeeper.guardian.http import Receive, Scope, Send
from turnkeeper.settings import ServerSettings

SHORT_S: Final = 0.2
ONE: Final = b"POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server(uvicorn.Server):
    """Says when it listens, and where."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()
        self.port = 0

    async def startup(self, sockets: object = None) -> None:
        """Listens."""
        await super().startup()
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.listens.set()


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body and says what it was asked for, once somebody lets it."""
    while (await receive()).get("more_body"):
        pass
    text = scope["path"].encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


@asynccontextmanager
async def listening() -> AsyncGenerator[int, None]:
    """A server as every command has it."""
    server = Server(uvicorn_config(ServerSettings(host="127.0.0.1", port=0), answers))
    server.config.port = 0
    serving = asyncio.create_task(server.serve())
    await server.listens.wait()
    yield server.port
    server.should_exit = True
    await serving


def talking(talk: Talk) -> None:
    """Runs a conversation over one connection; it has twenty seconds."""

    async def main() -> None:
        async with asyncio.timeout(20), listening() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await talk(reader, writer)
            finally:
                writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("header", [b"X-A: " + b"a" * 1_000 + b"\r\n", b"a" * 1_000], ids=["many", "one"])
def test_a_head_that_grows_without_end_is_refused(header: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST /acs HTTP/1.1\r\nX-B: ")
        for _ in range(MAX_HEAD_BYTES // len(header) + 1):
            writer.write(header)
        await writer.drain()
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        assert b"more than 65536 bytes" in await reader.read()

    talking(talk)


def test_a_whole_head_that_is_too_large_is_refused_and_one_that_is_not_is_taken() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for size, status in ((MAX_HEAD_BYTES - 100, b"200"), (MAX_HEAD_BYTES, b"400")):
            writer.write(b"GET /a HTTP/1.1\r\nX-A: " + b"a" * size + b"\r\n\r\n")
            assert status in await reader.readline()
            if status == b"200":
                await reader.readuntil(b"/a")

    talking(talk)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads have to come at once."""
    monkeypatch.setattr(bounded_http, "HEAD_TIMEOUT_S", SHORT_S)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("sent", "told"), [(b"", b""), (b"GET / HTTP/1.1\r\nX:", b"did not arrive")])
def test_a_head_that_does_not_come_ends_the_connection(sent: bytes, told: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        assert told in await reader.read()

    talking(talk)


@pytest.mark.usefixtures("impatient")
def test_empty_lines_between_requests_keep_no_connection_open() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ONE)
        await reader.readuntil(b"/a")
        writer.write(b"\r\n")
        assert await reader.read() == b""

    talking(talk)


def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(ONE.replace(b"/a", b"/%d" % number) for number in range(50)))
        for number in range(50):
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
            body = b"/%d" % number
            assert await reader.readexactly(len(body)) == body

    talking(talk)
