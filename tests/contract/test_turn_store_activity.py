"""What a session does, told in the transaction that makes it so (contract 2.2 and 10.4)."""

from typing import Final

import orjson
from tests.contract.pause_samples import a_pause
from tests.contract.store_rig import ACTIVITY, AGENT, ANSWER, BY_APP, Rig, has_started, is_starting, with_store

from turnkeeper.turns.approvals import ApprovalAnswer, DecidedBy
from turnkeeper.turns.model import Fence
from turnkeeper.turns.ports import NewSession, NewTurn

YES: Final = ApprovalAnswer("approve", DecidedBy("api_key", "key_1"))


async def told(rig: Rig, session_id: str) -> list[tuple[str, str | None, int]]:
    events = [event for event in await rig.events(session_id) if event.type in ACTIVITY]
    said = [orjson.loads(event.data) for event in events]
    pairs = zip(events, said, strict=True)
    return [(event.type.partition(".")[2], data["active_turn_id"], data["queue_depth"]) for event, data in pairs]


async def paused(rig: Rig) -> Fence:
    fence = await rig.running()
    await rig.store.pause(fence, a_pause(rig.clock, rig.ids, fence), [])
    return fence


@with_store
async def test_a_session_is_busy_from_its_first_turn_to_its_last(rig: Rig) -> None:
    fence = await rig.running()
    await rig.post(fence.session_id)
    await rig.store.end(fence, ANSWER)
    other = await rig.starting()
    await rig.store.started(other, [has_started(other.turn_id)])
    await rig.store.end(other, ANSWER)

    assert await told(rig, fence.session_id) == [("busy", None, 1), ("idle", None, 0)]


@with_store
async def test_the_word_about_the_session_follows_that_about_the_turn(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.end(fence, ANSWER)

    types = [event.type for event in await rig.events(fence.session_id)]
    assert types[1:3] == ["turn.queued", "session.busy"]
    assert types[-2:] == ["turn.completed", "session.idle"]
    assert (await rig.store.turn(fence.turn_id)).last_sequence == len(types) - 1


@with_store
async def test_a_pause_and_its_end_are_told_with_the_turns_that_wait(rig: Rig) -> None:
    fence = await paused(rig)
    await rig.post(fence.session_id)
    (asked,) = (await rig.store.snapshot(fence.session_id)).approvals
    await rig.store.decide_approval(asked.id, YES)
    await rig.store.resume(fence)

    assert await told(rig, fence.session_id) == [
        ("busy", None, 1),
        ("paused", fence.turn_id, 0),
        ("busy", fence.turn_id, 1),
    ]


@with_store
async def test_a_parked_turn_that_is_answered_makes_its_session_busy(rig: Rig) -> None:
    fence = await paused(rig)
    await rig.store.park(fence, [])
    (asked,) = (await rig.store.snapshot(fence.session_id)).approvals
    await rig.store.decide_approval(asked.id, YES)

    types = [event.type for event in await rig.events(fence.session_id)]
    assert types[-2:] == ["turn.resumed", "session.busy"]


@with_store
async def test_a_canceled_pause_leaves_the_session_to_the_next_turn_or_idle(rig: Rig) -> None:
    fence = await paused(rig)
    await rig.store.park(fence, [])
    waiting = await rig.post(fence.session_id)
    await rig.store.cancel_turn(fence.turn_id, mode="graceful", by=BY_APP)
    await rig.store.cancel_turn(waiting.id, mode="graceful", by=BY_APP)

    assert (await told(rig, fence.session_id))[2:] == [("busy", None, 1), ("idle", None, 0)]


@with_store
async def test_a_session_that_is_interrupted_is_never_said_to_be_idle(rig: Rig) -> None:
    fence = await paused(rig)
    await rig.store.park(fence, [])
    await rig.post(fence.session_id, on_busy="interrupt")

    assert [word for word, _, _ in await told(rig, fence.session_id)] == ["busy", "paused", "busy"]


@with_store
async def test_a_canceled_turn_behind_a_pause_changes_nothing(rig: Rig) -> None:
    fence = await paused(rig)
    waiting = await rig.post(fence.session_id)
    await rig.store.cancel_turn(waiting.id, mode="graceful", by=BY_APP)

    assert [word for word, _, _ in await told(rig, fence.session_id)] == ["busy", "paused"]


@with_store
async def test_a_session_that_closes_says_so_and_no_more(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.close_session(fence.session_id, mode="drain", by=BY_APP)
    await rig.store.end(fence, ANSWER)

    assert [word for word, _, _ in await told(rig, fence.session_id)] == ["busy"]


@with_store
async def test_a_session_of_a_lone_turn_is_closing_from_its_beginning(rig: Rig) -> None:
    agent = await rig.store.create_agent(AGENT)
    lone = NewTurn("", "hi", '"hi"', None, "{}", None, 3, None, None)
    turn = (await rig.store.accept_alone(NewSession(agent.id, None, "{}", None), lone)).turn
    fence = (await rig.claim()).fence
    await rig.store.starting(fence, [is_starting(turn.id)])

    assert await told(rig, turn.session_id) == []
