"""What the model writes, told in few pieces and only to a worker that wants it (contract 11)."""

import asyncio
from typing import Final

from turnkeeper.harness.channel import WorkerLink
from turnkeeper.harness.speech import TOLD_EVERY_MS, Speech
from turnkeeper.sandbox.protocol import FromHarness, TextDelta, ToHarness

SOME_MS: Final = 1_000


class Ear:
    """A worker that only listens."""

    def __init__(self) -> None:
        self.heard: list[FromHarness] = []

    async def send(self, frame: FromHarness) -> None:
        self.heard.append(frame)

    async def receive(self) -> ToHarness:
        raise AssertionError("nothing is answered")


def speak(*said: tuple[int, str], wanted: bool = True) -> list[FromHarness]:
    """What is heard of pieces that are said, each so many milliseconds after the one before."""

    async def main() -> list[FromHarness]:
        ear, now = Ear(), [SOME_MS]
        speech = Speech(WorkerLink(ear), wanted=wanted, now_ms=lambda: now[0])
        speech.begin()
        for pause_ms, text in said:
            now[0] += pause_ms
            await speech.say("message", text)
        await speech.end()
        return ear.heard

    return asyncio.run(main())


def test_pieces_that_come_quickly_are_told_together() -> None:
    assert speak((0, "a"), (1, "b"), (1, "c"), (TOLD_EVERY_MS, "d")) == [TextDelta(1, "a"), TextDelta(1, "bcd")]


def test_what_was_kept_is_told_at_the_end() -> None:
    assert speak((0, "a"), (1, "b")) == [TextDelta(1, "a"), TextDelta(1, "b")]


def test_nothing_is_told_to_a_worker_that_does_not_want_it() -> None:
    assert speak((0, "a"), wanted=False) == []


def test_reasoning_and_text_never_share_a_piece_and_each_answer_has_its_number() -> None:
    async def main() -> list[FromHarness]:
        ear = Ear()
        speech = Speech(WorkerLink(ear), wanted=True, now_ms=lambda: SOME_MS)
        for _ in range(2):
            speech.begin()
            await speech.say("reasoning", "hm")
            await speech.say("message", "a")
            await speech.end()
        return ear.heard

    assert asyncio.run(main()) == [
        TextDelta(1, "hm", "reasoning"),
        TextDelta(1, "a"),
        TextDelta(2, "hm", "reasoning"),
        TextDelta(2, "a"),
    ]
