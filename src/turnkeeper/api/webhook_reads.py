"""Webhook endpoints and deliveries as the API shows them (contract 2.8). Secrets are shown once, when they are made."""

from collections.abc import Mapping
from datetime import datetime

import orjson

from turnkeeper.api.reads import time_or_none
from turnkeeper.clock import render_time
from turnkeeper.events.webhooks.endpoints import Attempt, Delivery, DeliveryView, Endpoint


def render_endpoint(endpoint: Endpoint, **shown_once: str) -> bytes:
    """The endpoint object; `shown_once` has the secret where one was just made."""
    return orjson.dumps(
        {
            "id": endpoint.id,
            "object": "webhook_endpoint",
            "url": endpoint.url,
            "types": endpoint.types,
            "agent_ids": endpoint.agent_ids or None,
            "payload": "full",
            "ordering": endpoint.ordering,
            "api_version": endpoint.api_version,
            "enabled": endpoint.enabled,
            "disabled_reason": endpoint.disabled_reason,
            "failing_since": time_or_none(endpoint.failing_since),
            "description": endpoint.description,
            "created_at": render_time(endpoint.created_at),
            "updated_at": render_time(endpoint.updated_at),
            **shown_once,
        }
    )


def render_rotation(endpoint: Endpoint, secret: str, overlap_until: datetime | None) -> bytes:
    """A new secret, shown once, and until when the older ones sign too."""
    document = {
        "id": endpoint.id,
        "object": "webhook_secret",
        "secret": secret,
        "overlap_until": time_or_none(overlap_until),
    }
    return orjson.dumps(document)


def render_delivery(delivery: Delivery) -> bytes:
    """The delivery object as a list shows it."""
    return orjson.dumps(_document(delivery))


def render_delivery_view(view: DeliveryView) -> bytes:
    """The delivery with what is sent and each try's answer."""
    shown = {
        "request": {"url": view.url, "body": orjson.Fragment(view.body)},
        "tries": [_attempt(attempt) for attempt in view.attempts],
    }
    return orjson.dumps({**_document(view.delivery), **shown})


def _document(delivery: Delivery) -> Mapping[str, object]:
    return {
        "id": delivery.id,
        "object": "webhook_delivery",
        "endpoint_id": delivery.endpoint_id,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "session_id": delivery.session_id,
        "sequence": delivery.sequence,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
        "last_status": delivery.last_status,
        "next_attempt_at": time_or_none(delivery.next_attempt_at),
        "created_at": render_time(delivery.created_at),
        "ended_at": time_or_none(delivery.ended_at),
    }


def _attempt(attempt: Attempt) -> Mapping[str, object]:
    return {
        "attempt": attempt.number,
        "at": render_time(attempt.at),
        "duration_ms": attempt.duration_ms,
        "status": attempt.status,
        "error": attempt.error,
        "response_head": attempt.response_head,
    }
