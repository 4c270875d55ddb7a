"""From a request body to a webhook endpoint that may be made, or to what changes of one (contract 2.8)."""

from datetime import UTC, datetime
from typing import Final, cast

from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.deps import ApiSettings
from turnkeeper.api.fields import Fields
from turnkeeper.api.unbuilt import UnbuiltFields
from turnkeeper.events.envelope import API_VERSION
from turnkeeper.events.webhooks.addresses import AddressRefused, check_url
from turnkeeper.events.webhooks.endpoints import (
    DEFAULT_OVERLAP_HOURS,
    MAX_AGENTS,
    MAX_DESCRIPTION_CHARACTERS,
    MAX_OVERLAP_HOURS,
    MAX_TYPES,
    MAX_URL_CHARACTERS,
    EndpointChange,
    NewEndpoint,
    Ordering,
    WebhookInvalid,
    is_pattern,
)
from turnkeeper.events.webhooks.ports import Replay
from turnkeeper.ids import is_id

_MEMBERS: Final = frozenset(
    {"url", "types", "agent_ids", "ordering", "enabled", "description", "payload", "api_version"}
)
_UNBUILT: Final[UnbuiltFields] = {"payload": ("full",), "api_version": (API_VERSION,)}
_ORDERINGS: Final = ("none", "session")


def parse_endpoint(body: JsonBody, settings: ApiSettings) -> NewEndpoint:
    """The endpoint to make. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close(_MEMBERS, _UNBUILT)
    url = fields.required_text("url", max_characters=MAX_URL_CHARACTERS)
    _check_url(fields, url, settings)
    new = NewEndpoint(
        url=url,
        types=_types(fields) or ("*",),
        agent_ids=_agents(fields) or (),
        ordering=_ordering(fields) or "none",
        description=fields.text("description", max_characters=MAX_DESCRIPTION_CHARACTERS, one_line=False) or "",
        enabled=_switch(fields, "enabled") is not False,
    )
    fields.finish()
    return new


def parse_change(body: JsonBody, settings: ApiSettings) -> EndpointChange:
    """What changes of an endpoint; a member that is left out stays as it is. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close(_MEMBERS, _UNBUILT)
    url = fields.text("url", max_characters=MAX_URL_CHARACTERS)
    if url is not None:
        _check_url(fields, url, settings)
    change = EndpointChange(
        url=url,
        types=_types(fields),
        agent_ids=_agents(fields),
        ordering=_ordering(fields),
        description=fields.text("description", max_characters=MAX_DESCRIPTION_CHARACTERS, one_line=False),
        enabled=_switch(fields, "enabled"),
    )
    fields.finish()
    return change


def parse_rotation(body: JsonBody) -> int:
    """For how many hours the older secrets sign too. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"overlap_hours"}, {})
    hours = fields.integer("overlap_hours", low=0, high=MAX_OVERLAP_HOURS)
    fields.finish()
    return DEFAULT_OVERLAP_HOURS if hours is None else hours


def parse_replay(body: JsonBody, now: datetime) -> Replay:
    """Which deliveries are sent once more. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"since", "until", "types", "only"}, {})
    since = _time(fields, "since")
    until = _time(fields, "until") or now
    if since is None and not fields.has("since"):
        fields.note("since", "invalid_field", "since is required")
    replay = Replay(
        since=since or now,
        until=until,
        types=_types(fields) or ("*",),
        only="all" if fields.choice("only", ("failed", "all"), "failed") == "all" else "failed",
    )
    fields.finish()
    return replay


def _check_url(fields: Fields, url: str, settings: ApiSettings) -> None:
    if not url:
        return
    try:
        check_url(url, allow_http=settings.webhooks_allow_http, allowed=settings.webhook_networks)
    except AddressRefused as refused:
        fields.note("url", "webhook_address_refused", refused.message)
    except WebhookInvalid as invalid:
        fields.note("url", "invalid_field", invalid.message)


def _types(fields: Fields) -> tuple[str, ...] | None:
    if not fields.has("types"):
        return None
    types = fields.texts("types", max_items=MAX_TYPES)
    wrong = next((text for text in types if not is_pattern(text)), None)
    if wrong is not None:
        fields.note("types", "invalid_field", f"{wrong[:100]!r} is no event type, family (`turn.*`) or `*`")
    elif not types:
        fields.note("types", "invalid_field", "types is empty")
    return types


def _agents(fields: Fields) -> tuple[str, ...] | None:
    if not fields.has("agent_ids"):
        return None
    agents = fields.texts("agent_ids", max_items=MAX_AGENTS)
    if not all(is_id(agent, "agt") for agent in agents):
        fields.note("agent_ids", "invalid_field", "agent_ids names something that is no agent's id")
    return agents


def _ordering(fields: Fields) -> Ordering | None:
    return cast("Ordering", fields.choice("ordering", _ORDERINGS, "none")) if fields.has("ordering") else None


def _switch(fields: Fields, name: str) -> bool | None:
    value = fields.value(name)
    if value is None or isinstance(value, bool):
        return value
    fields.note(name, "invalid_field", f"{name} is not true or false")
    return None


def _time(fields: Fields, name: str) -> datetime | None:
    text = fields.text(name, max_characters=40)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        fields.note(name, "invalid_field", f"{name} is not a time with its offset, such as 2026-12-01T10:00:00Z")
        return None
    return at.astimezone(UTC)
