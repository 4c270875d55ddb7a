"""Events outside of every session (contract 10.4): what happened to keys, webhooks, files, and sessions that are gone.

Pure. They have no sequence and come from the platform.
"""

from datetime import datetime
from typing import Final, Literal

import orjson

from turnkeeper.clock import render_time
from turnkeeper.events.envelope import NewEvent
from turnkeeper.events.files import FILE_TYPES

KEY_TYPES: Final = ("api_key.created", "api_key.rotated", "api_key.revoked")
ADMINISTRATION_TYPES: Final = (
    "webhook_endpoint.disabled",
    "webhook_endpoint.test",
    "webhook_delivery.dead",
    "session.deleted",
    *KEY_TYPES,
    *FILE_TYPES,
)


def webhook_endpoint_disabled(
    *, endpoint_id: str, reason: Literal["gone", "failing", "operator"], failing_since: datetime | None
) -> NewEvent:
    """An endpoint gets nothing any more: it said that it is gone, took nothing for days, or was switched off."""
    since = None if failing_since is None else render_time(failing_since)
    return _event("webhook_endpoint.disabled", {"endpoint_id": endpoint_id, "reason": reason, "failing_since": since})


def webhook_endpoint_test(*, endpoint_id: str) -> NewEvent:
    """Somebody asked to see whether an endpoint can be reached."""
    return _event("webhook_endpoint.test", {"endpoint_id": endpoint_id})


def webhook_delivery_dead(
    *, delivery_id: str, endpoint_id: str, event_id: str, attempts: int, last_status: int | None
) -> NewEvent:
    """A delivery was given up after its last try; it can be sent once more for as long as its event is kept."""
    return _event(
        "webhook_delivery.dead",
        {
            "delivery_id": delivery_id,
            "endpoint_id": endpoint_id,
            "event_id": event_id,
            "attempts": attempts,
            "last_status": last_status,
        },
    )


def api_key_changed(event_type: str, *, key_id: str, actor_id: str | None) -> NewEvent:
    """A key was made, got another secret, or was revoked; by another key, or by an operator at the command line."""
    actor = {"type": "system" if actor_id is None else "api_key", "id": actor_id}
    return _event(event_type, {"api_key_id": key_id, "actor": actor})


def session_deleted(*, session_id: str) -> NewEvent:
    """The content of a session was erased."""
    return _event("session.deleted", {"session_id": session_id})


def _event(event_type: str, data: dict[str, object]) -> NewEvent:
    return NewEvent(event_type, "platform", orjson.dumps(data).decode())
