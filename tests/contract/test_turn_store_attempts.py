"""Attempts that are lost and tried again (contract 6, rows 20 and 21)."""

from typing import Any

import orjson
import pytest
from tests.contract.store_rig import ANSWER, BY_APP, CALL, LOST, Rig, a_note, a_step, has_started, with_store

from turnkeeper.turns.lifecycle import IllegalTransition
from turnkeeper.turns.model import Fence, StepAnswer, StopReason, Submission, TurnStatus
from turnkeeper.turns.ports import StaleFence


async def attempted(rig: Rig, **changes: Any) -> Fence:
    """A running turn with an open window, that may be tried once more."""
    fence = await rig.running(max_attempts=2, **changes)
    start = a_step(rig.ids, fence.turn_id, "steps/turnStart", in_window=False)
    await rig.store.ask_step(fence.session_id, start, fence, [])
    await rig.store.answer_step(fence.session_id, start.request_id, StepAnswer("answered", "allow", "h"), fence, [])
    return fence


@with_store
async def test_a_lost_attempt_is_told_closes_its_window_and_lets_go_of_the_turn(rig: Rig) -> None:
    """Row 21."""
    fence = await attempted(rig)

    turn = await rig.retry(fence)

    assert (turn.status, turn.attempt, turn.active_ms) == (TurnStatus.STARTING, 1, 70)
    last = (await rig.events(fence.session_id))[-1]
    assert (last.type, last.attempt) == ("turn.retrying", 1)
    assert orjson.loads(last.data)["failed_attempt"] == 1
    (end,) = await rig.store.pending_steps(fence.session_id)
    assert (end.method, end.outcome) == ("steps/turnEnd", "error")
    with pytest.raises(StaleFence):
        await rig.store.record(fence, [a_note(fence.turn_id)])


@with_store
async def test_the_next_attempt_waits_out_its_delay_and_keeps_its_place(rig: Rig) -> None:
    fence = await attempted(rig)
    behind = await rig.post(fence.session_id)
    await rig.retry(fence, delay_ms=1_000)

    assert await rig.store.claim("early", slot=True) is None
    rig.clock.advance(1_000)
    claim = await rig.claim("next")

    assert (claim.turn.id, claim.turn.status) == (fence.turn_id, TurnStatus.STARTING)
    assert (await rig.store.turn(behind.id)).status is TurnStatus.QUEUED
    await rig.store.retry_start(claim.fence)
    again = Fence(claim.turn.id, fence.session_id, "next", claim.fence.number + 1)
    turn = await rig.store.started(again, [has_started(fence.turn_id)])
    assert (turn.attempt, turn.tries) == (2, 1)


@with_store
async def test_a_turn_has_no_more_attempts_than_it_was_given(rig: Rig) -> None:
    """Row 20."""
    fence = await rig.running()

    with pytest.raises(IllegalTransition, match="1 of 1 attempts"):
        await rig.retry(fence)

    assert (await rig.store.end(fence, LOST)).type == "turn.failed"


@with_store
async def test_a_turn_that_never_ran_has_no_attempt_to_lose(rig: Rig) -> None:
    await rig.post((await rig.session()).id, max_attempts=2)
    fence = await rig.starting()

    with pytest.raises(IllegalTransition):
        await rig.retry(fence)


@with_store
async def test_a_worker_with_an_old_fence_tries_nothing_again(rig: Rig) -> None:
    fence = await attempted(rig)
    await rig.store.take_over("other", await rig.store.held_by_others("other"))

    with pytest.raises(StaleFence):
        await rig.retry(fence)


@with_store
async def test_a_model_call_of_the_lost_attempt_is_charged(rig: Rig) -> None:
    fence = await attempted(rig)
    await rig.store.reserve(fence, input_tokens=100, max_output_tokens=500)
    await rig.retry(fence)

    assert (await rig.store.turn(fence.turn_id)).usage.estimated
    await rig.store.settle(fence, CALL)
    assert (await rig.store.turn(fence.turn_id)).usage.by_model[0].output_tokens == 50


@with_store
async def test_a_turn_that_waits_for_its_next_attempt_can_be_canceled_at_once(rig: Rig) -> None:
    """Row 12, of a turn that nobody holds; its window is closed, so no turnEnd follows (amendment 2)."""
    fence = await attempted(rig, output_schema_json="{}")
    await rig.store.submit(fence, Submission(1, True, "1", ()), [])
    await rig.retry(fence)

    turn, effect = await rig.store.cancel_turn(fence.turn_id, mode="graceful", by=BY_APP)

    assert (effect, turn.stop_reason, turn.duration_ms, turn.result_error) == (
        "ended",
        StopReason.CANCELED,
        70,
        "withheld",
    )
    steps = await rig.store.steps(fence.session_id, turn_id=fence.turn_id)
    assert [step.outcome for step in steps if step.method == "steps/turnEnd"] == ["error"]


@with_store
async def test_closing_a_session_ends_the_turn_that_waits_for_its_next_attempt(rig: Rig) -> None:
    fence = await attempted(rig)
    await rig.retry(fence)

    await rig.store.close_session(fence.session_id, mode="cancel", by=BY_APP)

    assert (await rig.store.turn(fence.turn_id)).stop_reason is StopReason.SESSION_CLOSED


@with_store
async def test_each_window_counts_its_own_steps(rig: Rig) -> None:
    fence = await attempted(rig)
    for _ in range(2):
        step = await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])
        await rig.store.answer_step(fence.session_id, step.request_id, StepAnswer("answered", "allow", "h"), fence, [])
    await rig.retry(fence)
    assert (await rig.store.step_counts(fence.session_id, fence.turn_id)).step_count == 2
    (end,) = await rig.store.pending_steps(fence.session_id)
    await rig.store.answer_step(fence.session_id, end.request_id, StepAnswer("answered", "allow", "h"), None, [])

    assert (await rig.store.step_counts(fence.session_id, fence.turn_id)).step_count == 0


@with_store
async def test_an_answer_after_a_retry_is_an_answer(rig: Rig) -> None:
    fence = await attempted(rig)
    await rig.retry(fence, delay_ms=0)
    fence = (await rig.claim()).fence
    await rig.store.started(fence, [has_started(fence.turn_id)])

    assert (await rig.store.end(fence, ANSWER)).attempt == 2
