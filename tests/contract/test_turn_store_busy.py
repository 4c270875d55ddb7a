"""What a new turn does when the session is busy, and what becomes of one that does not start in time (contract 7)."""

import asyncio
from datetime import timedelta

import orjson
import pytest
from tests.contract.store_rig import ANSWER, BY_APP, UNPAID, Rig, a_step, is_starting, open_store, with_store

from turnkeeper.store.tx import StoreLimits
from turnkeeper.turns.model import StopReason, Turn, TurnStatus
from turnkeeper.turns.ports import QueueFull
from turnkeeper.turns.queueing import SessionBusy


async def interrupt(rig: Rig, session_id: str) -> Turn:
    return await rig.post(session_id, on_busy="interrupt", api_key_id="key_1")


@with_store
async def test_a_turn_that_would_not_wait_is_told_whom_it_met(rig: Rig) -> None:
    session = await rig.session()
    waiting = await rig.post(session.id, on_busy="reject")

    with pytest.raises(SessionBusy) as while_waiting:
        await rig.post(session.id, on_busy="reject")
    fence = await rig.starting()
    with pytest.raises(SessionBusy) as while_starting:
        await rig.post(session.id, on_busy="reject")

    assert while_waiting.value.detail == while_starting.value.detail == {"active_turn_id": waiting.id}
    await rig.store.cancel_turn(fence.turn_id, mode="immediate", by=BY_APP)
    assert (await rig.types(session.id)).count("turn.queued") == 1


@with_store
async def test_an_idle_session_takes_a_turn_that_would_not_wait(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.end(fence, ANSWER)

    turn = await rig.post(fence.session_id, on_busy="reject")

    assert (turn.status, turn.on_busy) == (TurnStatus.QUEUED, "reject")


@with_store
async def test_an_interrupting_turn_goes_before_those_that_wait_and_ends_the_active_one(rig: Rig) -> None:
    fence = await rig.running()
    waiting = [await rig.post(fence.session_id) for _ in range(2)]

    urgent = await interrupt(rig, fence.session_id)

    active = await rig.store.turn(fence.turn_id)
    assert (active.cancel_mode, active.cancel_stop_reason) == ("graceful", StopReason.SUPERSEDED)
    assert active.canceled_by is not None
    assert (active.canceled_by.type, active.canceled_by.id) == ("api_key", "key_1")
    positions = [(await rig.store.turn(turn.id)).queue_position for turn in (urgent, *waiting)]
    assert positions == [0, 1, 2]
    await rig.store.end(fence, ANSWER)
    assert await order_of(rig, 3) == [urgent.id, *(turn.id for turn in waiting)]


@with_store
async def test_a_turn_that_was_interrupted_while_it_was_asked_about_never_starts(rig: Rig) -> None:
    """Row 2: a worker had it, so it could not be overtaken, and its place is the new turn's already."""
    session = await rig.session()
    first = await rig.post(session.id)
    fence = (await rig.claim()).fence
    urgent = await interrupt(rig, session.id)

    asked = await rig.store.starting(fence, [is_starting(first.id)])

    assert (asked.status, asked.cancel_stop_reason) == (TurnStatus.QUEUED, StopReason.SUPERSEDED)
    assert "turn.starting" not in await rig.types(session.id)
    await rig.store.end(fence, UNPAID)
    assert await order_of(rig, 1) == [urgent.id]


async def order_of(rig: Rig, count: int) -> list[str]:
    ran: list[str] = []
    for _ in range(count):
        fence = (await rig.claim()).fence
        ran.append(fence.turn_id)
        await rig.store.end(fence, UNPAID)
    return ran


@with_store
async def test_a_turn_that_nobody_has_begun_is_not_ended_but_overtaken(rig: Rig) -> None:
    session = await rig.session()
    first = await rig.post(session.id)

    second, third = [await interrupt(rig, session.id) for _ in range(2)]

    assert (await rig.store.turn(first.id)).cancel_mode is None
    assert await order_of(rig, 3) == [third.id, second.id, first.id]


@with_store
async def test_a_turn_that_waits_for_its_next_attempt_is_superseded_at_once(rig: Rig) -> None:
    """Row 12, of a turn that nobody holds."""
    fence = await rig.running(max_attempts=2)
    await rig.retry(fence)
    behind = await rig.post(fence.session_id)

    urgent = await interrupt(rig, fence.session_id)

    ended = await rig.store.turn(fence.turn_id)
    assert (ended.status, ended.stop_reason) == (TurnStatus.CANCELED, StopReason.SUPERSEDED)
    assert await order_of(rig, 2) == [urgent.id, behind.id]


@with_store
async def test_a_waiting_turn_names_the_turn_at_the_front_whatever_its_state(rig: Rig) -> None:
    session = await rig.session()
    front = await rig.post(session.id)
    told: list[object] = []

    for step in (rig.claim, None):
        turn = await rig.post(session.id)
        event = next(e for e in await rig.events(session.id) if e.turn_id == turn.id)
        told.append(orjson.loads(event.data)["blocked_by"])
        if step is not None:
            fence = (await step()).fence
            await rig.start(fence)
    blocker = await rig.store.blocker(session.id)

    assert told == [
        {"turn_id": front.id, "reason": "queued", "approval_ids": []},
        {"turn_id": front.id, "reason": "running", "approval_ids": []},
    ]
    assert blocker is not None
    assert (blocker.turn_id, blocker.reason) == (front.id, "running")


@with_store
async def test_a_turn_that_has_not_started_in_time_fails_wherever_it_waits(rig: Rig) -> None:
    """Row 3."""
    fence = await rig.running()
    soon = rig.clock.now() + timedelta(seconds=5)
    late = await rig.post(fence.session_id, start_by=soon)
    patient = await rig.post(fence.session_id, start_by=soon + timedelta(seconds=5))

    assert await rig.store.expire_starts(10) == 0
    rig.clock.advance(5_000)
    assert await rig.store.expire_starts(10) == 1

    ended = await rig.store.turn(late.id)
    assert (ended.status, ended.stop_reason) == (TurnStatus.FAILED, StopReason.QUEUE_EXPIRED)
    assert ended.error is not None
    assert ended.error.retryable
    assert (await rig.store.turn(patient.id)).status is TurnStatus.QUEUED
    assert await rig.store.pending_steps(fence.session_id) == ()


@with_store
async def test_a_turn_whose_window_a_dead_worker_opened_closes_it_when_it_expires(rig: Rig) -> None:
    """Row 3 with amendment 2."""
    turn = await rig.post((await rig.session()).id, start_by=rig.clock.now() + timedelta(seconds=1))
    fence = (await rig.claim("gone")).fence
    start = a_step(rig.ids, turn.id, "steps/turnStart", in_window=False)
    await rig.store.ask_step(turn.session_id, start, fence, [])
    await rig.store.release(fence)

    rig.clock.advance(1_000)
    await rig.store.expire_starts(10)

    steps = await rig.store.steps(turn.session_id, turn_id=turn.id)
    assert [(step.method, step.outcome) for step in steps] == [("steps/turnStart", None), ("steps/turnEnd", "error")]


@with_store
async def test_a_turn_that_somebody_holds_does_not_expire_in_the_queue(rig: Rig) -> None:
    await rig.post((await rig.session()).id, start_by=rig.clock.now())
    await rig.claim()

    assert await rig.store.expire_starts(10) == 0


async def _full_for_one_key(url: str) -> None:
    rig = await open_store(url, limits=StoreLimits(key_queue_depth=2))
    sessions = [await rig.session() for _ in range(3)]
    for session in sessions[:2]:
        await rig.post(session.id, api_key_id="key_1")
    with pytest.raises(QueueFull) as refused:
        await rig.post(sessions[2].id, api_key_id="key_1")
    await rig.post(sessions[2].id, api_key_id="key_2")
    await rig.starting()
    await rig.post(sessions[2].id, api_key_id="key_1")
    await rig.store.close()
    assert refused.value.detail == {"key_queue_depth": 2, "limit": 2}


def test_a_key_with_too_many_waiting_turns_posts_no_more(store_url: str) -> None:
    asyncio.run(_full_for_one_key(store_url))
