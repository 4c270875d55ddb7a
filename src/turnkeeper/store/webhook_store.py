"""`WebhookStore` on SQL: every method is one transaction of the modules beside this one.

When a delivery is due and how long a lease on it lasts is told by one clock for all who deliver, handed in as
`schedule_time`: the clocks of two workers may disagree, and one that is set must not keep a delivery from its next try.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from turnkeeper.events.envelope import ProjectEvent
from turnkeeper.events.webhooks.endpoints import (
    Attempt,
    Claimed,
    Delivery,
    DeliveryStatus,
    DeliveryView,
    Endpoint,
    EndpointChange,
    NewEndpoint,
)
from turnkeeper.events.webhooks.ports import Listed, Replay, WebhookStore
from turnkeeper.events.webhooks.schedule import Outcome
from turnkeeper.store import deliveries, webhooks
from turnkeeper.store.tx import Tx

T = TypeVar("T")


class Reads(Protocol):
    """Runs a body that reads, in one snapshot."""

    def __call__(self, body: Callable[[Connection], T], /) -> Awaitable[T]: ...


class Writes(Protocol):
    """Runs a body that writes, as one transaction."""

    def __call__(self, body: Callable[[Tx], T], /) -> Awaitable[T]: ...


class SqlWebhookStore(WebhookStore):
    """Webhooks in the turn store's database."""

    def __init__(self, read: Reads, write: Writes, schedule_time: Callable[[Tx], datetime]) -> None:
        self._read = read
        self._write = write
        self._schedule_time = schedule_time

    async def create_endpoint(self, new: NewEndpoint, *, secret: str) -> Endpoint:
        return await self._write(lambda tx: webhooks.create_endpoint(tx, new, secret=secret))

    async def endpoint(self, endpoint_id: str) -> Endpoint:
        return await self._read(lambda conn: webhooks.endpoint_by_id(conn, endpoint_id))

    async def endpoints(self, page: Listed) -> tuple[tuple[Endpoint, ...], bool]:
        return await self._read(lambda conn: webhooks.list_endpoints(conn, page))

    async def change_endpoint(self, endpoint_id: str, change: EndpointChange) -> Endpoint:
        return await self._write(lambda tx: webhooks.change_endpoint(tx, endpoint_id, change))

    async def delete_endpoint(self, endpoint_id: str) -> None:
        await self._write(lambda tx: webhooks.delete_endpoint(tx, endpoint_id))

    async def rotate_secret(self, endpoint_id: str, *, secret: str, overlap_hours: int) -> datetime | None:
        def body(tx: Tx) -> datetime | None:
            webhooks.rotate_secret(tx, endpoint_id, secret=secret, overlap_hours=overlap_hours)
            return tx.now + timedelta(hours=overlap_hours) if overlap_hours else None

        return await self._write(body)

    async def deliveries(
        self, endpoint_id: str, page: Listed, status: DeliveryStatus | None
    ) -> tuple[tuple[Delivery, ...], bool]:
        return await self._read(lambda conn: deliveries.list_deliveries(conn, endpoint_id, page, status))

    async def delivery(self, delivery_id: str) -> DeliveryView:
        return await self._read(lambda conn: deliveries.delivery_view(conn, delivery_id))

    async def project_event(self, event_id: str) -> ProjectEvent:
        return await self._read(lambda conn: webhooks.project_event_by_id(conn, event_id))

    async def retry(self, delivery_id: str) -> Delivery:
        return await self._write(lambda tx: deliveries.retry_delivery(tx, delivery_id, at=self._schedule_time(tx)))

    async def replay(self, endpoint_id: str, wanted: Replay) -> int:
        return await self._write(lambda tx: deliveries.replay(tx, endpoint_id, wanted, at=self._schedule_time(tx)))

    async def send_test(self, endpoint_id: str) -> Delivery:
        return await self._write(lambda tx: deliveries.send_test(tx, endpoint_id))

    async def claim_deliveries(self, owner: str, *, limit: int, lease_ms: int) -> tuple[Claimed, ...]:
        def body(tx: Tx) -> tuple[Claimed, ...]:
            return deliveries.claim_deliveries(tx, owner, at=self._schedule_time(tx), limit=limit, lease_ms=lease_ms)

        return await self._write(body)

    async def record_attempt(self, claimed: Claimed, attempt: Attempt, outcome: Outcome) -> bool:
        def body(tx: Tx) -> bool:
            return deliveries.record_attempt(tx, claimed, attempt, outcome, at=self._schedule_time(tx))

        return await self._write(body)
