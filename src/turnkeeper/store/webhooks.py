"""Webhook endpoints and their secrets; the events outside of sessions that are about them."""

from datetime import timedelta
from typing import Any, Final, cast

from sqlalchemy import Connection, RowMapping, Select, func, insert, select, update

from turnkeeper.events.envelope import API_VERSION, NewEvent, ProjectEvent
from turnkeeper.events.webhooks.endpoints import (
    MAX_ENDPOINTS,
    MAX_SECRETS,
    DeliveryStatus,
    DisabledReason,
    Endpoint,
    EndpointChange,
    NewEndpoint,
    Ordering,
    TooManyEndpoints,
    TooManySecrets,
)
from turnkeeper.events.webhooks.ports import Listed
from turnkeeper.store.fanout import WEBHOOK_TOPIC, Owed, endpoint_texts, owe_deliveries
from turnkeeper.store.pages import load_page
from turnkeeper.store.rows import to_json
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_tables import (
    project_events,
    webhook_deliveries,
    webhook_endpoints,
    webhook_secrets,
)
from turnkeeper.turns.model import PROJECT_ID
from turnkeeper.turns.ports import NotFound, PageRequest

_KNOWN: Final = webhook_endpoints.c.deleted_at.is_(None)


def create_endpoint(tx: Tx, new: NewEndpoint, *, secret: str) -> Endpoint:
    """The endpoint and its first secret. Raises `TooManyEndpoints`."""
    project_id = new.project_id or PROJECT_ID
    of_project = webhook_endpoints.c.project_id == project_id
    count = select(func.count()).select_from(webhook_endpoints).where(_KNOWN, of_project)
    if tx.conn.execute(count).scalar_one() >= MAX_ENDPOINTS:
        raise TooManyEndpoints(f"the project has {MAX_ENDPOINTS} endpoints already")
    values: dict[str, object] = {
        "id": tx.ids.new("whe"),
        "project_id": project_id,
        "url": new.url,
        "types_json": to_json(new.types),
        "agent_ids_json": to_json(new.agent_ids),
        "ordering": new.ordering,
        "description": new.description,
        "enabled": new.enabled,
        "disabled_reason": None if new.enabled else "operator",
        "api_version": API_VERSION,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    row = tx.conn.execute(insert(webhook_endpoints).returning(webhook_endpoints), values).mappings().one()
    _add_secret(tx, str(values["id"]), 1, secret)
    return to_endpoint(row)


def endpoint_by_id(conn: Connection, endpoint_id: str) -> Endpoint:
    """An endpoint that is not deleted. Raises `NotFound`."""
    row = conn.execute(_by_id(endpoint_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no webhook endpoint {endpoint_id}")
    return to_endpoint(row)


def list_endpoints(conn: Connection, page: Listed) -> tuple[tuple[Endpoint, ...], bool]:
    """A page of endpoints, and whether there is more."""
    of_project = () if page.project_id is None else (webhook_endpoints.c.project_id == page.project_id,)
    found = load_page(
        conn,
        select(webhook_endpoints).where(_KNOWN, *of_project),
        webhook_endpoints.c.id,
        PageRequest(page.limit, page.after, page.order),
        lambda rows: [to_endpoint(row) for row in rows],
    )
    return found.items, found.has_more


def change_endpoint(tx: Tx, endpoint_id: str, change: EndpointChange) -> Endpoint:
    """The endpoint with its changes. Raises `NotFound`."""
    lock_endpoint(tx, endpoint_id)
    values: dict[str, object] = {"updated_at": tx.now, **_changes(change)}
    tx.conn.execute(update(webhook_endpoints).where(webhook_endpoints.c.id == endpoint_id).values(values))
    tx.topics.add(WEBHOOK_TOPIC)
    return endpoint_by_id(tx.conn, endpoint_id)


def delete_endpoint(tx: Tx, endpoint_id: str) -> None:
    """Nothing more is sent to it; what waited is canceled. Raises `NotFound`."""
    lock_endpoint(tx, endpoint_id)
    gone = {"enabled": False, "disabled_reason": None, "deleted_at": tx.now, "updated_at": tx.now}
    tx.conn.execute(update(webhook_endpoints).where(webhook_endpoints.c.id == endpoint_id).values(gone))
    waiting = (webhook_deliveries.c.endpoint_id == endpoint_id, webhook_deliveries.c.status == "pending")
    canceled: dict[str, object] = {
        "status": DeliveryStatus.CANCELED.value,
        "next_at": None,
        "owner": None,
        "lease_expires_at": None,
        "ended_at": tx.now,
    }
    tx.conn.execute(update(webhook_deliveries).where(*waiting).values(canceled))
    tx.conn.execute(webhook_secrets.delete().where(webhook_secrets.c.endpoint_id == endpoint_id))


def rotate_secret(tx: Tx, endpoint_id: str, *, secret: str, overlap_hours: int) -> None:
    """A new secret; the others sign for `overlap_hours` more. Raises `NotFound`, `TooManySecrets`."""
    lock_endpoint(tx, endpoint_id)
    of_endpoint = webhook_secrets.c.endpoint_id == endpoint_id
    tx.conn.execute(webhook_secrets.delete().where(of_endpoint, webhook_secrets.c.expires_at <= tx.now))
    last = tx.conn.execute(select(func.max(webhook_secrets.c.number)).where(of_endpoint)).scalar_one() or 0
    until = tx.now + timedelta(hours=overlap_hours)
    if overlap_hours == 0:
        tx.conn.execute(webhook_secrets.delete().where(of_endpoint))
    else:
        lasting = of_endpoint & (webhook_secrets.c.expires_at.is_(None) | (webhook_secrets.c.expires_at > until))
        tx.conn.execute(update(webhook_secrets).where(lasting).values(expires_at=until))
    _add_secret(tx, endpoint_id, last + 1, secret)
    if len(active_secrets(tx, endpoint_id)) > MAX_SECRETS:
        raise TooManySecrets(
            f"{MAX_SECRETS} secrets of {endpoint_id} sign already", hint="Rotate with overlap_hours 0."
        )


def active_secrets(tx: Tx, endpoint_id: str) -> tuple[str, ...]:
    """The secrets that sign now, newest first."""
    lives = webhook_secrets.c.expires_at.is_(None) | (webhook_secrets.c.expires_at > tx.now)
    query = (
        select(webhook_secrets.c.secret)
        .where(webhook_secrets.c.endpoint_id == endpoint_id, lives)
        .order_by(webhook_secrets.c.number.desc())
        .limit(MAX_SECRETS + 1)
    )
    return tuple(tx.conn.execute(query).scalars())


def lock_endpoint(tx: Tx, endpoint_id: str) -> Endpoint:
    """The endpoint, its row locked until the end of the transaction. Raises `NotFound`."""
    row = tx.conn.execute(_by_id(endpoint_id).with_for_update()).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no webhook endpoint {endpoint_id}")
    return to_endpoint(row)


def disable_endpoint(tx: Tx, endpoint: Endpoint, reason: DisabledReason) -> None:
    """Switches an endpoint off and tells the others."""
    values = {"enabled": False, "disabled_reason": reason, "updated_at": tx.now}
    tx.conn.execute(update(webhook_endpoints).where(webhook_endpoints.c.id == endpoint.id).values(values))


def append_project_event(
    tx: Tx, new: NewEvent, *, but_not: str | None = None, project_id: str = PROJECT_ID
) -> ProjectEvent:
    """An event outside of every session, with the deliveries it owes."""
    event = ProjectEvent(tx.ids.new("evt"), new.type, tx.now, project_id, new.data)
    tx.conn.execute(
        insert(project_events),
        {
            "id": event.id,
            "project_id": event.project_id,
            "type": event.type,
            "created_at": event.created_at,
            "data": event.data,
        },
    )
    owed = [Owed(event.id, event.type, None, None)]
    if owe_deliveries(tx.conn, tx.ids, tx.now, project_id, owed, but_not=but_not):
        tx.topics.add(WEBHOOK_TOPIC)
    return event


def project_event_by_id(conn: Connection, event_id: str) -> ProjectEvent:
    """An event outside of every session. Raises `NotFound`."""
    row = conn.execute(select(project_events).where(project_events.c.id == event_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no event {event_id}")
    return to_project_event(row)


def to_project_event(row: RowMapping) -> ProjectEvent:
    """A row of `project_events`."""
    return ProjectEvent(row["id"], row["type"], row["created_at"], row["project_id"], row["data"])


def to_endpoint(row: RowMapping) -> Endpoint:
    """A row of `webhook_endpoints`."""
    types, agent_ids = endpoint_texts(row)
    return Endpoint(
        id=row["id"],
        url=row["url"],
        types=types,
        agent_ids=agent_ids,
        ordering=cast("Ordering", row["ordering"]),
        description=row["description"],
        enabled=row["enabled"],
        disabled_reason=cast("DisabledReason | None", row["disabled_reason"]),
        failing_since=row["failing_since"],
        api_version=row["api_version"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        project_id=row["project_id"],
    )


def _by_id(endpoint_id: str) -> Select[Any]:
    return select(webhook_endpoints).where(webhook_endpoints.c.id == endpoint_id, _KNOWN)


def _add_secret(tx: Tx, endpoint_id: str, number: int, secret: str) -> None:
    values = {"endpoint_id": endpoint_id, "number": number, "secret": secret, "created_at": tx.now}
    tx.conn.execute(insert(webhook_secrets), values)


def _changes(change: EndpointChange) -> dict[str, object]:
    given: dict[str, object | None] = {
        "url": change.url,
        "types_json": None if change.types is None else to_json(change.types),
        "agent_ids_json": None if change.agent_ids is None else to_json(change.agent_ids),
        "ordering": change.ordering,
        "description": change.description,
        "enabled": change.enabled,
    }
    values: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if change.enabled is not None:
        values |= {"disabled_reason": None if change.enabled else "operator", "failing_since": None}
    return values
