"""An operator's word (contract 2.12, rows 21 and 28): one ending, no second run unasked, a drain that all see."""

import pytest
from tests.contract.pause_samples import a_pause
from tests.contract.store_rig import ANSWER, BY_APP, Rig, a_note, open_store, with_store

from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.lifecycle import TurnEnded
from turnkeeper.turns.model import CanceledBy, Claim, Fence, StopReason, TurnStatus
from turnkeeper.turns.operations import HANDOVER_MS, AttemptsUsed, Draining
from turnkeeper.turns.ports import PageRequest, StaleFence

OPERATOR = CanceledBy("api_key", "key_9")


def a_call(turn_id: str) -> NewEvent:
    return catalogue.tool_requested(
        turn_id=turn_id,
        attempt=1,
        tool_call_id="tcl_01KBC3Y5M8Q2V7R9T4W6X1Z0AB",
        name="shell",
        input_json="{}",
        input_hash="h",
    )


async def after_handover(rig: Rig) -> Claim | None:
    rig.clock.advance(HANDOVER_MS)
    return await rig.store.claim("another", slot=True)


async def is_stale(rig: Rig, fence: Fence) -> bool:
    with pytest.raises(StaleFence):
        await rig.store.record(fence, [a_note(fence.turn_id)])
    return True


@with_store
async def test_a_failed_turn_ends_once_with_its_calls_closed_and_its_worker_out(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.record(fence, [a_call(fence.turn_id)])

    turn = await rig.store.operations().fail_turn(fence.turn_id, reason="stuck")

    assert turn.error is not None
    assert (turn.status, turn.stop_reason) == (TurnStatus.FAILED, StopReason.INTERNAL_ERROR)
    assert (turn.error.code, turn.error.message) == ("operator", "an operator failed the turn: stuck")
    assert (await rig.types(turn.session_id))[-3:] == ["tool.completed", "sandbox.lost", "turn.failed"]
    assert [step.outcome for step in await rig.store.pending_steps(turn.session_id)] == ["error"]
    assert await is_stale(rig, fence)
    with pytest.raises(StaleFence):
        await rig.store.end(fence, ANSWER)
    with pytest.raises(TurnEnded):
        await rig.store.operations().fail_turn(fence.turn_id, reason=None)


@with_store
async def test_the_turn_behind_a_failed_one_waits_until_the_boxes_are_gone(rig: Rig) -> None:
    fence = await rig.running()
    behind = await rig.post(fence.session_id)
    await rig.store.operations().fail_turn(fence.turn_id, reason=None)

    assert await rig.store.claim("another", slot=True) is None
    claim = await after_handover(rig)
    assert claim is not None
    assert claim.turn.id == behind.id


@with_store
async def test_a_turn_fails_wherever_it_is(rig: Rig) -> None:
    operations = rig.store.operations()
    queued = await rig.post((await rig.session()).id)
    assert (await operations.fail_turn(queued.id, reason=None)).stop_reason is StopReason.INTERNAL_ERROR

    await rig.post((await rig.session()).id)
    starting = await rig.starting()
    assert (await operations.fail_turn(starting.turn_id, reason=None)).status is TurnStatus.FAILED
    assert await is_stale(rig, starting)

    paused = await rig.running()
    await rig.store.pause(paused, a_pause(rig.clock, rig.ids, paused), ())
    failed = await operations.fail_turn(paused.turn_id, reason=None)
    page = await rig.store.approvals(PageRequest(), status="canceled")
    assert (failed.status, len(page.items)) == (TurnStatus.FAILED, 1)


@with_store
async def test_a_running_turn_is_put_back_only_where_it_has_another_attempt(rig: Rig) -> None:
    once, twice = await rig.running(), await rig.running(max_attempts=2)
    with pytest.raises(AttemptsUsed) as refused:
        await rig.store.operations().requeue_turn(once.turn_id)
    await rig.store.record(once, [a_note(once.turn_id)])

    turn, effect = await rig.store.operations().requeue_turn(twice.turn_id)

    assert refused.value.detail["max_attempts"] == 1
    assert (turn.status, turn.attempt, effect) == (TurnStatus.STARTING, 1, "retried")
    assert (await rig.types(turn.session_id))[-2:] == ["sandbox.lost", "turn.retrying"]
    assert [step.outcome for step in await rig.store.pending_steps(turn.session_id)] == ["error"]
    assert await is_stale(rig, twice)


@with_store
async def test_a_turn_that_has_not_begun_is_given_to_another_worker_as_it_was(rig: Rig) -> None:
    await rig.post((await rig.session()).id)
    held = (await rig.claim("stuck")).fence

    turn, effect = await rig.store.operations().requeue_turn(held.turn_id)

    assert (turn.status, turn.attempt, effect) == (TurnStatus.QUEUED, 0, "requeued")
    assert await rig.store.claim("another", slot=True) is None
    claim = await after_handover(rig)
    assert claim is not None
    assert (claim.turn.id, claim.fence.owner) == (turn.id, "another")
    assert await is_stale(rig, held)
    assert (await rig.types(turn.session_id)).count("turn.queued") == 1


@with_store
async def test_a_turn_that_nobody_holds_is_as_it_was_and_a_retry_comes_at_once(rig: Rig) -> None:
    fence = await rig.running(max_attempts=2)
    await rig.retry(fence, delay_ms=60_000)
    assert await rig.store.claim("another", slot=True) is None

    _, effect = await rig.store.operations().requeue_turn(fence.turn_id)

    assert effect == "unchanged"
    claim = await rig.store.claim("another", slot=True)
    assert claim is not None
    assert claim.turn.id == fence.turn_id


@with_store
async def test_a_turn_that_waits_keeps_its_question_and_loses_its_worker(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.pause(fence, a_pause(rig.clock, rig.ids, fence), ())

    turn, effect = await rig.store.operations().requeue_turn(fence.turn_id)

    assert (turn.status, effect) == (TurnStatus.PAUSED, "requeued")
    assert await rig.store.open_pause(turn.id) is not None
    assert await is_stale(rig, fence)


@with_store
async def test_an_operators_cancel_is_told_as_the_operators(rig: Rig) -> None:
    operations = rig.store.operations()
    running = await rig.running()
    queued = await rig.post((await rig.session()).id)

    ended, effect = await operations.cancel_turn(queued.id, mode="graceful", by=OPERATOR)
    asked, other = await operations.cancel_turn(running.turn_id, mode="graceful", by=OPERATOR)

    assert (ended.stop_reason, ended.canceled_by, effect) == (StopReason.OPERATOR, OPERATOR, "ended")
    assert (asked.cancel_stop_reason, other) == (StopReason.OPERATOR, "requested")


@with_store
async def test_a_drain_holds_in_every_process_and_after_a_restart(rig: Rig) -> None:
    session = await rig.session()
    running = await rig.running()
    waiting = await rig.post(session.id, idempotency_key="k", fingerprint="f")
    await rig.store.operations().begin_drain(reason="upgrade", by=OPERATOR)
    other = await open_store(rig.url, rig.clock)
    try:
        assert await other.store.claim("another", slot=True) is None
        for store in (rig.store, other.store):
            with pytest.raises(Draining):
                await rig.accept(session.id)
            again = await store.operations().begin_drain(reason="another", by=BY_APP)
            assert (again.reason, again.asked_by, again.since) == ("upgrade", OPERATOR, rig.clock.now())
    finally:
        await other.store.close()

    assert (await rig.accept(session.id, idempotency_key="k", fingerprint="f")).turn.id == waiting.id
    await rig.store.end(running, ANSWER)
    await rig.store.operations().end_drain()
    claim = await rig.store.claim("another", slot=True)
    assert claim is not None
    assert claim.turn.id == waiting.id


@with_store
async def test_a_drain_leaves_what_has_not_begun_to_whoever_comes_after_it(rig: Rig) -> None:
    running = await rig.running("dead")
    await rig.post((await rig.session()).id)
    await rig.starting("dead")
    await rig.store.operations().begin_drain(reason=None, by=OPERATOR)

    taken = await rig.store.take_over("another", await rig.store.held_by_others("another"))

    assert [claim.turn.id for claim in taken] == [running.turn_id]
