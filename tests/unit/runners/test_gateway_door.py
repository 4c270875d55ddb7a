"""Model calls of runners: to the socket of their own turn, with a token of their own, while the lease lives."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from tests.unit.runners.remote_rig import Elsewhere, Runner, elsewhere, report

from turnkeeper.runners.tokens import Holder
from turnkeeper.sandbox.http_door import HttpAnswer, HttpRequest, Reply, serve_connection


@asynccontextmanager
async def gateway(socket: Path) -> AsyncGenerator[list[HttpRequest]]:
    """A turn's model socket that streams two pieces to whoever asks, and what it was asked."""
    seen: list[HttpRequest] = []

    async def answer(request: HttpRequest, reply: Reply) -> HttpAnswer | None:
        seen.append(request)
        if request.method == "GET":
            return HttpAnswer(404, b"{}", {"x-should-retry": "false"})
        await reply.begin(200, {"content-type": "text/event-stream"})
        await reply.write(b"data: 1\n\n")
        await reply.write(b"data: [DONE]\n\n")
        return None

    handlers: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.ensure_future(serve_connection(reader, writer, answer, max_body_bytes=1 << 20)))

    server = await asyncio.start_unix_server(connected, socket)
    try:
        yield seen
    finally:
        server.close()
        await asyncio.gather(*handlers)


def play(tmp_path: Path, body: Callable[[Elsewhere, Runner, list[HttpRequest]], Awaitable[None]]) -> None:
    """A runner with a turn that runs, and the turn's model socket."""

    async def main() -> None:
        async with elsewhere(tmp_path) as far:
            await far.posted()
            runner = far.runner()
            await runner.begin()
            box = far.pools.box_of(Holder(runner.lease["turn"]["id"], runner.lease["fence"]))
            assert box is not None
            async with gateway(box.socket_dir / "gateway.sock") as seen:
                await body(far, runner, seen)

    asyncio.run(main())


async def called(runner: Runner, method: str, path: str, token: str) -> httpx.Response:
    """One model call."""
    url, headers = f"{runner.lease['gateway']['url']}{path}", {"Authorization": f"Bearer {token}"}
    return await runner.http.request(method, url, headers=headers, content=b"{}")


def test_a_model_call_reaches_the_turns_own_socket_and_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    async def body(_: Elsewhere, runner: Runner, seen: list[HttpRequest]) -> None:
        token = runner.lease["gateway"]["token"]
        streamed = await called(runner, "POST", "/v1/chat/completions", token)
        assert (streamed.status_code, streamed.content) == (200, b"data: 1\n\ndata: [DONE]\n\n")
        missing = await called(runner, "GET", "/v1/models?limit=1", token)
        assert (missing.status_code, missing.headers["x-should-retry"]) == (404, "false")
        assert [request.target for request in seen] == ["/v1/chat/completions", "/v1/models?limit=1"]
        assert all("authorization" not in request.headers for request in seen)

    play(tmp_path, body)


def test_only_the_gateways_token_opens_the_gateway(tmp_path: Path) -> None:
    async def body(_: Elsewhere, runner: Runner, seen: list[HttpRequest]) -> None:
        for token in (runner.lease["token"], "tkg_", "x"):
            assert (await called(runner, "POST", "/v1/chat/completions", token)).status_code == 401
        assert seen == []

    play(tmp_path, body)


def test_a_model_call_after_the_end_of_its_lease_is_refused(tmp_path: Path) -> None:
    async def body(_: Elsewhere, runner: Runner, seen: list[HttpRequest]) -> None:
        await runner.said("report", **report())
        late = await called(runner, "POST", "/v1/chat/completions", runner.lease["gateway"]["token"])
        assert (late.status_code, late.json()["code"], seen) == (409, "stale_attempt", [])

    play(tmp_path, body)
