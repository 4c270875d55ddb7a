"""How long sessions are kept, on both databases (contract 14)."""

from datetime import timedelta

import pytest
from tests.contract.store_rig import ANSWER, BY_APP, Rig, with_store

from turnkeeper.store import session_retention as retention
from turnkeeper.turns.model import Session
from turnkeeper.turns.ports import PageRequest
from turnkeeper.turns.retention import SessionChange

MONTH_MS = int(timedelta(days=30).total_seconds() * 1000)


async def kept(rig: Rig) -> set[str]:
    return {session.id for session in (await rig.store.sessions(PageRequest())).items}


async def closed(rig: Rig) -> Session:
    """A session that was deleted and has closed."""
    session = await rig.session(title="secret")
    await rig.post(session.id)
    await rig.store.retention().delete_session(session.id, by=BY_APP)
    await rig.store.close_ended(session.id, "cancelled", None)
    return session


@with_store
async def test_a_session_goes_when_its_time_is_over_and_not_before(rig: Rig) -> None:
    usual, short = await rig.session(), await rig.session(retention_days=1)
    rig.clock.advance(MONTH_MS - 1)
    await rig.delete_expired(100)
    assert await kept(rig) == {usual.id}
    rig.clock.advance(1)
    await rig.delete_expired(100)
    assert await kept(rig) == set()
    assert (await rig.store.session(short.id)).status == "closing"


@with_store
async def test_activity_and_open_turns_keep_a_session(rig: Rig) -> None:
    asked, open_ = await rig.session(retention_days=1), await rig.session(retention_days=1)
    await rig.post(open_.id)
    rig.clock.advance(MONTH_MS)
    await rig.store.retention().change_session(asked.id, SessionChange(title="used"))
    await rig.delete_expired(100)
    assert await kept(rig) == {asked.id, open_.id}


@with_store
async def test_a_sweep_looks_at_a_bounded_number_and_goes_on_where_it_was(rig: Rig) -> None:
    sessions = [(await rig.session()).id for _ in range(5)]
    rig.clock.advance(MONTH_MS)
    last = await rig.delete_expired(2)
    assert last == sessions[1]
    assert await kept(rig) == set(sessions[2:])
    assert await rig.delete_expired(3, after=last) == sessions[4]
    assert await rig.delete_expired(3, after=sessions[4]) is None


@with_store
async def test_a_running_turn_is_asked_to_stop_and_nothing_is_erased_before_it_has(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.retention().delete_session(fence.session_id, by=BY_APP)
    assert await rig.store.retention().erase(100) == 0
    assert (await rig.store.turn(fence.turn_id)).cancel_stop_reason == "session_closed"
    assert await rig.events(fence.session_id) != ()
    await rig.store.end(fence, ANSWER)


@with_store
async def test_erasing_ends_once_and_leaves_a_tombstone(rig: Rig) -> None:
    session = await closed(rig)
    assert await rig.store.retention().erase(100) == 1
    assert await rig.store.retention().erase(100) == 0
    left = await rig.store.session(session.id)
    assert (left.title, left.status, left.created_at) == (None, "closed", session.created_at)
    assert await rig.events(session.id) == ()
    assert await rig.store.retention().without_workspace([session.id, "ses_other"]) == {session.id}


def test_a_long_session_is_erased_in_bounded_parts(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "EVENTS_AT_ONCE", 2)

    @with_store
    async def scenario(rig: Rig) -> None:
        session = await closed(rig)
        assert len(await rig.events(session.id)) > 2
        assert await rig.store.retention().erase(100) == 1
        assert await rig.events(session.id) == ()

    scenario(store_url)
