"""The component schemas of snapshots and stream tokens (contract 2.2 and 2.4)."""

from typing import Any, Final

from turnkeeper.api.openapi_schemas import closed_object, id_schema, nullable, open_object, whole_number
from turnkeeper.events.stream_tokens import DEFAULT_TTL_S, MAX_TTL_S

Schema = dict[str, Any]


def _listed(name: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


STREAM_COMPONENTS: Final[Schema] = {
    "NewStreamToken": closed_object((), {"ttl_s": whole_number(1, MAX_TTL_S) | {"default": DEFAULT_TTL_S}}),
    "StreamToken": open_object(
        {
            "object": {"const": "stream_token"},
            "token": {"type": "string", "pattern": "^stk_", "description": "The `stream_token` of a stream's URL."},
            "expires_at": {"type": "string", "format": "date-time"},
        }
    ),
    "SessionSnapshot": open_object(
        {
            "object": {"const": "session_snapshot"},
            "as_of": whole_number(0) | {"description": "The last event the snapshot knows of; open a stream after it."},
            "session": {"$ref": "#/components/schemas/Session"},
            "active_turn": nullable({"$ref": "#/components/schemas/Turn"}),
            "queued_turns": _listed("Turn"),
            "recent_turns": _listed("Turn"),
            "open_approvals": _listed("Approval"),
            "open_messages": {
                "type": "array",
                "description": "The messages that the active turn is writing, where its agent streams them.",
                "items": open_object(
                    {"message_id": id_schema("msg"), "text": {"type": "string"}, "offset": whole_number(0)}
                ),
            },
        }
    ),
}
