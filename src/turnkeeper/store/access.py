"""API keys, and whose things are (contract 2.9 and 13).

Answers for one read at the door that says all there is to know of a request before it is looked into: its key, and the
project and agent of every id in its path.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Column,
    Connection,
    FromClause,
    RowMapping,
    Select,
    Table,
    and_,
    bindparam,
    insert,
    or_,
    select,
    update,
)

from turnkeeper.events.administration import api_key_changed
from turnkeeper.store.budget_tables import budgets
from turnkeeper.store.file_tables import artifacts, files
from turnkeeper.store.pages import load_page
from turnkeeper.store.pause_tables import approvals
from turnkeeper.store.rows import to_json, to_key
from turnkeeper.store.secret_tables import secrets
from turnkeeper.store.skill_tables import skills
from turnkeeper.store.statements import find
from turnkeeper.store.tables import agents, api_keys, events, idempotency_keys, sessions, turns
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_tables import project_events, webhook_deliveries, webhook_endpoints
from turnkeeper.store.webhooks import append_project_event
from turnkeeper.turns.access import Admission, KeyChange, Named, NewKey
from turnkeeper.turns.model import ApiKey, KeyLimits
from turnkeeper.turns.ports import NotFound, Page, PageRequest

MAX_KEYS: Final = 1_000

_WITH_SECRET: Final = select(api_keys).where(
    or_(
        api_keys.c.secret_sha256 == bindparam("secret"),
        and_(api_keys.c.previous_sha256 == bindparam("secret"), api_keys.c.previous_until > bindparam("now")),
    )
)


_ID: Final[BindParameter[str]] = bindparam("named_id")


def _of_session(of: FromClause, named_id: Column[str]) -> Select[*tuple[Any, ...]]:
    query = select(sessions.c.project_id, sessions.c.agent_id, sessions.c.id, sessions.c.delete_requested_at)
    return query.select_from(of).where(named_id == _ID)


def _of_project(
    project_id: Column[str], named_id: Column[str], agent_id: Column[str] | None = None
) -> Select[*tuple[Any, ...]]:
    agent = () if agent_id is None else (agent_id,)
    return select(project_id, *agent).where(named_id == _ID)


def _in_session(table: Table) -> FromClause:
    return table.join(sessions, sessions.c.id == table.c.session_id)


_NAMED: Final[Mapping[str, tuple[Select[*tuple[Any, ...]], ...]]] = {
    "agt": (_of_project(agents.c.project_id, agents.c.id, agents.c.id),),
    "ses": (_of_session(sessions, sessions.c.id),),
    "trn": (_of_session(_in_session(turns), turns.c.id),),
    "apr": (_of_session(_in_session(approvals), approvals.c.id),),
    "evt": (
        _of_session(_in_session(events), events.c.id),
        _of_project(project_events.c.project_id, project_events.c.id),
    ),
    "whe": (_of_project(webhook_endpoints.c.project_id, webhook_endpoints.c.id),),
    "whd": (
        _of_project(webhook_endpoints.c.project_id, webhook_deliveries.c.id).where(
            webhook_endpoints.c.id == webhook_deliveries.c.endpoint_id
        ),
    ),
    "bud": (_of_project(budgets.c.project_id, budgets.c.id),),
    "fil": (_of_project(files.c.project_id, files.c.id),),
    "art": (_of_session(_in_session(artifacts), artifacts.c.id),),
    "key": (_of_project(api_keys.c.project_id, api_keys.c.id),),
    "sec": (_of_project(secrets.c.project_id, secrets.c.id),),
    "skl": (_of_project(skills.c.project_id, skills.c.id),),
}
"""How to find whose a thing is, by the prefix of its id. What is not here is nobody's."""


def admit(conn: Connection, secret_sha256: str, ids: Collection[str], now: datetime) -> Admission | None:
    """The key with this secret, and whose the ids are."""
    key = key_with(conn, secret_sha256, now)
    return None if key is None else Admission(key, {named_id: _named(conn, named_id) for named_id in ids})


def key_with(conn: Connection, secret_sha256: str, now: datetime) -> ApiKey | None:
    """The key that has this secret, or had it before a rotation whose overlap is not over."""
    row = conn.execute(_WITH_SECRET, {"secret": secret_sha256, "now": now}).mappings().one_or_none()
    # Under the secret that was shown: a stream that was opened with the older one ends with it.
    return None if row is None else replace(to_key(row), secret_sha256=secret_sha256)


def active_key(conn: Connection, secret_sha256: str, now: datetime) -> ApiKey | None:
    """The same, unless it was revoked or has expired."""
    key = key_with(conn, secret_sha256, now)
    return key if key is not None and key.is_valid(now) else None


def knows_request(conn: Connection, project_id: str, idempotency_key: str) -> bool:
    """Whether the project has used the Idempotency-Key."""
    return find(conn, idempotency_keys, project_id=project_id, key=idempotency_key) is not None


def used(tx: Tx, key_id: str) -> None:
    """Notes that the key was used now."""
    tx.conn.execute(update(api_keys).where(api_keys.c.id == key_id).values(last_used_at=tx.now))


def make_key(tx: Tx, new: NewKey, *, actor: str | None) -> ApiKey:
    """The key, with its `api_key.created`."""
    values: dict[str, object] = {
        "id": tx.ids.new("key"),
        "name": new.name,
        "secret_sha256": new.secret_sha256,
        "created_at": tx.now,
        "project_id": new.project_id,
        "scopes_json": to_json(new.scopes),
        "agent_ids_json": to_json(new.agent_ids),
        **_limits(new.limits),
        "expires_at": new.expires_at,
    }
    key = to_key(tx.conn.execute(insert(api_keys).returning(api_keys), values).mappings().one())
    _tell(tx, "api_key.created", key, actor)
    return key


def key_by_id(conn: Connection, key_id: str) -> ApiKey:
    """One key, revoked or not. Raises `NotFound`."""
    return to_key(_row(conn, key_id))


def keys_of(conn: Connection, project_id: str, page: PageRequest) -> Page[ApiKey]:
    """A page of a project's keys, revoked ones included."""
    query = select(api_keys).where(api_keys.c.project_id == project_id)
    return load_page(conn, query, api_keys.c.id, page, lambda rows: [to_key(row) for row in rows])


def all_keys(conn: Connection) -> tuple[ApiKey, ...]:
    """The oldest `MAX_KEYS` keys of all projects, revoked ones included."""
    query = select(api_keys).order_by(api_keys.c.id).limit(MAX_KEYS)
    return tuple(to_key(row) for row in conn.execute(query).mappings())


def change_key(tx: Tx, key_id: str, change: KeyChange) -> ApiKey:
    """The key with its changes. Raises `NotFound`."""
    given: dict[str, object | None] = {
        "name": change.name,
        "scopes_json": None if change.scopes is None else to_json(change.scopes),
        "agent_ids_json": None if change.agent_ids is None else to_json(change.agent_ids),
        "expires_at": change.expires_at,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if change.limits is not None:
        values |= _limits(change.limits)
    _row(tx.conn, key_id)
    if values:
        tx.conn.execute(update(api_keys).where(api_keys.c.id == key_id).values(values))
    return key_by_id(tx.conn, key_id)


def rotate_key(tx: Tx, key_id: str, *, secret_sha256: str, overlap_hours: int, actor: str | None) -> ApiKey:
    """The key with another secret, with its `api_key.rotated`. Raises `NotFound`."""
    row = _row(tx.conn, key_id)
    if row["revoked_at"] is not None:
        raise NotFound(f"{key_id} was revoked")
    overlap: dict[str, object | None] = {"previous_sha256": None, "previous_until": None}
    if overlap_hours:
        until = tx.now + timedelta(hours=overlap_hours)
        overlap = {"previous_sha256": row["secret_sha256"], "previous_until": until}
    changed = update(api_keys).where(api_keys.c.id == key_id).values(secret_sha256=secret_sha256, **overlap)
    tx.conn.execute(changed)
    key = key_by_id(tx.conn, key_id)
    _tell(tx, "api_key.rotated", key, actor)
    return key


def end_key(tx: Tx, key_id: str, *, actor: str | None) -> ApiKey:
    """The key, unusable from now on; `api_key.revoked` is told once. Raises `NotFound`."""
    known = _row(tx.conn, key_id)
    if known["revoked_at"] is None:
        gone = {"revoked_at": tx.now, "previous_sha256": None, "previous_until": None}
        tx.conn.execute(update(api_keys).where(api_keys.c.id == key_id).values(gone))
        _tell(tx, "api_key.revoked", to_key(known), actor)
    return key_by_id(tx.conn, key_id)


def _named(conn: Connection, named_id: str) -> Named | None:
    for query in _NAMED.get(named_id[:3], ()):
        row = conn.execute(query, {"named_id": named_id}).one_or_none()
        if row is not None:
            return Named(*row)
    return None


def _row(conn: Connection, key_id: str) -> RowMapping:
    row = find(conn, api_keys, id=key_id)
    if row is None:
        raise NotFound(f"there is no key {key_id}")
    return row


def _limits(limits: KeyLimits) -> dict[str, object]:
    return {
        "requests_per_minute": limits.requests_per_minute,
        "concurrent_turns": limits.concurrent_turns,
        "queued_turns": limits.queued_turns,
        "streams": limits.streams,
    }


def _tell(tx: Tx, event_type: str, key: ApiKey, actor: str | None) -> None:
    append_project_event(tx, api_key_changed(event_type, key_id=key.id, actor_id=actor), project_id=key.project_id)
