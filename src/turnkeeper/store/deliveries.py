"""Deliveries: handed out under a lease, tried, taken or given up, sent once more on request (contract 2.8 and 12).

INVARIANT: what a try led to is written only while the delivery is still its owner's; endpoints are locked before their
deliveries, in the order of their ids, so that no two workers wait for each other.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, insert, or_, select, update

from turnkeeper.events.administration import webhook_delivery_dead, webhook_endpoint_disabled, webhook_endpoint_test
from turnkeeper.events.envelope import Event, ProjectEvent, render_event
from turnkeeper.events.webhooks.endpoints import (
    MAX_BODY_BYTES,
    MAX_ENDPOINTS,
    MAX_PER_ENDPOINT,
    MAX_REPLAYED,
    MAX_SHOWN_ATTEMPTS,
    Attempt,
    Claimed,
    Delivery,
    DeliveryPending,
    DeliveryStatus,
    DeliveryView,
    DisabledReason,
    Endpoint,
    wants,
)
from turnkeeper.events.webhooks.ports import Listed, Replay
from turnkeeper.events.webhooks.schedule import Outcome, Verdict, is_failing_too_long
from turnkeeper.store.fanout import AT_ONCE, WEBHOOK_TOPIC, Owed, delivery_row
from turnkeeper.store.pages import load_page
from turnkeeper.store.rows import to_event
from turnkeeper.store.tables import events
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_tables import (
    IS_WAITING,
    project_events,
    webhook_attempts,
    webhook_deliveries,
    webhook_endpoints,
)
from turnkeeper.store.webhooks import (
    active_secrets,
    append_project_event,
    disable_endpoint,
    endpoint_by_id,
    lock_endpoint,
    to_endpoint,
    to_project_event,
)
from turnkeeper.turns.ports import NotFound, PageRequest

_ABOUT_WEBHOOKS: Final = "webhook_"
_FREE: Final[dict[str, object]] = {"owner": None, "lease_expires_at": None}


def claim_deliveries(tx: Tx, owner: str, *, at: datetime, limit: int, lease_ms: int) -> tuple[Claimed, ...]:
    """Deliveries that are due, first tries before repeated ones, at most `MAX_PER_ENDPOINT` of an endpoint at once."""
    claimed: list[Claimed] = []
    for endpoint in _endpoints_with_work(tx, at):
        room = min(MAX_PER_ENDPOINT - _in_flight(tx, endpoint.id, at), limit - len(claimed))
        if room > 0:
            rows = _due_rows(tx, endpoint, room, at)
            claimed += _taken(tx, endpoint, rows, owner, at + timedelta(milliseconds=lease_ms))
    return tuple(claimed)


def record_attempt(tx: Tx, claimed: Claimed, attempt: Attempt, outcome: Outcome, *, at: datetime) -> bool:
    """What a try led to. False, and nothing written, when the delivery is no longer this owner's."""
    try:
        endpoint = lock_endpoint(tx, claimed.endpoint.id)
    except NotFound:
        return False
    ours = (
        webhook_deliveries.c.id == claimed.delivery.id,
        webhook_deliveries.c.owner == claimed.owner,
        webhook_deliveries.c.attempts == claimed.delivery.attempts,
        IS_WAITING,
    )
    changed = tx.conn.execute(update(webhook_deliveries).where(*ours).values(_fate(tx, attempt, outcome, at)))
    if changed.rowcount != 1:
        return False
    tx.conn.execute(insert(webhook_attempts), _attempt_row(claimed.delivery.id, attempt))
    _judge_endpoint(tx, endpoint, outcome, at)
    if outcome.verdict is Verdict.DEAD:
        _tell_of_death(tx, endpoint, claimed.delivery, attempt)
    tx.topics.add(WEBHOOK_TOPIC)
    return True


def list_deliveries(
    conn: Connection, endpoint_id: str, page: Listed, status: DeliveryStatus | None
) -> tuple[tuple[Delivery, ...], bool]:
    """A page of an endpoint's deliveries, and whether there is more. Raises `NotFound`."""
    endpoint_by_id(conn, endpoint_id)
    query = select(webhook_deliveries).where(webhook_deliveries.c.endpoint_id == endpoint_id)
    if status is not None:
        query = query.where(webhook_deliveries.c.status == status.value)
    found = load_page(
        conn,
        query,
        webhook_deliveries.c.id,
        PageRequest(page.limit, page.after, page.order),
        lambda rows: [to_delivery(row) for row in rows],
    )
    return found.items, found.has_more


def delivery_view(conn: Connection, delivery_id: str) -> DeliveryView:
    """A delivery with its newest tries. Raises `NotFound`."""
    delivery = _delivery(conn, delivery_id)
    url = conn.execute(
        select(webhook_endpoints.c.url).where(webhook_endpoints.c.id == delivery.endpoint_id)
    ).scalar_one()
    newest = (
        select(webhook_attempts)
        .where(webhook_attempts.c.delivery_id == delivery_id)
        .order_by(webhook_attempts.c.number.desc())
        .limit(MAX_SHOWN_ATTEMPTS)
    )
    rows = conn.execute(newest).mappings().all()
    body = _bodies(conn, [delivery.event_id]).get(delivery.event_id)
    if body is None:
        raise NotFound(f"the event of {delivery_id} was erased")
    return DeliveryView(delivery, url, body, tuple(_to_attempt(row) for row in reversed(rows)))


def retry_delivery(tx: Tx, delivery_id: str, *, at: datetime) -> Delivery:
    """A new round for a delivery that has ended. Raises `NotFound`, `DeliveryPending`."""
    delivery = _delivery(tx.conn, delivery_id)
    lock_endpoint(tx, delivery.endpoint_id)
    ended = (webhook_deliveries.c.id == delivery_id, webhook_deliveries.c.status != DeliveryStatus.PENDING.value)
    if tx.conn.execute(update(webhook_deliveries).where(*ended).values(_new_round(at))).rowcount != 1:
        raise DeliveryPending(f"{delivery_id} is being tried; its next try is listed with it")
    tx.topics.add(WEBHOOK_TOPIC)
    return _delivery(tx.conn, delivery_id)


def replay(tx: Tx, endpoint_id: str, wanted: Replay, *, at: datetime) -> int:
    """A new round for deliveries of a time, oldest first; how many, at most `MAX_REPLAYED`. Raises `NotFound`."""
    lock_endpoint(tx, endpoint_id)
    statuses = [DeliveryStatus.DEAD.value]
    if wanted.only == "all":
        statuses.append(DeliveryStatus.DELIVERED.value)
    table = webhook_deliveries
    query = (
        select(table.c.id, table.c.event_type)
        .where(
            table.c.endpoint_id == endpoint_id,
            table.c.status.in_(statuses),
            table.c.created_at >= wanted.since,
            table.c.created_at < wanted.until,
        )
        .order_by(table.c.created_at, table.c.id)
        .limit(MAX_REPLAYED)
    )
    rows = tx.conn.execute(query).all()
    chosen = [delivery_id for delivery_id, event_type in rows if wants(wanted.types, (), event_type, None)]
    for start in range(0, len(chosen), 500):
        part = chosen[start : start + 500]
        tx.conn.execute(update(table).where(table.c.id.in_(part)).values(_new_round(at)))
    tx.topics.add(WEBHOOK_TOPIC)
    return len(chosen)


def send_test(tx: Tx, endpoint_id: str) -> Delivery:
    """A test event for one endpoint, whatever types it wants. Raises `NotFound`."""
    endpoint = lock_endpoint(tx, endpoint_id)
    told = webhook_endpoint_test(endpoint_id=endpoint_id)
    event = append_project_event(tx, told, but_not=endpoint_id, project_id=endpoint.project_id)
    row = delivery_row(tx.ids, tx.now, endpoint_id, Owed(event.id, event.type, None, None))
    tx.conn.execute(insert(webhook_deliveries), row)
    tx.topics.add(WEBHOOK_TOPIC)
    return _delivery(tx.conn, str(row["id"]))


def to_delivery(row: RowMapping) -> Delivery:
    """A row of `webhook_deliveries`."""
    return Delivery(
        id=row["id"],
        endpoint_id=row["endpoint_id"],
        event_id=row["event_id"],
        event_type=row["event_type"],
        session_id=row["session_id"],
        sequence=row["sequence"],
        status=DeliveryStatus(row["status"]),
        attempts=row["attempts"],
        last_status=row["last_status"],
        next_attempt_at=row["created_at"] if row["next_at"] == AT_ONCE else row["next_at"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
    )


def _endpoints_with_work(tx: Tx, at: datetime) -> list[Endpoint]:
    due = select(webhook_deliveries.c.id).where(
        webhook_deliveries.c.endpoint_id == webhook_endpoints.c.id, IS_WAITING, _is_due(at)
    )
    query = (
        select(webhook_endpoints)
        .where(webhook_endpoints.c.enabled, due.exists())
        .order_by(webhook_endpoints.c.id)
        .limit(MAX_ENDPOINTS)
        .with_for_update(skip_locked=True)
    )
    return [to_endpoint(row) for row in tx.conn.execute(query).mappings()]


def _is_due(at: datetime) -> ColumnElement[bool]:
    table = webhook_deliveries
    unowned = or_(table.c.owner.is_(None), table.c.lease_expires_at <= at)
    return and_(table.c.next_at <= at, unowned)


def _in_flight(tx: Tx, endpoint_id: str, at: datetime) -> int:
    table = webhook_deliveries
    query = select(func.count()).where(table.c.endpoint_id == endpoint_id, IS_WAITING, table.c.lease_expires_at > at)
    return tx.conn.execute(query).scalar_one()


def _due_rows(tx: Tx, endpoint: Endpoint, room: int, at: datetime) -> Sequence[RowMapping]:
    table = webhook_deliveries
    query = select(table).where(table.c.endpoint_id == endpoint.id, IS_WAITING, _is_due(at))
    if endpoint.ordering == "session":
        query = query.where(or_(table.c.session_id.is_(None), ~_earlier_waits()))
    return tx.conn.execute(query.order_by(table.c.tries > 0, table.c.next_at, table.c.id).limit(room)).mappings().all()


def _earlier_waits() -> ColumnElement[bool]:
    table, earlier = webhook_deliveries, webhook_deliveries.alias("earlier")
    return (
        select(earlier.c.id)
        .where(
            earlier.c.endpoint_id == table.c.endpoint_id,
            earlier.c.session_id == table.c.session_id,
            earlier.c.sequence < table.c.sequence,
            earlier.c.status == DeliveryStatus.PENDING.value,
        )
        .exists()
    )


def _taken(tx: Tx, endpoint: Endpoint, rows: Sequence[RowMapping], owner: str, until: datetime) -> list[Claimed]:
    if not rows:
        return []
    table = webhook_deliveries
    bodies = _bodies(tx.conn, [row["event_id"] for row in rows])
    _cancel(tx, [row["id"] for row in rows if row["event_id"] not in bodies])
    rows = [row for row in rows if row["event_id"] in bodies]
    ids = [row["id"] for row in rows]
    # Counted before the try: a worker that dies in it has used up the number, since the body may have arrived.
    begun = {"owner": owner, "lease_expires_at": until, "attempts": table.c.attempts + 1, "tries": table.c.tries + 1}
    tx.conn.execute(update(table).where(table.c.id.in_(ids)).values(begun))
    secrets = active_secrets(tx, endpoint.id)
    return [
        Claimed(
            delivery=replace(to_delivery(row), attempts=row["attempts"] + 1),
            endpoint=endpoint,
            owner=owner,
            tries=row["tries"] + 1,
            body=bodies[row["event_id"]],
            secrets=secrets,
        )
        for row in rows
    ]


def _cancel(tx: Tx, delivery_ids: Sequence[str]) -> None:
    """Ends deliveries whose event was erased meanwhile: there is nothing to send any more."""
    canceled = {**_FREE, "status": DeliveryStatus.CANCELED.value, "next_at": None, "ended_at": tx.now}
    tx.conn.execute(update(webhook_deliveries).where(webhook_deliveries.c.id.in_(delivery_ids)).values(canceled))


def _bodies(conn: Connection, event_ids: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for row in conn.execute(select(events).where(events.c.id.in_(event_ids))).mappings():
        found[row["id"]] = _body(to_event(row))
    for row in conn.execute(select(project_events).where(project_events.c.id.in_(event_ids))).mappings():
        found[row["id"]] = _body(to_project_event(row))
    return found


def _body(event: Event | ProjectEvent) -> bytes:
    whole = render_event(event)
    return whole if len(whole) <= MAX_BODY_BYTES else render_event(event, data_url=f"/v1/events/{event.id}")


def _fate(tx: Tx, attempt: Attempt, outcome: Outcome, at: datetime) -> dict[str, object]:
    told = {**_FREE, "last_status": attempt.status}
    if outcome.verdict is Verdict.RETRY:
        return {**told, "next_at": at + timedelta(milliseconds=outcome.delay_ms)}
    return {**told, "status": outcome.verdict.value, "next_at": None, "ended_at": tx.now}


def _new_round(at: datetime) -> dict[str, object]:
    return {**_FREE, "status": DeliveryStatus.PENDING.value, "tries": 0, "next_at": at, "ended_at": None}


def _judge_endpoint(tx: Tx, endpoint: Endpoint, outcome: Outcome, at: datetime) -> None:
    by_id = webhook_endpoints.c.id == endpoint.id
    if outcome.verdict is Verdict.DELIVERED:
        if endpoint.failing_since is not None:
            tx.conn.execute(update(webhook_endpoints).where(by_id).values(failing_since=None))
        return
    since = endpoint.failing_since or at
    if endpoint.failing_since is None:
        tx.conn.execute(update(webhook_endpoints).where(by_id).values(failing_since=since))
    if outcome.gone:
        _switch_off(tx, endpoint, "gone", since)
    elif is_failing_too_long(since, at):
        _switch_off(tx, endpoint, "failing", since)


def _switch_off(tx: Tx, endpoint: Endpoint, reason: DisabledReason, since: datetime) -> None:
    if not endpoint.enabled:
        return
    disable_endpoint(tx, endpoint, reason)
    told = webhook_endpoint_disabled(endpoint_id=endpoint.id, reason=reason, failing_since=since)
    append_project_event(tx, told, but_not=endpoint.id, project_id=endpoint.project_id)


def _tell_of_death(tx: Tx, endpoint: Endpoint, delivery: Delivery, attempt: Attempt) -> None:
    # Nobody is told that news about a webhook did not arrive: two dead endpoints would tell each other for ever.
    if delivery.event_type.startswith(_ABOUT_WEBHOOKS):
        return
    told = webhook_delivery_dead(
        delivery_id=delivery.id,
        endpoint_id=delivery.endpoint_id,
        event_id=delivery.event_id,
        attempts=delivery.attempts,
        last_status=attempt.status,
    )
    append_project_event(tx, told, but_not=endpoint.id, project_id=endpoint.project_id)


def _attempt_row(delivery_id: str, attempt: Attempt) -> dict[str, object]:
    return {
        "delivery_id": delivery_id,
        "number": attempt.number,
        "at": attempt.at,
        "duration_ms": attempt.duration_ms,
        "status": attempt.status,
        "error": attempt.error,
        "response_head": attempt.response_head,
    }


def _to_attempt(row: RowMapping) -> Attempt:
    return Attempt(row["number"], row["at"], row["duration_ms"], row["status"], row["error"], row["response_head"])


def _delivery(conn: Connection, delivery_id: str) -> Delivery:
    row: Any = (
        conn.execute(select(webhook_deliveries).where(webhook_deliveries.c.id == delivery_id)).mappings().one_or_none()
    )
    if row is None:
        raise NotFound(f"there is no webhook delivery {delivery_id}")
    return to_delivery(row)
