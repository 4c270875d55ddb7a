"""The open texts of one stream: nothing is queued for a reader who is behind (contract 11)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import orjson

from turnkeeper.api.sse import MAX_BUFFERED_BYTES, FrameBuffer
from turnkeeper.api.stream_texts import CROWDED_FRAMES, StreamedTexts, TextScope
from turnkeeper.clock import SystemClock
from turnkeeper.events.envelope import Event
from turnkeeper.ids import RandomIds
from turnkeeper.turns.open_texts import OpenText, OpenTexts
from turnkeeper.turns.wakeups import LocalWakeups

DEADLINE_MS = 20_000
BEGUN = OpenText("ses_1", "trn_1", "msg_1", 1, 7)
STORED = b"event: x\n\n"


@dataclass
class Stream:
    """One reader's stream; `position` is how far he has come in the stored events."""

    texts: OpenTexts
    buffer: FrameBuffer
    streamed: StreamedTexts
    position: int = 7

    async def shown(self) -> tuple[str, int, str]:
        """The next text that he gets."""
        while True:
            frame = await self.buffer.get(timeout_ms=DEADLINE_MS)
            assert frame is not None
            if frame != STORED:
                name, data = frame.split(b"\n")[:2]
                said = orjson.loads(data.removeprefix(b"data: "))["data"]
                return name.removeprefix(b"event: ").decode(), said["offset"], said["text"]

    def write(self, text: OpenText, *pieces: str) -> OpenText:
        for piece in pieces:
            self.texts.write(text, piece)
            text = text.with_more(piece)
        return text

    def commit(self, event_type: str, data: str = "{}") -> None:
        self.position += 1
        event = Event(
            id="evt_1",
            type=event_type,
            created_at=SystemClock().now(),
            source="platform",
            project_id="prj_1",
            session_id="ses_1",
            turn_id="trn_1",
            sequence=self.position,
            attempt=1,
            data=data,
        )
        self.streamed.passed(event)


def streaming(test: Callable[[Stream], Awaitable[None]], *, head: int = 0) -> None:
    async def main() -> None:
        news, buffer = LocalWakeups(), FrameBuffer()
        texts = OpenTexts(news)
        scope = TextScope("ses_1", "prj_1", None, "trn_1", head, frozenset())
        stream: list[Stream] = []
        streamed = StreamedTexts(
            scope, texts, buffer, lambda: stream[0].position, clock=SystemClock(), ids=RandomIds(SystemClock())
        )
        stream.append(Stream(texts, buffer, streamed))
        following = asyncio.create_task(streamed.follow(news))
        async with asyncio.timeout(DEADLINE_MS / 1000):
            await test(stream[0])
        following.cancel()
        await asyncio.wait({following})

    asyncio.run(main())


def test_pieces_that_come_together_are_one_delta() -> None:
    async def test(stream: Stream) -> None:
        text = stream.write(BEGUN, "a", "b", "c")
        assert await stream.shown() == ("message.delta", 0, "abc")
        stream.write(text, "d", "e")
        assert await stream.shown() == ("message.delta", 3, "de")

    streaming(test)


def test_a_reader_who_is_behind_gets_no_deltas_and_then_the_whole() -> None:
    async def test(stream: Stream) -> None:
        text = stream.write(BEGUN, "ab")
        assert await stream.shown() == ("message.delta", 0, "ab")
        for _ in range(CROWDED_FRAMES):
            assert stream.buffer.offer(STORED)
        for _ in range(50):
            text = stream.write(text, "x")
            await asyncio.sleep(0)
        assert stream.buffer.waiting == CROWDED_FRAMES
        assert await stream.shown() == ("message.snapshot", 52, "ab" + "x" * 50)

    streaming(test)


def test_a_text_for_which_there_is_no_room_is_shown_whole_once_there_is() -> None:
    async def test(stream: Stream) -> None:
        assert stream.buffer.offer(b"x" * (MAX_BUFFERED_BYTES - 10))
        stream.write(BEGUN, "ab")
        for _ in range(10):
            await asyncio.sleep(0)
        await stream.buffer.get(timeout_ms=DEADLINE_MS)
        assert await stream.shown() == ("message.snapshot", 2, "ab")

    streaming(test)


def test_a_piece_waits_for_the_event_that_its_message_began_with() -> None:
    async def test(stream: Stream) -> None:
        later = replace(BEGUN, after=8)
        stream.write(later, "ab")
        await asyncio.sleep(0)
        assert stream.buffer.waiting == 0
        stream.commit("message.started")
        assert await stream.shown() == ("message.delta", 0, "ab")

    streaming(test)


def test_nothing_follows_the_end_of_a_message_or_of_its_turn() -> None:
    async def test(stream: Stream) -> None:
        stream.commit("message.completed", '{"message_id":"msg_1"}')
        stream.write(BEGUN, "late")
        other = stream.write(replace(BEGUN, message_id="msg_2"), "b")
        assert await stream.shown() == ("message.delta", 0, "b")
        stream.commit("turn.canceled")
        stream.write(other, "late")
        stream.write(replace(BEGUN, message_id="msg_3", turn_id="trn_2"), "c")
        assert await stream.shown() == ("message.delta", 0, "c")

    streaming(test)


def test_reasoning_comes_in_deltas_alone() -> None:
    async def test(stream: Stream) -> None:
        stream.write(replace(BEGUN, kind="reasoning"), "hm", "m")
        assert await stream.shown() == ("reasoning.delta", 0, "hmm")

    streaming(test, head=7)
