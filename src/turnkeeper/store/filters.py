"""What narrows a list: the project of who asks, the state of things, when they were made (contract 2.2 and 2.3)."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Column, ColumnElement, exists, select

from turnkeeper.store.pages import within
from turnkeeper.store.tables import IS_ACTIVE, IS_QUEUED, sessions, turns
from turnkeeper.turns.ports import SessionFilter, SessionView, TurnFilter


def of_sessions(wanted: SessionFilter | None) -> Sequence[ColumnElement[bool]]:
    """Conditions on rows of `sessions`; those that were deleted are in no list."""
    kept = sessions.c.delete_requested_at.is_(None)
    if wanted is None:
        return [kept]
    made = _made(sessions.c.created_at, wanted.created_after, wanted.created_before)
    status = [] if wanted.status is None else _with_status(wanted.status)
    return [kept, *within(wanted.reach, sessions.c.project_id, sessions.c.agent_id), *status, *made]


def of_turns(wanted: TurnFilter | None) -> Sequence[ColumnElement[bool]]:
    """Conditions on rows of `turns`; those of deleted sessions are in no list."""
    gone = select(sessions.c.id).where(sessions.c.id == turns.c.session_id, sessions.c.delete_requested_at.is_not(None))
    kept = ~gone.exists()
    if wanted is None:
        return [kept]
    made = _made(turns.c.created_at, wanted.created_after, wanted.created_before)
    status = [] if wanted.status is None else [turns.c.status == wanted.status.value]
    reason = [] if wanted.stop_reason is None else [turns.c.stop_reason == wanted.stop_reason.value]
    return [kept, *within(wanted.reach, turns.c.project_id, turns.c.agent_id), *status, *reason, *made]


def at_rest() -> tuple[ColumnElement[bool], ...]:
    """Conditions on rows of `sessions` that have nothing queued, active or paused."""
    of_session = turns.c.session_id == sessions.c.id
    return ~exists().where(of_session, IS_QUEUED), ~exists().where(of_session, IS_ACTIVE)


def _with_status(status: SessionView) -> list[ColumnElement[bool]]:
    if status in {"closing", "closed"}:
        return [sessions.c.status == status]
    of_session = turns.c.session_id == sessions.c.id
    is_open, paused = sessions.c.status == "open", exists().where(of_session, IS_ACTIVE, turns.c.status == "paused")
    has_turns = exists().where(of_session, IS_QUEUED) | exists().where(of_session, IS_ACTIVE)
    if status == "idle":
        return [is_open, ~has_turns]
    return [is_open, paused] if status == "paused" else [is_open, has_turns, ~paused]


def _made(created_at: Column[datetime], after: datetime | None, before: datetime | None) -> list[ColumnElement[bool]]:
    later = [] if after is None else [created_at > after]
    return later if before is None else [*later, created_at < before]
