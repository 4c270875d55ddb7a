"""The component schemas of approvals, remembered answers and client-side tools."""

from typing import Any, Final

from turnkeeper.turns.approvals import APPROVAL_STATUSES

Schema = dict[str, Any]

_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_TIME_OR_NULL: Final[Schema] = {"anyOf": [_TIME, {"type": "null"}]}
_HASH: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def _id(prefix: str) -> Schema:
    return {"type": "string", "pattern": f"^{prefix}_[0-9A-HJKMNP-TV-Z]{{26}}$"}


def _open(properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _closed(required: tuple[str, ...], properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


CLIENT_TOOL: Final[Schema] = _closed(
    ("kind", "name", "description", "input_schema"),
    {
        "kind": {"const": "client"},
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "description": {"type": "string", "minLength": 1, "maxLength": 2_000, "pattern": r"\S"},
        "input_schema": {"type": "object", "description": "A JSON Schema whose `type` is `object`, at most 16 KiB."},
    },
)
PERMISSIONS: Final[Schema] = {
    "type": "object",
    "maxProperties": 64,
    "propertyNames": {"pattern": "^[A-Za-z0-9_.*-]{1,128}$"},
    "additionalProperties": {"enum": ["allow", "ask", "deny"]},
    "description": "By name of a tool, `*` for any characters; the most specific pattern counts.",
}
PAUSE: Final[Schema] = {
    "anyOf": [
        _open(
            {
                "reason": {"enum": ["approval", "deferral", "client_tool"]},
                "waits_for": {"type": "array", "items": {"type": "string"}},
                "expires_at": _TIME_OR_NULL,
                "deferrals": {"type": "integer", "minimum": 0},
            }
        ),
        {"type": "null"},
    ]
}
APPROVAL_REQUESTS: Final[Schema] = {
    "Decision": _closed(
        ("decision",),
        {
            "decision": {"enum": ["approve", "deny"]},
            "input_hash": {**_HASH, "description": "Of the input that was seen; another one is refused."},
            "modified_input": {"type": "object", "description": "Other arguments; goes with approve."},
            "context": {"type": "object", "description": "What the Guardian did not know; goes with approve."},
            "remember": {"enum": ["once", "session"], "default": "once"},
            "note": {"type": "string", "maxLength": 1_000},
        },
    ),
    "ToolResult": _closed(
        ("tool_call_id",),
        {
            "tool_call_id": _id("tcl"),
            "output": {"description": "What the tool gave; text as it is, anything else as JSON text."},
            "error": {"type": "string", "maxLength": 262_144, "description": "Why there is no output."},
        },
    ),
}
APPROVAL_ANSWERS: Final[Schema] = {
    "Approval": _open(
        {
            "id": _id("apr"),
            "object": {"const": "approval"},
            "kind": {"enum": ["ask", "deferral", "policy"]},
            "session_id": _id("ses"),
            "turn_id": _id("trn"),
            "tool_call_id": _id("tcl"),
            "status": {"enum": list(APPROVAL_STATUSES)},
            "origin": {"enum": ["guardian", "agent_policy"]},
            "tool": _open(
                {
                    "name": {"type": "string"},
                    "kind": {"enum": ["builtin", "client", "mcp"]},
                    "server": {"type": "null"},
                    "input_preview": {},
                    "input_hash": _HASH,
                }
            ),
            "question": {"type": "string"},
            "reasons": {"type": "array", "items": {"type": "string"}},
            "created_at": _TIME,
            "expires_at": _TIME,
            "on_expiry": {"const": "deny"},
            "decided_at": _TIME_OR_NULL,
            "decided_by": {"type": ["object", "null"]},
            "note": {"type": ["string", "null"]},
            "remember": {"enum": [None, "once", "session"]},
            "modified_input": {"type": ["object", "null"]},
            "context": {"type": ["object", "null"]},
        }
    ),
    "ApprovalRule": _open(
        {
            "id": _id("apr"),
            "object": {"const": "approval_rule"},
            "session_id": _id("ses"),
            "tool": {"type": "string"},
            "input_hash": _HASH,
            "origin": {"enum": ["guardian", "agent_policy"]},
            "created_at": _TIME,
            "decided_by": {"type": "object"},
        }
    ),
}
