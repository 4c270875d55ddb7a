"""The component schemas of webhooks in the OpenAPI document (contract 2.8)."""

from typing import Any, Final

from turnkeeper.api.openapi_schemas import closed_object, id_schema, list_schema, nullable, open_object, whole_number
from turnkeeper.events.envelope import API_VERSION
from turnkeeper.events.webhooks.endpoints import (
    MAX_AGENTS,
    MAX_DESCRIPTION_CHARACTERS,
    MAX_OVERLAP_HOURS,
    MAX_REPLAYED,
    MAX_TYPES,
    MAX_URL_CHARACTERS,
    DeliveryStatus,
)

Schema = dict[str, Any]

_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_TYPES: Final[Schema] = {
    "type": "array",
    "items": {"type": "string", "pattern": r"^(\*|[a-z_]+(\.[a-z_]+)*(\.\*)?)$"},
    "minItems": 1,
    "maxItems": MAX_TYPES,
    "uniqueItems": True,
    "description": "Event types; `turn.*` is a family, `*` all of them.",
}
_MEMBERS: Final[Schema] = {
    "url": {"type": "string", "format": "uri", "minLength": 1, "maxLength": MAX_URL_CHARACTERS},
    "types": _TYPES,
    "agent_ids": {"type": "array", "items": id_schema("agt"), "maxItems": MAX_AGENTS, "uniqueItems": True},
    "payload": {"const": "full"},
    "ordering": {"enum": ["none", "session"]},
    "api_version": {"const": API_VERSION},
    "enabled": {"type": "boolean"},
    "description": {"type": "string", "maxLength": MAX_DESCRIPTION_CHARACTERS},
}
_ENDPOINT: Final[Schema] = {
    "id": id_schema("whe"),
    "object": {"const": "webhook_endpoint"},
    **_MEMBERS,
    "agent_ids": nullable(_MEMBERS["agent_ids"]),
    "disabled_reason": {"enum": [None, "gone", "failing", "operator"]},
    "failing_since": nullable(_TIME),
    "created_at": _TIME,
    "updated_at": _TIME,
}
_SECRET: Final[Schema] = {"type": "string", "pattern": "^whsec_", "description": "Shown this once."}
_STATUS: Final[Schema] = {"type": ["integer", "null"]}
_DELIVERY: Final[Schema] = {
    "id": id_schema("whd"),
    "object": {"const": "webhook_delivery"},
    "endpoint_id": id_schema("whe"),
    "event_id": id_schema("evt"),
    "event_type": {"type": "string"},
    "session_id": nullable(id_schema("ses")),
    "sequence": {"type": ["integer", "null"], "minimum": 1},
    "status": {"enum": [status.value for status in DeliveryStatus]},
    "attempts": whole_number(0),
    "last_status": _STATUS,
    "next_attempt_at": nullable(_TIME),
    "created_at": _TIME,
    "ended_at": nullable(_TIME),
}
_TRY: Final[Schema] = open_object(
    {
        "attempt": whole_number(1),
        "at": _TIME,
        "duration_ms": whole_number(0),
        "status": _STATUS,
        "error": {"type": ["string", "null"]},
        "response_head": {"type": ["string", "null"]},
    }
)

WEBHOOK_COMPONENTS: Final[Schema] = {
    "NewWebhookEndpoint": closed_object(("url",), _MEMBERS),
    "WebhookEndpointChange": closed_object((), _MEMBERS),
    "RotateSecret": closed_object((), {"overlap_hours": whole_number(0, MAX_OVERLAP_HOURS)}),
    "ReplayWebhooks": closed_object(
        ("since",), {"since": _TIME, "until": _TIME, "types": _TYPES, "only": {"enum": ["failed", "all"]}}
    ),
    "WebhookEndpoint": open_object(_ENDPOINT),
    "NewlyMadeWebhookEndpoint": open_object({**_ENDPOINT, "secret": _SECRET}),
    "WebhookSecret": open_object(
        {
            "id": id_schema("whe"),
            "object": {"const": "webhook_secret"},
            "secret": _SECRET,
            "overlap_until": nullable(_TIME),
        }
    ),
    "Deleted": open_object({"id": {"type": "string"}, "object": {"type": "string"}, "deleted": {"const": True}}),
    "Replayed": open_object(
        {
            "object": {"const": "replay"},
            "endpoint_id": id_schema("whe"),
            "count": whole_number(0, MAX_REPLAYED),
        }
    ),
    "WebhookDelivery": open_object(_DELIVERY),
    "WebhookDeliveryView": open_object(
        {
            **_DELIVERY,
            "request": open_object({"url": {"type": "string"}, "body": {"type": "object"}}),
            "tries": {"type": "array", "items": _TRY},
        }
    ),
    "WebhookEndpointList": list_schema("WebhookEndpoint"),
    "WebhookDeliveryList": list_schema("WebhookDelivery"),
}
