"""Who holds a turn: claims, fences, leases, take-over (house rule 2)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import orjson
import pytest
from tests.contract.store_rig import (
    ANSWER,
    BY_APP,
    CALL,
    Rig,
    a_note,
    a_step,
    has_started,
    is_starting,
    with_store,
)

from turnkeeper.turns.lifecycle import MAX_START_TRIES, IllegalTransition
from turnkeeper.turns.model import Fence, StepAnswer, StopReason, Submission, TurnStatus
from turnkeeper.turns.ports import StaleFence

WRITES: dict[str, Callable[[Rig, Fence], Awaitable[object]]] = {
    "renew": lambda rig, fence: rig.store.renew(fence),
    "release": lambda rig, fence: rig.store.release(fence),
    "starting": lambda rig, fence: rig.store.starting(fence, [is_starting(fence.turn_id)]),
    "started": lambda rig, fence: rig.store.started(fence, [has_started(fence.turn_id)]),
    "retry_start": lambda rig, fence: rig.store.retry_start(fence),
    "record": lambda rig, fence: rig.store.record(fence, [a_note(fence.turn_id)]),
    "record nothing": lambda rig, fence: rig.store.record(fence, []),
    "submit": lambda rig, fence: rig.store.submit(fence, Submission(9, True, "1", ()), []),
    "end": lambda rig, fence: rig.store.end(fence, ANSWER),
    "reserve": lambda rig, fence: rig.store.reserve(fence, input_tokens=1, max_output_tokens=300),
    "tool_ran": lambda rig, fence: rig.store.tool_ran(fence),
    "ask_step": lambda rig, fence: rig.store.ask_step(
        fence.session_id, a_step(rig.ids, fence.turn_id), fence, [a_note(fence.turn_id)]
    ),
}


@with_store
async def test_a_worker_with_an_old_fence_writes_nothing(rig: Rig) -> None:
    other = await rig.session()
    fence = await rig.running()
    before = (await rig.store.turn(fence.turn_id), await rig.types(fence.session_id))
    old = replace(fence, number=fence.number - 1), replace(fence, owner="thief"), replace(fence, session_id=other.id)

    for name, write in WRITES.items():
        for stale in old:
            with pytest.raises(StaleFence):
                await write(rig, stale)
            assert (await rig.store.turn(fence.turn_id), await rig.types(fence.session_id)) == before, name

    assert await rig.store.steps(fence.session_id) == ()
    assert await rig.types(other.id) == ["session.created"]


@with_store
async def test_an_answer_with_an_old_fence_leaves_the_step_pending(rig: Rig) -> None:
    fence = await rig.running()
    step = await rig.store.ask_step(fence.session_id, a_step(rig.ids, fence.turn_id), fence, [])

    answer, stale = StepAnswer("answered", "allow", "h"), replace(fence, number=7)
    with pytest.raises(StaleFence):
        await rig.store.answer_step(fence.session_id, step.request_id, answer, stale, [])

    assert [kept.state for kept in await rig.store.pending_steps(fence.session_id)] == ["pending"]
    assert (await rig.store.session(fence.session_id)).witnessed_head is None


@with_store
async def test_a_lease_that_has_moved_since_it_was_seen_is_not_taken(rig: Rig) -> None:
    fence = await rig.running()
    seen = await rig.store.held_by_others("other")
    await rig.store.renew(fence)

    assert await rig.store.take_over("other", seen) == ()

    await rig.store.record(fence, [a_note(fence.turn_id)])


@with_store
async def test_a_turn_whose_lease_stands_still_is_taken_over_once_with_a_new_fence(rig: Rig) -> None:
    fence = await rig.running()
    seen = await rig.store.held_by_others("other")

    (claim,) = await rig.store.take_over("other", seen)

    assert (claim.fence.owner, claim.fence.number) == ("other", fence.number + 1)
    assert claim.turn.status is TurnStatus.RUNNING
    with pytest.raises(StaleFence):
        await rig.store.record(fence, [a_note(fence.turn_id)])
    assert await rig.store.take_over("a third", seen) == ()
    assert await rig.store.held_by_others("other") == ()


@with_store
async def test_a_clock_that_is_set_makes_nobodys_lease_look_over(rig: Rig) -> None:
    fence = await rig.running()
    before = await rig.store.held_by_others("other")

    rig.clock.jump(3_600_000)
    assert await rig.store.held_by_others("other") == before
    await rig.store.renew(fence)

    assert [hold.beats for hold in await rig.store.held_by_others("other")] == [before[0].beats + 1]


@with_store
async def test_whatever_a_worker_left_is_taken_over_in_one_go(rig: Rig) -> None:
    await rig.running("before the crash")
    await rig.running("after")
    await rig.post((await rig.session()).id)
    await rig.claim("before the crash")

    taken = await rig.store.take_over("after", await rig.store.held_by_others("after"))

    assert {claim.turn.status for claim in taken} == {TurnStatus.RUNNING, TurnStatus.QUEUED}
    assert {claim.fence.owner for claim in taken} == {"after"}


@with_store
async def test_a_claim_that_is_given_back_is_claimed_again(rig: Rig) -> None:
    session = await rig.session()
    turn = await rig.post(session.id)
    fence = (await rig.claim("one")).fence

    await rig.store.release(fence)

    again = await rig.claim("two")
    assert (again.turn.id, again.fence.number) == (turn.id, fence.number + 1)
    with pytest.raises(StaleFence):
        await rig.store.release(fence)


@with_store
async def test_a_turn_that_starts_cannot_be_given_back(rig: Rig) -> None:
    await rig.post((await rig.session()).id)
    fence = await rig.starting()

    with pytest.raises(IllegalTransition):
        await rig.store.release(fence)


@with_store
async def test_a_lost_start_is_tried_again_with_a_new_fence_but_not_for_ever(rig: Rig) -> None:
    await rig.post((await rig.session()).id)
    fence = await rig.starting()

    for tries in range(2, MAX_START_TRIES + 1):
        turn = await rig.store.retry_start(fence)
        assert (turn.tries, turn.fence, turn.attempt) == (tries, fence.number + 1, 0)
        fence = replace(fence, number=turn.fence)

    with pytest.raises(IllegalTransition):
        await rig.store.retry_start(fence)


@with_store
async def test_a_claimed_turn_is_asked_to_stop_and_its_worker_sees_it(rig: Rig) -> None:
    fence = await rig.running()

    turn, effect = await rig.store.cancel_turn(fence.turn_id, mode="graceful", by=BY_APP)

    assert (effect, turn.status, turn.stop_reason) == ("requested", TurnStatus.RUNNING, None)
    seen = await rig.store.renew(fence)
    assert (seen.cancel_mode, seen.canceled_by, seen.cancel_stop_reason) == ("graceful", BY_APP, StopReason.CANCELED)
    assert seen.cancel_requested_at == rig.clock.now()
    assert {"queue", fence.session_id} <= set(rig.heard.topics)


@with_store
async def test_asking_again_says_nothing_new_unless_it_is_immediate(rig: Rig) -> None:
    fence = await rig.running()
    for mode in ("graceful", "graceful", "immediate", "graceful", "immediate"):
        await rig.store.cancel_turn(fence.turn_id, mode=mode, by=BY_APP)  # pyright: ignore[reportArgumentType] (both are modes)

    asked = [event for event in await rig.events(fence.session_id) if event.type == "turn.cancel_requested"]

    assert [orjson.loads(event.data)["mode"] for event in asked] == ["graceful", "immediate"]
    assert [orjson.loads(event.data)["deadline"][-7:] for event in asked] == ["10.000Z", "00.000Z"]
    assert (await rig.store.turn(fence.turn_id)).cancel_mode == "immediate"


@with_store
async def test_canceling_an_ended_turn_changes_nothing(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.end(fence, ANSWER)
    before = await rig.types(fence.session_id)

    turn, effect = await rig.store.cancel_turn(fence.turn_id, mode="immediate", by=BY_APP)

    assert (effect, turn.status, turn.canceled_by) == ("unchanged", TurnStatus.COMPLETED, None)
    assert await rig.types(fence.session_id) == before


@with_store
async def test_what_was_used_is_charged_however_late_it_is_told(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.reserve(fence, input_tokens=100, max_output_tokens=500)
    (claim,) = await rig.store.take_over("other", await rig.store.held_by_others("other"))

    await rig.store.settle(fence, CALL)

    assert "model.called" not in await rig.types(fence.session_id)
    assert (await rig.store.turn(claim.turn.id)).usage.by_model[0].output_tokens == 50
