"""What webhooks need from outside: a store that hands deliveries out, and somebody who sends.

INVARIANT: a delivery is claimed by at most one owner at a time, until its lease is over; what a try led to is written
only for the owner that claimed it.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

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
from turnkeeper.events.webhooks.schedule import Outcome


@dataclass(frozen=True, slots=True)
class Listed:
    """Which part of a list: `after` is the last id of the page before."""

    limit: int = 20
    after: str | None = None
    order: Literal["asc", "desc"] = "desc"
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """Which deliveries of an endpoint are sent once more; `failed` leaves out those that were taken."""

    since: datetime
    until: datetime
    types: tuple[str, ...] = ("*",)
    only: Literal["failed", "all"] = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back of a try. `status` is `None` and `error` says why when nothing did."""

    status: int | None
    error: str | None
    head: str | None
    retry_after: str | None


class WebhookStore(Protocol):
    """Endpoints and deliveries; every method is one transaction."""

    async def create_endpoint(self, new: NewEndpoint, *, secret: str) -> Endpoint:
        """Raises `TooManyEndpoints`."""
        ...

    async def endpoint(self, endpoint_id: str) -> Endpoint:
        """Raises `NotFound`."""
        ...

    async def endpoints(self, page: Listed) -> tuple[tuple[Endpoint, ...], bool]:
        """A page, and whether there is more."""
        ...

    async def change_endpoint(self, endpoint_id: str, change: EndpointChange) -> Endpoint:
        """Switching one on clears why it was off. Raises `NotFound`."""
        ...

    async def delete_endpoint(self, endpoint_id: str) -> None:
        """Nothing more is sent to it. Raises `NotFound`."""
        ...

    async def rotate_secret(self, endpoint_id: str, *, secret: str, overlap_hours: int) -> datetime | None:
        """Until when the older secrets sign too. Raises `NotFound`, `TooManySecrets`."""
        ...

    async def deliveries(
        self, endpoint_id: str, page: Listed, status: DeliveryStatus | None
    ) -> tuple[tuple[Delivery, ...], bool]:
        """A page, and whether there is more. Raises `NotFound`."""
        ...

    async def delivery(self, delivery_id: str) -> DeliveryView:
        """Raises `NotFound`."""
        ...

    async def project_event(self, event_id: str) -> ProjectEvent:
        """An event outside of every session. Raises `NotFound`."""
        ...

    async def retry(self, delivery_id: str) -> Delivery:
        """A new round for it, at once. Raises `NotFound`, `DeliveryPending`."""
        ...

    async def replay(self, endpoint_id: str, wanted: Replay) -> int:
        """How many get a new round, at most `MAX_REPLAYED`. Raises `NotFound`."""
        ...

    async def send_test(self, endpoint_id: str) -> Delivery:
        """A `webhook_endpoint.test` event for this endpoint alone. Raises `NotFound`."""
        ...

    async def claim_deliveries(self, owner: str, *, limit: int, lease_ms: int) -> tuple[Claimed, ...]:
        """Deliveries that are due, first tries before repeated ones, within each endpoint's own limit."""
        ...

    async def record_attempt(self, claimed: Claimed, attempt: Attempt, outcome: Outcome) -> bool:
        """What a try led to, with the events that follow. False when the delivery is no longer this owner's."""
        ...


class Sender(Protocol):
    """Posts a body to an endpoint."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer, whatever it is; never raises for what a receiver does."""
        ...


class Resolver(Protocol):
    """Finds the addresses of a host."""

    def __call__(self, host: str, port: int, /) -> Awaitable[Sequence[str]]:
        """Raises `OSError`."""
        ...
