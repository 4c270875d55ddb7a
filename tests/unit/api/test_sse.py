"""Frames that stay whole, and a buffer that stays bounded."""

import asyncio
from datetime import UTC, datetime

import orjson
import pytest

from turnkeeper.api.sse import HEARTBEAT, FrameBuffer, closing_frame, event_frame, ready_frame
from turnkeeper.api.stream_registry import StreamRegistry, TooManyStreams
from turnkeeper.events.envelope import Event
from turnkeeper.turns.model import PROJECT_ID
from turnkeeper.turns.wakeups import LocalWakeups


def event(data: str) -> Event:
    return Event(
        id="evt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB",
        type="turn.queued",
        created_at=datetime(2026, 12, 1, tzinfo=UTC),
        source="platform",
        project_id=PROJECT_ID,
        session_id="ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB",
        turn_id=None,
        sequence=42,
        attempt=None,
        data=data,
    )


def test_an_event_is_three_lines_with_its_sequence_as_id() -> None:
    first, second, third, *rest = event_frame(event('{"a":1}')).split(b"\n")
    assert (first, second, rest) == (b"id: 42", b"event: turn.queued", [b"", b""])
    assert orjson.loads(third.removeprefix(b"data: "))["data"] == {"a": 1}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\nevent: forged\ndata: x\n\n"])
def test_a_line_end_between_tokens_cannot_split_a_frame(end: str) -> None:
    frame = event_frame(event('{"a":' + end.replace("event", "").replace("data", "") + "1}"))
    assert len(frame.splitlines()) == 4


def test_frames_of_the_stream_itself_have_no_id() -> None:
    ready = ready_frame(after=1, head_sequence=2, oldest_sequence=1, deltas="withheld")
    assert b"id:" not in ready
    assert b"id:" not in closing_frame("deploy", after=7)
    assert orjson.loads(ready.splitlines()[1].removeprefix(b"data: ")) == {
        "after": 1,
        "head_sequence": 2,
        "oldest_sequence": 1,
        "deltas": "withheld",
    }


def test_a_frame_that_does_not_fit_in_time_is_not_taken() -> None:
    async def main() -> list[bool]:
        buffer = FrameBuffer(max_frames=2, max_bytes=10)
        return [await buffer.put(frame, timeout_ms=10) for frame in (b"12345", b"123456", b"1", b"1")]

    assert asyncio.run(main()) == [True, False, True, False]


def test_a_frame_larger_than_the_buffer_passes_alone() -> None:
    async def main() -> bool:
        return await FrameBuffer(max_bytes=10).put(b"x" * 1000, timeout_ms=10)

    assert asyncio.run(main())


def test_reading_makes_room_for_a_frame_that_waits() -> None:
    async def main() -> tuple[bytes | None, bool]:
        buffer = FrameBuffer(max_frames=1)
        await buffer.put(b"first", timeout_ms=10)
        waiting = asyncio.create_task(buffer.put(b"second", timeout_ms=20_000))
        await asyncio.sleep(0)
        return await buffer.get(timeout_ms=20_000), await waiting

    assert asyncio.run(main()) == (b"first", True)


def test_a_silent_buffer_gives_heartbeats_and_a_closed_one_its_rest_and_the_end() -> None:
    async def main() -> list[bytes | None]:
        buffer = FrameBuffer(max_frames=1)
        silent = await buffer.get(timeout_ms=1)
        await buffer.put(b"rest", timeout_ms=10)
        buffer.close(b"closing")
        return [silent, *[await buffer.get(timeout_ms=20_000) for _ in range(3)]]

    assert asyncio.run(main()) == [HEARTBEAT, b"rest", b"closing", None]


def test_streams_are_bounded_per_key_and_in_all() -> None:
    registry = StreamRegistry(max_streams=3, max_per_key=2)
    with registry.admit("key_a"), registry.admit("key_a"):
        with pytest.raises(TooManyStreams), registry.admit("key_a"):
            pass
        with registry.admit("key_b"), pytest.raises(TooManyStreams), registry.admit("key_c"):
            pass
    assert registry.open_count == 0


def test_a_stopping_server_rings_every_attached_watch() -> None:
    async def main() -> bool:
        registry, wakeups = StreamRegistry(), LocalWakeups()
        with wakeups.watch("ses_1") as watch, registry.attach(watch):
            registry.drain()
            return await watch.wait(timeout_ms=20_000)

    assert asyncio.run(main())
