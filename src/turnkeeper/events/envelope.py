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
    """An event that a transaction is about to number. `data` is the JSON text of a closed object.

    `content` is the text of an artifact, kept beside the event that tells of it. `thread_id` is the subagent's whose
    doing it tells of.
    """

    type: str
    source: EventSource
    data: str
    turn_id: str | None = None
    attempt: int | None = None
    content: str | None = None
    thread_id: str | None = None


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
    thread_id: str | None = None


@dataclass(frozen=True, slots=True)
class ProjectEvent:
    """A stored event outside of every session; it has no sequence. All of them come from the platform."""

    id: str
    type: str
    created_at: datetime
    project_id: str
    data: str


@dataclass(frozen=True, slots=True)
class PassingEvent:
    """An event of a session that is shown in one stream and stored nowhere; it has no sequence."""

    id: str
    created_at: datetime
    project_id: str
    session_id: str
    event: NewEvent


def render_passing(passing: PassingEvent) -> bytes:
    """The envelope of an event that is not stored, as `render_event` writes it."""
    new = passing.event
    shown = Event(
        id=passing.id,
        type=new.type,
        created_at=passing.created_at,
        source=new.source,
        project_id=passing.project_id,
        session_id=passing.session_id,
        turn_id=new.turn_id,
        sequence=0,
        attempt=new.attempt,
        data=new.data,
        thread_id=new.thread_id,
    )
    return _render(shown, None, sequence=None)


def render_event(event: Event | ProjectEvent, *, data_url: str | None = None) -> bytes:
    """The envelope as one line of JSON, keys in the contract's order; with a `data_url` in place of the data."""
    return _render(event, data_url, sequence=event.sequence if isinstance(event, Event) else None)


def _render(event: Event | ProjectEvent, data_url: str | None, *, sequence: int | None) -> bytes:
    of_session = event if isinstance(event, Event) else None
    return orjson.dumps(
        {
            "id": event.id,
            "object": "event",
            "type": event.type,
            "api_version": API_VERSION,
            "created_at": render_time(event.created_at),
            "source": "platform" if of_session is None else of_session.source,
            "project_id": event.project_id,
            "session_id": None if of_session is None else of_session.session_id,
            "turn_id": None if of_session is None else of_session.turn_id,
            "sequence": sequence,
            "attempt": None if of_session is None else of_session.attempt,
            "thread_id": None if of_session is None else of_session.thread_id,
            "data": orjson.Fragment(event.data) if data_url is None else None,
            "data_url": data_url,
        }
    )
