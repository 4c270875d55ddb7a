"""The component schemas of API keys, and of what operators see, in the OpenAPI document (contract 2.9)."""

from typing import Any, Final

from turnkeeper.api.openapi_schemas import closed_object, id_schema, list_schema, nullable, open_object, whole_number
from turnkeeper.events.envelope import API_VERSION
from turnkeeper.turns.access import (
    ALL_SCOPES,
    MAX_KEY_AGENTS,
    MAX_KEY_NAME_CHARACTERS,
    MAX_LIMIT,
    MAX_OVERLAP_HOURS,
    SCOPES,
)

Schema = dict[str, Any]

_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_LIMITS: Final[Schema] = {
    name: nullable(whole_number(1, MAX_LIMIT))
    for name in ("requests_per_minute", "concurrent_turns", "queued_turns", "streams")
}
_MEMBERS: Final[Schema] = {
    "name": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_NAME_CHARACTERS, "pattern": r"\S"},
    "scopes": {
        "type": "array",
        "items": {"enum": [ALL_SCOPES, *SCOPES]},
        "minItems": 1,
        "maxItems": len(SCOPES),
        "uniqueItems": True,
        "description": "What the key may do; `*` is every scope there is and will be.",
    },
    "agent_ids": {"type": "array", "items": id_schema("agt"), "maxItems": MAX_KEY_AGENTS, "uniqueItems": True},
    "limits": closed_object((), _LIMITS),
    "api_version": {"const": API_VERSION},
    "expires_at": _TIME,
}
_KEY: Final[Schema] = {
    "id": id_schema("key"),
    "object": {"const": "api_key"},
    "project_id": id_schema("prj"),
    **_MEMBERS,
    "agent_ids": nullable(_MEMBERS["agent_ids"]),
    "limits": open_object(_LIMITS),
    "budget_id": {"type": "null"},
    "expires_at": nullable(_TIME),
    "last_used_at": nullable(_TIME),
    "created_at": _TIME,
    "revoked_at": nullable(_TIME),
}
_SECRET: Final[Schema] = {"type": "string", "pattern": "^tk_", "description": "Shown this once."}

KEY_COMPONENTS: Final[Schema] = {
    "QueueState": open_object(
        {
            "object": {"const": "queue"},
            **{name: whole_number(0) for name in ("depth", "oldest_queued_ms", "starting", "running", "paused")},
            "runners": open_object({"idle": {"type": "null"}, "busy": whole_number(0)}),
            "by_pool": {"type": "array"},
        }
    ),
    "OperatorWord": closed_object(
        (), {"reason": {"type": ["string", "null"], "maxLength": 500, "pattern": r"^[^\x00-\x1f\x7f]*$"}}
    ),
    "Drain": open_object(
        {
            "object": {"const": "drain"},
            "draining": {"type": "boolean", "description": "No turn is accepted or begun."},
            "since": nullable(_TIME),
            "reason": {"type": ["string", "null"]},
            "asked_by": nullable(open_object({"type": {"type": "string"}, "id": {"type": ["string", "null"]}})),
            "drained": {"type": "boolean", "description": "And no worker holds a turn any more."},
            "turns": open_object({name: whole_number(0) for name in ("queued", "starting", "running", "paused")}),
        }
    ),
    "NewApiKey": closed_object(("name", "scopes"), _MEMBERS),
    "ApiKeyChange": closed_object((), _MEMBERS),
    "RotateApiKey": closed_object((), {"overlap_hours": whole_number(0, MAX_OVERLAP_HOURS)}),
    "ApiKey": open_object(_KEY),
    "NewlyMadeApiKey": open_object({**_KEY, "secret": _SECRET}),
    "RotatedApiKey": open_object({**_KEY, "secret": _SECRET, "overlap_until": nullable(_TIME)}),
    "ApiKeyList": list_schema("ApiKey"),
}
