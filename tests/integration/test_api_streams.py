"""Event streams from a real server: no seam, no lost event, an end with a reason."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import uvicorn
from tests.integration.api_door import Api, Json, serve

from turnkeeper.api.deps import ApiSettings
from turnkeeper.api.server import ApiServer
from turnkeeper.api.stream_registry import StreamRegistry
from turnkeeper.api.streams import EventStreamResponse, StreamPlan
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.model import CanceledBy, Claim

BY = CanceledBy("system", None)


@dataclass(frozen=True)
class Frame:
    """One frame: `id` is null for those of the stream itself."""

    event: str
    data: Json
    id: int | None


async def frames(answer: httpx.Response) -> AsyncIterator[Frame]:
    """The frames of a stream until its end; comments and `retry` are left out."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if not line:
            if "event" in fields:
                number = int(fields["id"]) if "id" in fields else None
                yield Frame(fields["event"], orjson.loads(fields["data"]), number)
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


@dataclass(frozen=True)
class Door:
    """A listening server and a client of it."""

    api: Api
    server: ApiServer
    client: httpx.AsyncClient

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncGenerator[AsyncIterator[Frame]]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.stream("GET", path, headers=named) as answer:
            assert answer.status_code == 200, (await answer.aread()).decode()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield frames(answer)

    async def all(self, path: str, **headers: str) -> list[Frame]:
        async with self.stream(path, **headers) as found:
            return [frame async for frame in found]


def listening(
    folder: Path,
    work: Callable[[Door], Awaitable[None]],
    settings: ApiSettings | None = None,
    streams: StreamRegistry | None = None,
) -> None:
    """Runs `work` against a server on a free port of this machine."""

    async def with_server(api: Api) -> None:
        config = uvicorn.Config(api.app, host="127.0.0.1", port=0, log_config=None, lifespan="off")
        server = ApiServer(config, api.deps.streams)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        headers = {"Authorization": f"Bearer {api.secret}"}
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20, trust_env=False
        ) as client:
            await work(Door(api, server, client))
        server.should_exit = True
        await serving

    serve(folder, with_server, settings, streams=streams)


async def text(api: Api, claim: Claim, size: int) -> None:
    """One stored event with this much text."""
    data = orjson.dumps({"turn_id": claim.turn.id, "text": "x" * size}).decode()
    await api.store.record(claim.fence, [NewEvent("message.completed", "sandbox", data, claim.turn.id, 1)])


def test_a_stream_begins_with_ready_replays_and_follows_to_the_end_of_the_turn(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        turn = await door.api.turn(await door.api.session())
        async with door.stream(f"/v1/turns/{turn['id']}/events/stream?after=0") as found:
            ready = await anext(found)
            assert (ready.event, ready.id) == ("stream.ready", None)
            assert ready.data == {"after": 0, "head_sequence": 3, "oldest_sequence": 1, "deltas": "withheld"}
            await door.api.completed(await door.api.started())
            rest = [frame async for frame in found]
        types = [frame.event for frame in rest]
        assert types == ["turn.queued", "turn.starting", "turn.started", "turn.completed", "stream.closing"]
        assert [frame.id for frame in rest] == [2, 4, 5, 6, None]
        assert rest[-1].data == {"reason": "turn_ended", "retry_ms": 1000, "after": 6}

    listening(tmp_path, work)


def test_frames_are_the_envelopes_of_the_list(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        turn = await door.api.turn(session_id, metadata={"k": 1.0})
        await door.api.completed(await door.api.started())
        listed = (await door.api.seen(f"/v1/turns/{turn['id']}/events?limit=1000"))["data"]
        streamed = await door.all(f"/v1/turns/{turn['id']}/events/stream?after=0")
        assert [frame.data for frame in streamed[1:-1]] == listed
        assert [frame.event for frame in streamed[1:-1]] == [event["type"] for event in listed]

    listening(tmp_path, work)


def test_no_event_is_lost_or_sent_twice_while_many_are_written(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        turn = await door.api.turn(await door.api.session())
        claim = await door.api.started()

        async def write() -> None:
            for _ in range(150):
                await text(door.api, claim, 10)
            await door.api.completed(claim)

        writing = asyncio.create_task(write())
        path = f"/v1/turns/{turn['id']}/events/stream?after=0"
        found = await asyncio.gather(*(door.all(path) for _ in range(3)))
        await writing
        for stream in found:
            assert [frame.id for frame in stream if frame.id] == [2, *range(4, 157)]

    listening(tmp_path, work)


def test_the_header_wins_over_the_query_and_without_both_a_stream_begins_at_the_tail(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        await door.api.turn(session_id)
        path = f"/v1/sessions/{session_id}/events/stream"
        for query, headers, after in (("?after=0", {"Last_Event_ID": "1"}, 1), ("?after=1", {}, 1), ("", {}, 3)):
            async with door.stream(path + query, **headers) as found:
                assert (await anext(found)).data["after"] == after

    listening(tmp_path, work)


@pytest.mark.parametrize(
    ("query", "header", "code"),
    [
        ("after=4", None, "cursor_ahead"),
        ("after=99999999999999999999999", None, "cursor_invalid"),
        ("after=-1", None, "cursor_invalid"),
        ("after=0", "x", "cursor_invalid"),
        ("types=Nope", None, "invalid_field"),
        ("deltas=maybe", None, "invalid_field"),
        ("limit=5", None, "unknown_field"),
    ],
)
def test_a_start_that_is_nowhere_is_refused(tmp_path: Path, query: str, header: str | None, code: str) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        await api.turn(session_id)
        headers = {} if header is None else {"Last-Event-ID": header}
        problem = await api.refused("GET", f"/v1/sessions/{session_id}/events/stream?{query}", headers=headers)
        assert problem["code"] == code

    serve(tmp_path, work)


def test_a_finished_stream_is_204_at_its_end_and_replays_before_it(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        turn = await door.api.turn(await door.api.session())
        await door.api.completed(await door.api.started())
        path = f"/v1/turns/{turn['id']}/events/stream"
        assert (await door.client.get(path)).status_code == 204
        assert (await door.client.get(path, headers={"Last-Event-ID": "6"})).status_code == 204
        assert [frame.id for frame in await door.all(path, Last_Event_ID="5")] == [None, 6, None]

    listening(tmp_path, work)


def test_a_session_stream_ends_with_the_session_and_is_then_204(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        path = f"/v1/sessions/{session_id}/events/stream"
        async with door.stream(f"{path}?after=0") as found:
            await anext(found)
            await door.api.store.close_session(session_id, mode="drain", by=BY)
            await door.api.store.close_ended(session_id, "completed", None)
            rest = [frame async for frame in found]
        assert [frame.event for frame in rest] == ["session.created", "session.closed", "stream.closing"]
        assert rest[-1].data["reason"] == "session_closed"
        assert (await door.client.get(path)).status_code == 204

    listening(tmp_path, work)


def test_types_narrow_what_is_sent_and_not_when_it_ends(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        turn = await door.api.turn(await door.api.session())
        await door.api.completed(await door.api.started())
        found = await door.all(f"/v1/turns/{turn['id']}/events/stream?after=0&types=turn.started")
        assert [frame.event for frame in found] == ["stream.ready", "turn.started", "stream.closing"]
        assert found[-1].data["after"] == 6

    listening(tmp_path, work)


def test_an_idle_stream_gets_heartbeats_and_closes_at_its_age(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        answer = await door.client.get(f"/v1/sessions/{session_id}/events/stream")
        assert answer.text.startswith("retry: 1000\n\nevent: stream.ready\n")
        assert ": heartbeat\n\n" in answer.text
        assert '"reason":"max_age"' in answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"

    listening(tmp_path, work, ApiSettings(sse_heartbeat_ms=10, sse_max_age_ms=500))


def test_a_stopping_server_closes_its_streams_and_does_not_wait_for_them(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        async with door.stream(f"/v1/sessions/{session_id}/events/stream?after=0") as found:
            await anext(found)
            door.server.should_exit = True
            rest = [frame async for frame in found]
        assert (rest[-1].event, rest[-1].data["reason"]) == ("stream.closing", "deploy")
        assert rest[-1].data["after"] == 1

    listening(tmp_path, work)


def test_a_stream_whose_events_cannot_be_read_any_more_ends_without_a_trace_of_the_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        async with door.stream(f"/v1/sessions/{session_id}/events/stream?after=0") as found:
            assert [(await anext(found)).event for _ in range(2)] == ["stream.ready", "session.created"]
            with closing(sqlite3.connect(tmp_path / "turnkeeper.db")) as other:
                other.execute("ALTER TABLE events RENAME TO lost")
            assert [frame.event async for frame in found] == []
        # The server goes on, and says so to whoever asks next.
        again = await door.client.get(f"/v1/sessions/{session_id}/events")
        assert (again.status_code, again.json()["code"]) == (503, "database_unavailable")

    listening(tmp_path, work, ApiSettings(poll_ms=20))
    told = capsys.readouterr().out
    assert "stream_cut_short" in told
    assert "Traceback" not in told


def test_a_stream_of_a_revoked_key_ends(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await door.api.session()
        async with door.stream(f"/v1/sessions/{session_id}/events/stream") as found:
            await anext(found)
            await door.api.store.revoke_key(door.api.key.id)
            rest = [frame async for frame in found]
        assert [frame.data["reason"] for frame in rest] == ["unauthorized"]

    listening(tmp_path, work, ApiSettings(sse_heartbeat_ms=20))


def test_more_streams_than_a_key_may_open_are_refused_and_a_closed_one_makes_room(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        path = f"/v1/sessions/{await door.api.session()}/events/stream"
        async with door.stream(path) as found:
            await anext(found)
            refused = await door.client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            assert refused.headers["Retry-After"] == "1"
        async with asyncio.timeout(10):
            while door.api.deps.streams.open_count:
                await asyncio.sleep(0.005)
        async with door.stream(path) as found:
            await anext(found)

    listening(tmp_path, work, streams=StreamRegistry(max_per_key=1))


def test_losing_a_connection_cancels_nothing(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        turn = await door.api.turn(await door.api.session())
        claim = await door.api.started()
        async with door.stream(f"/v1/turns/{turn['id']}/events/stream") as found:
            await anext(found)
        await door.api.completed(claim)
        assert (await door.api.seen(f"/v1/turns/{turn['id']}"))["status"] == "completed"

    listening(tmp_path, work)


def test_a_reader_that_is_too_slow_is_told_where_to_go_on(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        await api.turn(session_id)
        claim = await api.started()
        for _ in range(8):
            await text(api, claim, 200_000)
        plan = StreamPlan(session_id, 0, 13, 1, None, frozenset(), to_turn_end=False, closed=False, deltas="withheld")
        stream = EventStreamResponse(api.deps, api.key, plan, slow_reader_ms=20)
        reader = SlowReader()
        await stream({"type": "http"}, reader.receive, reader.send)
        closing = reader.frame(-1)
        sent = [reader.frame(index)["sequence"] for index in range(1, len(reader.chunks) - 1)]
        assert closing["reason"] == "slow_consumer"
        assert sent == list(range(1, closing["after"] + 1))
        assert closing["after"] < 13

    serve(tmp_path, work)


class SlowReader:
    """A connection that takes its time over the first chunk, much more than a stream waits for room."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    async def receive(self) -> Json:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def send(self, message: Any) -> None:
        if message.get("body"):
            await asyncio.sleep(0 if self.chunks else 0.3)
            self.chunks.append(message["body"])

    def frame(self, index: int) -> Json:
        """The data of a chunk."""
        data = next(line for line in self.chunks[index].splitlines() if line.startswith(b"data: "))
        return orjson.loads(data.removeprefix(b"data: "))
