"""What becomes of turns when somebody cancels them, a lease is lost, or a worker goes away."""

import asyncio
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from tests.unit.turns.rig import BY_USER, SETTINGS, Rig, answer, rig, script

from turnkeeper.clock import render_time
from turnkeeper.sandbox.protocol import Cancel, Canceled, ToolRequest
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.turns import payloads
from turnkeeper.turns.model import NewStep, Turn

PATIENT = replace(SETTINGS, cancel_grace_ms=20_000)


async def waits(harness: ScriptedHarness) -> None:
    while not isinstance(await harness.receive(), Cancel):
        pass
    harness.send(Canceled("half a sentence"))


async def ignores(harness: ScriptedHarness) -> None:
    await asyncio.Event().wait()


async def running(made: Rig) -> Turn:
    turn_id = await made.post(await made.session())
    return await made.until(turn_id, lambda turn: turn.status == "running")


def outcomes(made: Rig) -> list[object]:
    return [entry.payload["outcome"] for entry in made.guardian.entries if entry.method == payloads.TURN_END]


def test_an_acknowledged_cancel_is_the_sandboxes_word_and_publishes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, script(waits), settings=PATIENT) as made:
            turn = await running(made)
            await made.store.cancel_turn(turn.id, mode="graceful", by=BY_USER)
            turn = await made.ended(turn.id)
            await made.settled(turn.session_id)
            last = (await made.events(turn))[-1]
            assert (turn.stop_reason, last.source, turn.text) == ("canceled", "sandbox", "")
            assert "half a sentence" not in last.data
            assert (made.sandbox.left_behind, outcomes(made)) == ([], ["interrupted"])

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["graceful", "immediate"])
def test_a_cancel_nobody_acknowledges_ends_with_the_sandbox(tmp_path: Path, mode: str) -> None:
    async def main() -> None:
        settings = SETTINGS if mode == "graceful" else PATIENT
        async with rig(tmp_path, script(ignores), settings=settings) as made:
            turn = await running(made)
            await made.store.cancel_turn(turn.id, mode=mode, by=BY_USER)  # type: ignore[arg-type]
            turn = await made.ended(turn.id)
            assert (await made.events(turn))[-1].source == "platform"
            assert made.sandbox.left_behind == []

    asyncio.run(main())


def test_an_immediate_cancel_cuts_a_graceful_one_short(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, script(ignores), settings=PATIENT) as made:
            turn = await running(made)
            await made.store.cancel_turn(turn.id, mode="graceful", by=BY_USER)
            await made.store.cancel_turn(turn.id, mode="immediate", by=BY_USER)
            assert (await made.ended(turn.id)).status == "canceled"

    asyncio.run(main())


def test_a_cancel_ends_a_tool_that_runs_and_the_boxes_are_gone_before_it_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        async def calls(harness: ScriptedHarness) -> None:
            harness.send(ToolRequest("c", "shell", "{}"))
            await waits(harness)

        hanging = asyncio.Event()

        async def hangs(tool: str, arguments: object) -> None:
            hanging.set()
            await asyncio.Event().wait()

        async with rig(tmp_path, script(calls), settings=PATIENT) as made:
            made.sandbox.tool = hangs  # type: ignore[assignment]
            turn = await running(made)
            await hanging.wait()
            await made.store.cancel_turn(turn.id, mode="graceful", by=BY_USER)
            types = await made.types(await made.ended(turn.id))
            assert types[-4:] == ["tool.completed", "sandbox.released", "sandbox.released", "turn.canceled"]

    asyncio.run(main())


def test_closing_a_session_ends_its_turns_and_then_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, script(waits)) as made:
            turn = await running(made)
            await made.store.close_session(turn.session_id, mode="cancel", by=BY_USER)
            turn = await made.ended(turn.id)
            async with asyncio.timeout(20):
                while (await made.store.session(turn.session_id)).status != "closed":
                    await made.wakeups.wait(turn.session_id, timeout_ms=100)
            await made.settled(turn.session_id)
            assert turn.stop_reason == "session_closed"
            assert made.guardian.written()[-2:] == [payloads.TURN_END, payloads.SESSION_END]
            assert made.guardian.entries[-1].payload == {"reason": "cancelled"}

    asyncio.run(main())


def test_a_turn_whose_worker_died_is_a_lost_sandbox_with_its_calls_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async def calls(harness: ScriptedHarness) -> None:
            await harness.ask(ToolRequest("c", "shell", "{}"))

        hanging = asyncio.Event()

        async def hangs(tool: str, arguments: object) -> None:
            hanging.set()
            await asyncio.Event().wait()

        async with rig(tmp_path, script(calls)) as made:
            made.sandbox.tool = hangs  # type: ignore[assignment]
            turn = await running(made)
            await hanging.wait()
            await made.stop()
            made.again()
            made.work()
            turn = await made.ended(turn.id)
            await made.settled(turn.session_id)
            assert (turn.stop_reason, outcomes(made)) == ("sandbox_lost", ["error"])
            closed = [event for event in await made.events(turn) if event.type == "tool.completed"]
            assert [orjson.loads(event.data)["status"] for event in closed] == ["unknown"]
            (lost,) = [event for event in await made.events(turn) if event.type == "sandbox.lost"]
            assert (
                render_time(turn.created_at) <= orjson.loads(lost.data)["last_beat_at"] <= render_time(lost.created_at)
            )

    asyncio.run(main())


def test_a_dead_workers_turn_that_was_to_be_canceled_is_canceled(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, script(ignores), settings=PATIENT) as made:
            turn = await running(made)
            await made.store.cancel_turn(turn.id, mode="graceful", by=BY_USER)
            await made.stop()
            made.again()
            made.work()
            assert (await made.ended(turn.id)).stop_reason == "canceled"

    asyncio.run(main())


def test_a_turn_that_was_starting_is_started_again_at_no_cost(tmp_path: Path) -> None:
    async def main() -> None:
        waiting = asyncio.Event()

        async def never_begins(harness: ScriptedHarness) -> None:
            waiting.set()
            await asyncio.Event().wait()

        async with rig(tmp_path, never_begins, answer) as made:
            turn_id = await made.post(await made.session())
            await waiting.wait()
            await made.stop()
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            assert (turn.status, turn.attempt, turn.tries) == ("completed", 1, 2)
            assert made.guardian.written().count(payloads.TURN_START) == 1

    asyncio.run(main())


def test_a_front_that_was_left_half_way_is_walked_on_without_asking_twice(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, start=False) as made:
            turn_id = await made.post(session := await made.session())
            claim = await made.store.claim("gone", slot=True)
            assert claim is not None
            step = NewStep(made.bench.ids.uuid(), payloads.AGENT_TRIGGER, payloads.agent_trigger(), False, turn_id)
            await made.store.ask_step(session.id, step, claim.fence, ())
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            triggers = [entry for entry in made.guardian.entries if entry.method == payloads.AGENT_TRIGGER]
            assert [entry.request_id for entry in triggers] == [step.request_id]
            assert turn.status == "completed"

    asyncio.run(main())


def test_a_front_that_was_left_with_an_open_window_is_closed_by_a_cancel(tmp_path: Path) -> None:
    """Row 2 with amendment 2: the worker that is gone had sent turnStart."""

    async def main() -> None:
        async with rig(tmp_path, start=False) as made:
            turn_id = await made.post(session := await made.session())
            claim = await made.store.claim("gone", slot=True)
            assert claim is not None
            start = NewStep(made.bench.ids.uuid(), payloads.TURN_START, payloads.turn_start(turn_id), False, turn_id)
            await made.store.ask_step(session.id, start, claim.fence, ())
            await made.store.cancel_turn(turn_id, mode="graceful", by=BY_USER)
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            steps = await made.store.steps(session.id, turn_id=turn_id)
            assert turn.status == "canceled"
            assert [(step.method, step.outcome) for step in steps[-1:]] == [(payloads.TURN_END, "interrupted")]

    asyncio.run(main())


def test_a_worker_that_lost_its_lease_lets_go_of_its_boxes(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, script(ignores), settings=replace(SETTINGS, lease_ttl_ms=600)) as made:
            turn = await running(made)
            (taken,) = await made.store.take_over("another", await made.store.held_by_others("another"))
            async with asyncio.timeout(20):
                await made.sandbox.loop_boxes[0].gone.wait()
            assert taken.turn.id == turn.id
            assert not (await made.store.turn(turn.id)).status.terminal

    asyncio.run(main())


def test_a_turn_that_an_operator_failed_leaves_no_box_and_the_worker_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, script(ignores), answer) as made:
            turn = await running(made)
            failed = await made.store.operations().fail_turn(turn.id, reason=None)
            async with asyncio.timeout(20):
                await made.sandbox.loop_boxes[0].gone.wait()
            await made.settled(turn.session_id)
            assert (failed.stop_reason, outcomes(made)) == ("internal_error", ["error"])
            assert (await made.run_turn()).status == "completed"

    asyncio.run(main())


def test_a_turn_that_an_operator_put_back_runs_its_next_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, script(ignores), answer) as made:
            turn_id = await made.post(await made.session(), attempts=2)
            await made.until(turn_id, lambda turn: turn.status == "running")
            await made.store.operations().requeue_turn(turn_id)
            done = await made.ended(turn_id)
            assert (done.status, done.attempt, made.sandbox.left_behind) == ("completed", 2, [])

    asyncio.run(main())


def test_a_drained_worker_finishes_what_it_has_and_takes_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def waits_for_gate(harness: ScriptedHarness) -> None:
            await gate.wait()
            await harness.report("done")

        async with rig(tmp_path, script(waits_for_gate)) as made:
            turn = await running(made)
            made.worker.drain()
            late = await made.post(await made.session())
            gate.set()
            assert made.working is not None
            await made.working
            assert (await made.store.turn(turn.id)).status == "completed"
            assert (await made.store.turn(late)).status == "queued"
            assert await made.store.pending_steps(turn.session_id) == ()

    asyncio.run(main())


def test_a_fault_of_ours_ends_one_turn_and_not_the_worker(tmp_path: Path) -> None:
    async def main() -> None:
        async def breaks(tool: str, arguments: object) -> None:
            raise ValueError("a bug, with words that are nobody's business")

        async def calls(harness: ScriptedHarness) -> None:
            await harness.ask(ToolRequest("c", "shell", "{}"))

        async with rig(tmp_path, script(calls), answer) as made:
            made.sandbox.tool = breaks  # type: ignore[assignment]
            broken = await made.run_turn()
            await made.settled(broken.session_id)
            assert (broken.stop_reason, outcomes(made)) == ("internal_error", ["error"])
            assert "nobody's business" not in "".join(event.data for event in await made.events(broken))
            assert "tool.completed" in await made.types(broken)
            assert (await made.run_turn()).status == "completed"
            assert made.sandbox.left_behind == []

    asyncio.run(main())
