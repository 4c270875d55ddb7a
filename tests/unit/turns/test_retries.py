"""Attempts that are lost and tried again (contract 6, rows 20, 21, 23a)."""

import asyncio
from dataclasses import replace
from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.turns.rig import BY_USER, SETTINGS, Rig, answer, rig, script

from turnkeeper.sandbox.protocol import Start, Submit, ToolRequest
from turnkeeper.testing.recording_sandbox import HarnessScript, ScriptedHarness
from turnkeeper.testing.scripted_guardian import deny
from turnkeeper.turns import payloads
from turnkeeper.turns.attempts import MAX_DELAY_MS, retry_delay_ms
from turnkeeper.turns.history import FATE_UNKNOWN
from turnkeeper.turns.model import Turn


async def dies_in_a_call(harness: ScriptedHarness) -> None:
    harness.send(ToolRequest("c", "shell", "{}"))
    await asyncio.Event().wait()


async def dies(harness: ScriptedHarness) -> None:
    await asyncio.Event().wait()


def answering(starts: list[Start]) -> HarnessScript:
    """A harness that answers, and what it was started with."""

    async def run(harness: ScriptedHarness) -> None:
        starts.append(await harness.begin())
        await harness.report("done")

    return run


async def lose(made: Rig, *, in_call: bool = False) -> Turn:
    """A running turn whose worker goes away; another one is at work then."""
    turn_id = await made.post(await made.session(), attempts=2)
    hanging = asyncio.Event()

    async def hangs(tool: str, arguments: object) -> None:
        hanging.set()
        await asyncio.Event().wait()

    made.sandbox.tool = hangs  # type: ignore[assignment]
    turn = await made.until(turn_id, lambda turn: turn.status == "running")
    if in_call:
        await hanging.wait()
    await made.stop()
    made.again()
    made.work()
    return turn


def written(made: Rig) -> list[str]:
    return [entry.method for entry in made.guardian.entries if entry.method in {payloads.TURN_START, payloads.TURN_END}]


def test_a_lost_attempt_is_tried_again_under_the_same_turn(tmp_path: Path) -> None:
    """Row 21: turnEnd error, then turnStart auto_continuation."""

    async def main() -> None:
        async with rig(tmp_path, script(dies), answer) as made:
            turn = await made.ended((await lose(made)).id)
            await made.settled(turn.session_id)
            assert (turn.status, turn.attempt) == ("completed", 2)
            assert written(made) == [payloads.TURN_START, payloads.TURN_END] * 2
            starts = [e.payload["triggered_by"] for e in made.guardian.entries if e.method == payloads.TURN_START]
            assert starts == ["user_message", "auto_continuation"]
            ends = [e.payload["outcome"] for e in made.guardian.entries if e.method == payloads.TURN_END]
            assert ends == ["error", "completed"]
            types = await made.types(turn)
            assert types.count("turn.retrying") == 1
            assert types.index("sandbox.lost") < types.index("turn.retrying")

    asyncio.run(main())


def test_the_agent_is_told_which_call_has_an_unknown_fate(tmp_path: Path) -> None:
    async def main() -> None:
        starts: list[Start] = []
        async with rig(tmp_path, script(dies_in_a_call), answering(starts)) as made:
            turn = await made.ended((await lose(made, in_call=True)).id)
            closed = [e for e in await made.events(turn) if e.type == "tool.completed"]
            assert [orjson.loads(e.data)["status"] for e in closed] == ["unknown"]
            (start,) = starts
            assert [item.kind for item in start.history] == ["user", "tool"]
            assert start.history[-1].text == FATE_UNKNOWN
            assert start.input == "hello"

    asyncio.run(main())


def test_a_denied_continuation_ends_the_turn(tmp_path: Path) -> None:
    """Row 23a."""

    async def main() -> None:
        async with rig(tmp_path, script(dies), answer) as made:
            lost = await lose(made)
            made.guardian.next(payloads.TURN_START, deny("not twice"))
            turn = await made.ended(lost.id)
            await made.settled(turn.session_id)
            assert (turn.stop_reason, turn.attempt) == ("denied_at_start", 1)
            outcomes = [e.payload["outcome"] for e in made.guardian.entries if e.method == payloads.TURN_END]
            assert outcomes == ["error", "denied_at_start"]

    asyncio.run(main())


def test_what_was_submitted_before_counts_in_the_next_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        async def submits_and_dies(harness: ScriptedHarness) -> None:
            await harness.ask(Submit("7"))
            await asyncio.Event().wait()

        starts: list[Start] = []
        async with rig(tmp_path, script(submits_and_dies), answering(starts)) as made:
            turn_id = await made.post(await made.session(), schema="{}", attempts=2)
            while not await made.store.submissions(turn_id):
                await made.wakeups.wait((await made.store.turn(turn_id)).session_id, timeout_ms=100)
            await made.stop()
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            assert (turn.attempt, turn.result_json, starts[0].submissions) == (2, "7", 1)

    asyncio.run(main())


def test_a_cancel_that_was_asked_for_is_not_answered_with_another_attempt(tmp_path: Path) -> None:
    """Row 19 wins over row 21."""

    async def main() -> None:
        async with rig(tmp_path, script(dies), settings=replace(SETTINGS, cancel_grace_ms=20_000)) as made:
            turn_id = await made.post(await made.session(), attempts=2)
            await made.until(turn_id, lambda turn: turn.status == "running")
            await made.store.cancel_turn(turn_id, mode="graceful", by=BY_USER)
            await made.stop()
            made.again()
            made.work()
            assert (await made.ended(turn_id)).stop_reason == "canceled"

    asyncio.run(main())


@given(st.integers(1, 1_000))
def test_each_delay_is_as_long_as_the_one_before_or_longer_up_to_a_limit(attempt: int) -> None:
    assert 1_000 <= retry_delay_ms(attempt) <= retry_delay_ms(attempt + 1) <= MAX_DELAY_MS
