"""From an event to the endpoints that want it, in the transaction that writes the event (contract 12).

INVARIANT: there is no event of a session without the deliveries it owes, and no delivery without its event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

import orjson
from sqlalchemy import Connection, RowMapping, bindparam, select

from turnkeeper.clock import from_epoch_ms
from turnkeeper.events.envelope import Event
from turnkeeper.events.webhooks.endpoints import DeliveryStatus, wants
from turnkeeper.ids import IdSource
from turnkeeper.store.statements import add
from turnkeeper.store.tables import sessions
from turnkeeper.store.webhook_tables import webhook_deliveries, webhook_endpoints

WEBHOOK_TOPIC: Final = "webhooks"
AT_ONCE: Final = from_epoch_ms(0)
"""When a first try is due: at no time that the clock of whoever writes the event could be ahead of."""

_ENABLED: Final = select(
    webhook_endpoints.c.id, webhook_endpoints.c.types_json, webhook_endpoints.c.agent_ids_json
).where(webhook_endpoints.c.enabled, webhook_endpoints.c.project_id == bindparam("project_key"))
_AGENT: Final = select(sessions.c.agent_id).where(sessions.c.id == bindparam("session_key"))


@dataclass(frozen=True, slots=True)
class Owed:
    """The part of an event that decides who gets it."""

    event_id: str
    event_type: str
    session_id: str | None
    sequence: int | None


def owed_of(event: Event) -> Owed:
    """An event of a session."""
    return Owed(event.id, event.type, event.session_id, event.sequence)


def owe_deliveries(
    conn: Connection, ids: IdSource, now: datetime, project_id: str, owed: Sequence[Owed], *, but_not: str | None = None
) -> bool:
    """Writes a delivery for each event and each endpoint that wants it; whether there was any.

    `but_not` is the endpoint that an event is about: it hears nothing of its own failures.
    """
    endpoints = conn.execute(_ENABLED, {"project_key": project_id}).mappings().all()
    if not endpoints or not owed:
        return False
    agents: dict[str | None, str | None] = {None: None}
    rows: list[dict[str, object]] = []
    for endpoint in endpoints:
        if endpoint["id"] == but_not:
            continue
        types, agent_ids = _texts(endpoint["types_json"]), _texts(endpoint["agent_ids_json"])
        for one in owed:
            agent_id = _agent_of(conn, one.session_id, agents) if agent_ids else None
            if wants(types, agent_ids, one.event_type, agent_id):
                rows.append(delivery_row(ids, now, str(endpoint["id"]), one))
    if rows:
        add(conn, webhook_deliveries, rows)
    return bool(rows)


def delivery_row(ids: IdSource, now: datetime, endpoint_id: str, owed: Owed) -> dict[str, object]:
    """A delivery that is due at once."""
    return {
        "id": ids.new("whd"),
        "endpoint_id": endpoint_id,
        "event_id": owed.event_id,
        "event_type": owed.event_type,
        "session_id": owed.session_id,
        "sequence": owed.sequence,
        "status": DeliveryStatus.PENDING.value,
        "attempts": 0,
        "tries": 0,
        "next_at": AT_ONCE,
        "created_at": now,
    }


def _agent_of(conn: Connection, session_id: str | None, known: dict[str | None, str | None]) -> str | None:
    if session_id not in known:
        known[session_id] = conn.execute(_AGENT, {"session_key": session_id}).scalar_one_or_none()
    return known[session_id]


def _texts(json: str) -> tuple[str, ...]:
    return tuple(cast("list[str]", orjson.loads(json)))


def endpoint_texts(row: RowMapping) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The `types` and `agent_ids` of an endpoint's row."""
    return _texts(row["types_json"]), _texts(row["agent_ids_json"])
