"""API keys as the API shows them (contract 2.9). A secret is shown once, when it is made."""

from dataclasses import asdict
from datetime import datetime

import orjson

from turnkeeper.api.reads import time_or_none
from turnkeeper.clock import render_time
from turnkeeper.events.envelope import API_VERSION
from turnkeeper.turns.model import ApiKey


def render_key(key: ApiKey, **shown_once: str | None) -> bytes:
    """The key object; `shown_once` has the secret where one was just made."""
    return orjson.dumps(
        {
            "id": key.id,
            "object": "api_key",
            "name": key.name,
            "project_id": key.project_id,
            "scopes": key.scopes,
            "agent_ids": key.agent_ids or None,
            "limits": asdict(key.limits),
            "budget_id": None,
            "api_version": API_VERSION,
            "expires_at": time_or_none(key.expires_at),
            "last_used_at": time_or_none(key.last_used_at),
            "created_at": render_time(key.created_at),
            "revoked_at": time_or_none(key.revoked_at),
            **shown_once,
        }
    )


def render_rotated(key: ApiKey, secret: str, overlap_until: datetime | None) -> bytes:
    """The key with its new secret, and until when the older one works too."""
    return render_key(key, secret=secret, overlap_until=time_or_none(overlap_until))
