"""From a request body to an API key that may be made, or to what changes of one (contract 2.9)."""

from datetime import datetime
from typing import Final

from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.fields import Fields
from turnkeeper.api.unbuilt import UnbuiltFields
from turnkeeper.events.envelope import API_VERSION
from turnkeeper.ids import is_id
from turnkeeper.turns.access import (
    ALL_SCOPES,
    DEFAULT_OVERLAP_HOURS,
    MAX_KEY_AGENTS,
    MAX_KEY_NAME_CHARACTERS,
    MAX_LIMIT,
    MAX_OVERLAP_HOURS,
    SCOPES,
    KeyChange,
    NewKey,
)
from turnkeeper.turns.model import KeyLimits

_MEMBERS: Final = frozenset({"name", "scopes", "agent_ids", "limits", "expires_at", "api_version"})
_UNBUILT: Final[UnbuiltFields] = {"api_version": (API_VERSION,), "budget_id": ()}
_LIMITS: Final = ("requests_per_minute", "concurrent_turns", "queued_turns", "streams")


def parse_key_body(body: JsonBody, now: datetime, *, secret_sha256: str, project_id: str) -> NewKey:
    """The key to make. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close(_MEMBERS, _UNBUILT)
    name = fields.required_text("name", max_characters=MAX_KEY_NAME_CHARACTERS)
    scopes, limits = _scopes(fields), _limits(fields)
    if scopes is None:
        fields.note("scopes", "invalid_field", '/scopes is required: a list of scopes, or ["*"] for all')
    new = NewKey(
        name=name,
        secret_sha256=secret_sha256,
        project_id=project_id,
        scopes=scopes or (),
        agent_ids=_agents(fields) or (),
        limits=limits or KeyLimits(),
        expires_at=_expiry(fields, now),
    )
    fields.finish()
    return new


def parse_key_change(body: JsonBody, now: datetime) -> KeyChange:
    """What changes of a key; a member that is left out stays as it is. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close(_MEMBERS, _UNBUILT)
    name = fields.required_text("name", max_characters=MAX_KEY_NAME_CHARACTERS) if fields.has("name") else None
    change = KeyChange(
        name=name,
        scopes=_scopes(fields),
        agent_ids=_agents(fields),
        limits=_limits(fields),
        expires_at=_expiry(fields, now),
    )
    fields.finish()
    return change


def parse_key_rotation(body: JsonBody) -> int:
    """For how many hours the older secret works too. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"overlap_hours"}, {})
    hours = fields.integer("overlap_hours", low=0, high=MAX_OVERLAP_HOURS)
    fields.finish()
    return DEFAULT_OVERLAP_HOURS if hours is None else hours


def _scopes(fields: Fields) -> tuple[str, ...] | None:
    if not fields.has("scopes"):
        return None
    scopes = fields.texts("scopes", max_items=len(SCOPES))
    wrong = next((scope for scope in scopes if scope not in (ALL_SCOPES, *SCOPES)), None)
    if wrong is not None:
        fields.note("scopes", "invalid_field", f"{wrong[:100]!r} is no scope; there are {', '.join(SCOPES)}")
    elif not scopes:
        fields.note("scopes", "invalid_field", "/scopes is empty")
    return scopes


def _agents(fields: Fields) -> tuple[str, ...] | None:
    if not fields.has("agent_ids"):
        return None
    agent_ids = fields.texts("agent_ids", max_items=MAX_KEY_AGENTS)
    if not all(is_id(agent_id, "agt") for agent_id in agent_ids):
        fields.note("agent_ids", "invalid_field", "/agent_ids names something that is no agent's id")
    return agent_ids


def _limits(fields: Fields) -> KeyLimits | None:
    limits = fields.object("limits")
    if limits is None:
        return None
    limits.close(_LIMITS, {})
    return KeyLimits(*(limits.integer(name, low=1, high=MAX_LIMIT) for name in _LIMITS))


def _expiry(fields: Fields, now: datetime) -> datetime | None:
    expires_at = fields.time("expires_at")
    if expires_at is not None and expires_at <= now:
        fields.note("expires_at", "invalid_field", "/expires_at is not in the future")
    return expires_at
