"""Reading stored events: by id, by session, and as the memory an agent is given."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import orjson
from sqlalchemy import Connection, Select, bindparam, select

from turnkeeper.events.envelope import Event
from turnkeeper.store.rows import to_event
from turnkeeper.store.tables import events
from turnkeeper.turns.ports import NotFound

MAX_EVENTS: Final = 10_000
_MEMORY: Final = ("message.received", "message.completed", "tool.requested", "tool.completed", "context.compacted")
_TOOL_PAIR: Final = ("tool.requested", "tool.completed")


def event_by_id(conn: Connection, event_id: str) -> Event:
    """One event. Raises `NotFound`."""
    row = conn.execute(select(events).where(events.c.id == event_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no event {event_id}")
    return to_event(row)


def events_after(
    conn: Connection, session_id: str, *, after: int, limit: int, types: Sequence[str], turn_id: str | None
) -> tuple[Event, ...]:
    """At most `limit` (and `MAX_EVENTS`) events of a session with a higher sequence, ascending."""
    query = _events_after(types=bool(types), turn=turn_id is not None)
    wanted: dict[str, object] = {"session_key": session_id, "after": after, "most": min(limit, MAX_EVENTS)}
    if types:
        wanted["types"] = list(types)
    if turn_id is not None:
        wanted["turn_key"] = turn_id
    return tuple(to_event(row) for row in conn.execute(query, wanted).mappings())


@cache
def _events_after(*, types: bool, turn: bool) -> Select[Any]:
    query = select(events).where(
        events.c.session_id == bindparam("session_key"), events.c.sequence > bindparam("after")
    )
    if types:
        query = query.where(events.c.type.in_(bindparam("types", expanding=True)))
    if turn:
        query = query.where(events.c.turn_id == bindparam("turn_key"))
    return query.order_by(events.c.sequence).limit(bindparam("most"))


def history(conn: Connection, session_id: str, *, without: str | None, limit: int) -> tuple[Event, ...]:
    """The last `limit` events that were allowed, oldest first, tool calls only as whole pairs.

    Messages are stored after the Guardian allowed them, so that a stored message is an allowed one; a turn that still
    waits has none. Those of the turn `without` are left out, and what its subagents did among themselves.
    """
    query = select(events).where(
        events.c.session_id == session_id, events.c.type.in_(_MEMORY), events.c.thread_id.is_(None)
    )
    if without is not None:
        query = query.where(events.c.turn_id != without)
    rows = conn.execute(query.order_by(events.c.sequence.desc()).limit(min(limit, MAX_EVENTS))).mappings().all()
    remembered = [to_event(row) for row in reversed(rows)]
    return tuple(_from_a_beginning(_whole(_allowed(remembered))))


def _allowed(remembered: Sequence[Event]) -> list[Event]:
    """Of messages that are not an answer, summaries alone: what stands right before a `context.compacted`."""
    compacted = {event.sequence for event in remembered if event.type == "context.compacted"}
    return [
        event
        for event in remembered
        if event.type != "message.completed" or orjson.loads(event.data)["final"] or event.sequence + 1 in compacted
    ]


def _whole(remembered: Sequence[Event]) -> list[Event]:
    calls = {kind: {_call_id(event) for event in remembered if event.type == kind} for kind in _TOOL_PAIR}
    pairs = calls["tool.requested"] & calls["tool.completed"]
    return [event for event in remembered if event.type not in _TOOL_PAIR or _call_id(event) in pairs]


def _from_a_beginning(remembered: Sequence[Event]) -> Iterable[Event]:
    # Where the limit cut a turn in two, its rest would answer a question that nobody sees. A summary has it.
    first = next((index for index, event in enumerate(remembered) if _is_beginning(event)), None)
    return remembered if first is None else remembered[first:]


def _is_beginning(event: Event) -> bool:
    if event.type == "message.completed":
        return not orjson.loads(event.data)["final"]
    return event.type == "message.received"


def _call_id(event: Event) -> str:
    return str(orjson.loads(event.data)["tool_call_id"])
