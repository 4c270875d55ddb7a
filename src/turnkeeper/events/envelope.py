"""The event envelope (contract 10.1): one shape for list, stream and webhook.

Pure. `data` is JSON text, so that what an app sent (metadata, results) comes back token for token.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

import orjson

from turnkeeper.clock import render_time

API_VERSION: Final = "2026-12-01"

EventSource: TypeAlias = Literal["sandbox", "platform"]


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that a transaction is about to number. `data` is the JSON text of a closed object."""

    type: str
    source: EventSource
    data: str
    turn_id: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A stored event. `sequence` counts from 1 in its session without gaps, in commit order."""

    id: str
    type: str
    created_at: datetime
    source: EventSource
    project_id: str
    session_id: str
    turn_id: str | None
    sequence: int
    attempt: int | None
    data: str


def render_event(event: Event) -> bytes:
    """The envelope as one line of JSON, keys in the contract's order."""
    return orjson.dumps(
        {
            "id": event.id,
            "object": "event",
            "type": event.type,
            "api_version": API_VERSION,
            "created_at": render_time(event.created_at),
            "source": event.source,
            "project_id": event.project_id,
            "session_id": event.session_id,
            "turn_id": event.turn_id,
            "sequence": event.sequence,
            "attempt": event.attempt,
            "thread_id": None,
            "data": orjson.Fragment(event.data),
            "data_url": None,
        }
    )
