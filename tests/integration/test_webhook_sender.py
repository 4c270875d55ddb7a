"""The sender against real servers on loopback: what it connects to, and what it makes of what comes back."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import httpx

from turnkeeper.events.webhooks.addresses import parse_networks
from turnkeeper.events.webhooks.ports import Answer
from turnkeeper.events.webhooks.sender import KEPT_ANSWER_BYTES, HttpSender

LOOPBACK = parse_networks(["127.0.0.0/8"])
Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def receiver(answer: bytes, heard: list[bytes]) -> AsyncGenerator[int]:
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        # Who has read enough hangs up in the middle of the answer.
        with suppress(ConnectionError):
            writer.write(answer)
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        if serving:
            await asyncio.wait(serving)


def resolves_to(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        assert (host, port > 0) == ("hooks.example", True)
        return addresses

    return resolve


async def post(answer: bytes, heard: list[bytes], *, address: str = "127.0.0.1", timeout_ms: int = 10_000) -> Answer:
    async with receiver(answer, heard) as port, httpx.AsyncClient(trust_env=False) as client:
        sender = HttpSender(client, resolves_to(address), allow_http=True, allowed=LOOPBACK, timeout_ms=timeout_ms)
        return await sender.post(f"http://hooks.example:{port}/in?a=b", {"webhook-id": "evt_1"}, b"{}")


def test_the_request_goes_to_the_address_that_was_checked_under_the_name_that_was_asked_for() -> None:
    heard: list[bytes] = []
    answer = asyncio.run(post(b"HTTP/1.1 204 No Content\r\n\r\n", heard))
    assert answer.status == 204
    [head] = heard
    assert head.startswith(b"POST /in?a=b HTTP/1.1\r\n")
    assert b"host: hooks.example:" in head.lower()
    assert b"webhook-id: evt_1" in head.lower()


def test_a_name_that_resolves_to_a_private_address_is_never_connected_to() -> None:
    heard: list[bytes] = []
    answer = asyncio.run(post(b"HTTP/1.1 200 OK\r\n\r\n", heard, address="10.0.0.1"))
    assert (answer.status, heard) == (None, [])
    assert "not a public address" in (answer.error or "")


def test_a_redirection_is_told_and_not_followed() -> None:
    heard: list[bytes] = []
    answer = asyncio.run(
        post(b"HTTP/1.1 302 Found\r\nlocation: http://hooks.example/\r\ncontent-length: 0\r\n\r\n", heard)
    )
    assert (answer.status, len(heard)) == (302, 1)


def test_an_answer_without_an_end_is_read_to_a_bound() -> None:
    heard: list[bytes] = []
    endless = b"HTTP/1.1 500 Oops\r\n\r\n" + b"x" * 5_000_000
    answer = asyncio.run(post(endless, heard))
    assert answer.status == 500
    assert answer.head == "x" * KEPT_ANSWER_BYTES


def test_retry_after_is_handed_on() -> None:
    heard: list[bytes] = []
    refusal = b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"
    assert asyncio.run(post(refusal, heard)).retry_after == "7"


def test_a_receiver_that_says_no_http_is_a_failed_try() -> None:
    heard: list[bytes] = []
    answer = asyncio.run(post(b"nonsense\r\n\r\n", heard))
    assert answer.status is None
    assert "RemoteProtocolError" in (answer.error or "")


def test_a_receiver_that_never_answers_is_a_failed_try() -> None:
    async def scenario() -> Answer:
        over = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            over.set()

        async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with httpx.AsyncClient() as client:
                sender = HttpSender(client, resolves_to("127.0.0.1"), allow_http=True, allowed=LOOPBACK, timeout_ms=200)
                answer = await sender.post(f"http://hooks.example:{port}/", {}, b"{}")
            await over.wait()
        return answer

    answer = asyncio.run(scenario())
    assert (answer.status, answer.error) == (None, "no answer within 200 ms")


def test_a_receiver_that_is_not_there_is_a_failed_try() -> None:
    async def scenario() -> Answer:
        async with receiver(b"", []) as port:
            pass
        async with httpx.AsyncClient() as client:
            sender = HttpSender(client, resolves_to("127.0.0.1"), allow_http=True, allowed=LOOPBACK)
            return await sender.post(f"http://hooks.example:{port}/", {}, b"{}")

    answer = asyncio.run(scenario())
    assert answer.status is None
    assert "ConnectError" in (answer.error or "")
