"""The box that a runner is: what it hears, and what it is told when the worker wants something else."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from turnkeeper.runners.boxes import AskedToStop, LeaseOver, RemoteLoopBox, RunnerLost
from turnkeeper.runners.tokens import Holder
from turnkeeper.sandbox.protocol import (
    Cancel,
    Canceled,
    Done,
    HarnessProtocolError,
    Report,
    Submit,
    ToolAsked,
    ToolRuled,
)
from turnkeeper.testing.fake_clock import FakeClock

REPORT = Report("completed", "end_turn", "so far", None, None, {}, 0)


def play(body: Callable[[RemoteLoopBox], Awaitable[None]]) -> list[RemoteLoopBox]:
    """A box for one test; those that the worker let go of."""
    gone: list[RemoteLoopBox] = []

    async def main() -> None:
        box = RemoteLoopBox(
            Holder("trn_01M8QRVN3CP9A40772AH5P31BW", 1),
            lambda _box, _start: None,
            gone.append,
            sandbox_id="sbx_01M8QRVN3CP9A40772AH5P31BW",
            socket_dir=Path("/nonexistent"),
            clock=FakeClock(),
            ttl_ms=60_000,
            start_ms=0,
        )
        await body(box)
        await box.kill()

    asyncio.run(main())
    return gone


def test_a_question_is_answered_by_the_next_frame_and_by_no_other() -> None:
    async def body(box: RemoteLoopBox) -> None:
        asked = ToolAsked("1", "shell", "{}")
        first, second = asyncio.create_task(box.ask(asked)), asyncio.create_task(box.ask(Submit("1")))
        assert await box.receive() == asked
        await box.send(ToolRuled("1", allowed=True))
        assert await first == ToolRuled("1", allowed=True)
        assert await box.receive() == Submit("1")
        await box.send(Done())
        assert await second == Done()

    assert len(play(body)) == 1


def test_word_of_a_cancel_answers_what_is_open_and_turns_a_report_into_its_acknowledgement() -> None:
    async def body(box: RemoteLoopBox) -> None:
        asking = asyncio.create_task(box.ask(Submit("1")))
        await box.receive()
        await box.send(Cancel(1_000))
        with pytest.raises(AskedToStop):
            await asking
        with pytest.raises(AskedToStop):
            await box.ask(Submit("2"))
        reporting = asyncio.create_task(box.ask(REPORT))
        assert await box.receive() == Canceled("so far")
        await box.kill()
        with pytest.raises(LeaseOver):
            await reporting

    play(body)


def test_a_report_that_is_open_when_a_cancel_comes_acknowledges_it() -> None:
    async def body(box: RemoteLoopBox) -> None:
        reporting = asyncio.create_task(box.ask(REPORT))
        assert await box.receive() == REPORT
        await box.send(Cancel(1_000))
        assert await box.receive() == Canceled("so far")
        await box.kill()
        with pytest.raises(LeaseOver):
            await reporting

    play(body)


def test_a_runner_that_sends_without_end_is_broken_off() -> None:
    async def body(box: RemoteLoopBox) -> None:
        for _ in range(65):
            box.pay_for(1 << 20)
        with pytest.raises(HarnessProtocolError):
            await box.receive()
        with pytest.raises(RunnerLost):
            await box.send(Done())

    play(body)
