"""What a webhook endpoint wants, and what became of each delivery to it (contract 2.8 and 12).

Pure. Says which events an endpoint gets; never who it is sent by, nor over what.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from turnkeeper.errors import TurnkeeperError

MAX_ENDPOINTS: Final = 100
MAX_TYPES: Final = 50
MAX_AGENTS: Final = 100
MAX_URL_CHARACTERS: Final = 2_048
MAX_DESCRIPTION_CHARACTERS: Final = 500
MAX_OVERLAP_HOURS: Final = 72
DEFAULT_OVERLAP_HOURS: Final = 24
MAX_SHOWN_ATTEMPTS: Final = 50
MAX_REPLAYED: Final = 10_000
"""Deliveries that one replay sends once more."""
MAX_PER_ENDPOINT: Final = 10
"""Deliveries to one endpoint that are tried at one time."""
MAX_BODY_BYTES: Final = 262_144
"""The longest envelope that is sent whole; of a longer one the data is left out and `data_url` says where it is."""
MAX_SECRETS: Final = 5
"""Secrets of one endpoint that sign at one time: the newest, and older ones until their overlap is over."""

Ordering: TypeAlias = Literal["none", "session"]
DisabledReason: TypeAlias = Literal["gone", "failing", "operator"]

_PATTERN: Final = re.compile(r"(\*|[a-z_]+(\.[a-z_]+)*(\.\*)?)\Z")


class WebhookInvalid(TurnkeeperError):
    """An endpoint cannot be as it was asked for."""

    code = "invalid_field"


class TooManyEndpoints(TurnkeeperError):
    """The project has as many endpoints as it may have."""

    code = "too_many_endpoints"


class TooManySecrets(TurnkeeperError):
    """Older secrets of the endpoint are still in their overlap, and one more would be too many."""

    code = "too_many_secrets"


class DeliveryPending(TurnkeeperError):
    """The delivery is still being tried, so there is nothing to send once more."""

    code = "delivery_pending"


class DeliveryStatus(StrEnum):
    """Where a delivery stands. `canceled`: its endpoint was deleted before it was taken."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """An endpoint to be made, already checked. `types` are names or globs (`turn.*`); no `agent_ids` means all.

    It gets the events of its project; without a `project_id` of the one that whatever names none is in.
    """

    url: str
    types: tuple[str, ...] = ("*",)
    agent_ids: tuple[str, ...] = ()
    ordering: Ordering = "none"
    description: str = ""
    enabled: bool = True
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """What changes of an endpoint; `None` leaves a member as it is."""

    url: str | None = None
    types: tuple[str, ...] | None = None
    agent_ids: tuple[str, ...] | None = None
    ordering: Ordering | None = None
    description: str | None = None
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that gets events. `failing_since` is when it last stopped taking anything."""

    id: str
    url: str
    types: tuple[str, ...]
    agent_ids: tuple[str, ...]
    ordering: Ordering
    description: str
    enabled: bool
    disabled_reason: DisabledReason | None
    failing_since: datetime | None
    api_version: str
    created_at: datetime
    updated_at: datetime
    project_id: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one endpoint. `attempts` counts every try, replays included."""

    id: str
    endpoint_id: str
    event_id: str
    event_type: str
    session_id: str | None
    sequence: int | None
    status: DeliveryStatus
    attempts: int
    last_status: int | None
    next_attempt_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try: the HTTP status, or what kept one from coming, and the first bytes of the answer."""

    number: int
    at: datetime
    duration_ms: int
    status: int | None
    error: str | None
    response_head: str | None


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery with what was sent and what came back, at most `MAX_SHOWN_ATTEMPTS` of the newest tries."""

    delivery: Delivery
    url: str
    body: bytes
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that is ours to try now. `tries` counts those of this round; `secrets` are never shown."""

    delivery: Delivery
    endpoint: Endpoint
    owner: str
    tries: int
    body: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def is_pattern(text: str) -> bool:
    """Whether the text names event types: a type, a family with `.*` at its end, or `*`."""
    return _PATTERN.match(text) is not None


def wants(types: Sequence[str], agent_ids: Sequence[str], event_type: str, agent_id: str | None) -> bool:
    """Whether an endpoint with these `types` and `agent_ids` gets an event; one about no agent goes by type alone."""
    if agent_ids and agent_id is not None and agent_id not in agent_ids:
        return False
    return any(_matches(pattern, event_type) for pattern in types)


def _matches(pattern: str, event_type: str) -> bool:
    if pattern.endswith("*"):
        return event_type.startswith(pattern[:-1])
    return pattern == event_type
