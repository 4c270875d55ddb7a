"""A session's snapshot, and turns that bring or repeat things, on both databases (contract 2.2 and 2.3)."""

import asyncio
from dataclasses import replace

import pytest
from tests.contract.pause_samples import a_pause
from tests.contract.store_rig import AGENT, ANSWER, BY_APP, Rig, open_store, with_store
from tests.contract.test_turn_store_plans import Statement, plans_on_postgres, plans_on_sqlite, statements
from tests.contract.test_turn_store_races import with_two_stores

from turnkeeper.events.catalogue import TERMINAL_TYPES
from turnkeeper.turns.idempotency import IdempotencyKeyReused
from turnkeeper.turns.model import TurnStatus
from turnkeeper.turns.ports import NewSession, NewTurn, NotFound, SessionClosed
from turnkeeper.turns.posting import NewRetry, TurnNotTerminal
from turnkeeper.turns.snapshots import SessionSnapshot

LONE = NewTurn("", "hi", '"hi"', None, "{}", None, 3, None, None)


def shown(snapshot: SessionSnapshot) -> dict[str, TurnStatus]:
    views = (*snapshot.queued, *snapshot.recent, *((snapshot.active,) if snapshot.active else ()))
    return {view.turn.id: view.turn.status for view in views}


@with_store
async def test_a_snapshot_shows_the_turns_where_they_are(rig: Rig) -> None:
    session = await rig.session()
    done = await rig.post(session.id)
    fence = (await rig.claim()).fence
    await rig.start(fence)
    await rig.store.end(fence, ANSWER)
    active, first, second = [await rig.post(session.id) for _ in range(3)]
    await rig.start((await rig.claim()).fence)

    snapshot = await rig.store.snapshot(session.id)

    assert snapshot.active is not None
    assert snapshot.active.turn.id == active.id
    assert [view.turn.id for view in snapshot.queued] == [first.id, second.id]
    assert [view.blocked_by.turn_id for view in snapshot.queued if view.blocked_by] == [active.id] * 2
    assert [view.turn.id for view in snapshot.recent] == [done.id]
    assert snapshot.as_of == (await rig.events(session.id))[-1].sequence


@with_store
async def test_a_snapshot_has_the_open_questions_and_not_those_that_are_over(rig: Rig) -> None:
    fence = await rig.running()
    pause = a_pause(rig.clock, rig.ids, fence, wait_ms=1_000)
    await rig.store.pause(fence, pause, [])
    snapshot = await rig.store.snapshot(fence.session_id)
    assert pause.approval is not None
    assert [approval.id for approval in snapshot.approvals] == [pause.approval.id]
    assert snapshot.active is not None
    assert snapshot.active.pause is not None

    rig.clock.advance(1_000)

    assert (await rig.store.snapshot(fence.session_id)).approvals == ()


@with_store
async def test_there_is_no_snapshot_of_nothing(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await rig.store.snapshot("ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB")


def test_a_snapshot_sorts_no_ended_turns(store_url: str) -> None:
    async def scenario() -> list[Statement]:
        rig = await open_store(store_url)
        session = await rig.session()
        with statements() as seen:
            await rig.store.snapshot(session.id)
        await rig.store.close()
        return [found for found in seen if "ORDER BY turns.id DESC" in found[0]]

    seen = asyncio.run(scenario())
    plans = plans_on_sqlite if store_url.startswith("sqlite") else plans_on_postgres
    lines = [line for _, line in plans(store_url, seen)]
    assert lines
    assert not any("TEMP B-TREE" in line or line.strip().startswith("->  Sort") for line in lines)


@with_two_stores
async def test_a_snapshot_and_the_events_behind_it_are_the_whole_story(writer: Rig, reader: Rig) -> None:
    session = await writer.session()
    written = asyncio.create_task(lives(writer, session.id))
    snapshots: list[SessionSnapshot] = []
    while not written.done():
        snapshots.append(await reader.store.snapshot(session.id))
    await written
    events = await writer.events(session.id)

    for snapshot in snapshots:
        known, of_old = shown(snapshot), [event for event in events if event.sequence <= snapshot.as_of]
        posted = {event.turn_id for event in of_old if event.type == "turn.queued"}
        ended = {event.turn_id for event in of_old if event.type in TERMINAL_TYPES}
        assert known.keys() == posted
        assert {turn_id for turn_id, status in known.items() if status.terminal} == ended


async def lives(rig: Rig, session_id: str) -> None:
    """Some turns posted, run, ended and canceled."""
    for _ in range(6):
        await rig.post(session_id)
        waiting = await rig.post(session_id)
        fence = (await rig.claim()).fence
        await rig.start(fence)
        await rig.store.cancel_turn(waiting.id, mode="graceful", by=BY_APP)
        await rig.store.end(fence, ANSWER)


@with_store
async def test_a_lone_turn_has_a_session_that_takes_no_other_one(rig: Rig) -> None:
    agent = await rig.store.create_agent(AGENT)
    accepted = await rig.store.accept_alone(NewSession(agent.id, None, "{}", None), LONE)
    session = await rig.store.session(accepted.turn.session_id)
    assert (session.ephemeral, session.status, accepted.events_after) == (True, "closing", 1)
    with pytest.raises(SessionClosed):
        await rig.post(session.id)

    fence = (await rig.claim()).fence
    await rig.start(fence)
    await rig.store.end(fence, ANSWER)

    assert (await rig.store.snapshot(session.id)).recent[0].turn.status is TurnStatus.COMPLETED


@with_store
async def test_the_workspace_of_a_lone_turn_is_needed_until_its_session_is_closed(rig: Rig) -> None:
    agent = await rig.store.create_agent(AGENT)
    turn = (await rig.store.accept_alone(NewSession(agent.id, None, "{}", None), LONE)).turn
    kept = (await rig.session()).id
    await rig.store.cancel_turn(turn.id, mode="graceful", by=BY_APP)
    await rig.store.close_session(kept, mode="drain", by=BY_APP)
    await rig.store.close_ended(kept, "completed", None)
    sessions = [kept, turn.session_id]
    assert await rig.store.retention().without_workspace(sessions) == frozenset()

    await rig.store.close_ended(turn.session_id, "completed", None)

    assert await rig.store.retention().without_workspace(sessions) == {turn.session_id}


@with_two_stores
async def test_one_key_posted_with_new_sessions_at_the_same_time_is_one_turn_in_one_session(
    one: Rig, other: Rig
) -> None:
    agent = await one.store.create_agent(AGENT)
    session, new = NewSession(agent.id, None, "{}", None), replace(LONE, idempotency_key="k", fingerprint="f")

    accepted = await asyncio.gather(*[rig.store.accept_alone(session, new) for rig in (one, other) for _ in range(4)])

    assert len({found.turn.id for found in accepted}) == 1
    assert sum(not found.replayed for found in accepted) == 1
    with pytest.raises(IdempotencyKeyReused):
        await one.store.accept_alone(session, replace(new, fingerprint="g"))


@with_store
async def test_a_retry_is_a_new_turn_with_the_same_input(rig: Rig) -> None:
    session = await rig.session()
    first = await rig.post(session.id, metadata_json='{"n":1}')
    again = NewRetry(first.id, None, None, "k", "f")
    with pytest.raises(TurnNotTerminal):
        await rig.store.retry_turn(again)
    await rig.store.cancel_turn(first.id, mode="graceful", by=BY_APP)

    made, repeated = await rig.store.retry_turn(again), await rig.store.retry_turn(again)

    assert (made.turn.retry_of, made.turn.input_json, made.turn.metadata_json) == (first.id, '"hi"', '{"n":1}')
    assert (made.turn.session_id, repeated.turn.id, repeated.replayed) == (session.id, made.turn.id, True)
    queued = (await rig.store.events(session.id, after=0, limit=9, types=["turn.queued"]))[-1]
    assert f'"retry_of":"{first.id}"' in queued.data


@with_store
async def test_a_retry_of_a_lone_turn_is_a_lone_turn(rig: Rig) -> None:
    agent = await rig.store.create_agent(AGENT)
    first = (await rig.store.accept_alone(NewSession(agent.id, None, "{}", None), LONE)).turn
    await rig.store.cancel_turn(first.id, mode="graceful", by=BY_APP)

    made = (await rig.store.retry_turn(NewRetry(first.id, '{"n":2}', None, None, None))).turn

    assert (made.retry_of, made.metadata_json) == (first.id, '{"n":2}')
    assert made.session_id != first.session_id
    assert (await rig.store.session(made.session_id)).ephemeral
