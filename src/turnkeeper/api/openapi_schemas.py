"""The component schemas of the OpenAPI document: request bodies closed, answers open to new keys (contract 14)."""

from typing import Any, Final

from turnkeeper.api.problems import PROBLEMS
from turnkeeper.turns.model import StopReason, TurnStatus

Schema = dict[str, Any]


def _id(prefix: str) -> Schema:
    return {"type": "string", "pattern": f"^{prefix}_[0-9A-HJKMNP-TV-Z]{{26}}$"}


def _closed(required: tuple[str, ...], properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _open(properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list_of(name: str) -> Schema:
    return _open(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}},
            "has_more": {"type": "boolean"},
            "next_cursor": _or_null({"type": "string"}),
        }
    )


def _whole(low: int, high: int | None = None) -> Schema:
    return {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})


_NULL: Final[Schema] = {"type": "null"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_METADATA: Final[Schema] = {"type": "object", "description": "Echoed token for token; at most 16 KiB."}
_NAME: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "pattern": r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$",
}
_TITLE: Final[Schema] = {"type": ["string", "null"], "maxLength": 200, "pattern": r"^[^\x00-\x1f\x7f]*$"}
_TEXT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 262_144, "pattern": r"\S"}
_LIMITS: Final[Schema] = {
    name: {"type": ["integer", "null"], "minimum": 1, "maximum": 2**53 - 1}
    for name in ("max_model_calls", "max_total_tokens", "max_output_tokens")
}
_COST: Final[Schema] = _or_null(_open({"amount": {"type": "string"}, "currency": {"type": "string"}}))
_TOKENS: Final[Schema] = {
    name: _whole(0)
    for name in ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
}

_REQUESTS: Final[Schema] = {
    "Budget": _closed((), _LIMITS),
    "NewAgent": _closed(
        ("name", "model"),
        {
            "name": _NAME,
            "model": _closed(
                ("provider", "id"),
                {
                    "provider": {"type": "string", "description": "The name of a configured provider."},
                    "id": _NAME,
                    "params": {"type": "object", "description": "Request parameters that the model gateway knows."},
                },
            ),
            "instructions": {"type": "string", "maxLength": 262_144},
            "tools": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 64},
            "limits": _closed((), {"timeout_ms": _whole(1, 86_400_000), "max_repair_attempts": _whole(0, 10)}),
            "metadata": _METADATA,
        },
    ),
    "NewSession": _closed(
        ("agent_id",),
        {
            "agent_id": _id("agt"),
            "title": _TITLE,
            "budget": {"$ref": "#/components/schemas/Budget"},
            "metadata": _METADATA,
        },
    ),
    "CloseSession": _closed((), {"mode": {"enum": ["drain", "cancel"], "default": "drain"}}),
    "NewTurn": _closed(
        ("input",),
        {
            "input": {
                "anyOf": [
                    _TEXT,
                    {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 100,
                        "items": {
                            "anyOf": [
                                _closed(("type", "text"), {"type": {"const": "text"}, "text": _TEXT}),
                                _closed(("type", "value"), {"type": {"const": "json"}, "value": {}}),
                            ]
                        },
                    },
                ]
            },
            "output_schema": {"description": "A JSON Schema of draft 2020-12, at most 64 KiB, local references only."},
            "metadata": _METADATA,
            "budget": {"$ref": "#/components/schemas/Budget"},
            "max_repair_attempts": _whole(0, 10),
        },
    ),
    "CancelTurn": _closed(
        (), {"mode": {"enum": ["graceful", "immediate"], "default": "graceful"}, "reason": {**_TITLE, "maxLength": 500}}
    ),
}

_ANSWERS: Final[Schema] = {
    "Agent": _open(
        {
            "id": _id("agt"),
            "object": {"const": "agent"},
            "version": _whole(1),
            "name": {"type": "string"},
            "model": _open({"provider": {"type": "string"}, "id": {"type": "string"}, "params": {"type": "object"}}),
            "instructions": {"type": "string"},
            "tools": {"type": "array", "items": {"type": "string"}},
            "limits": {"type": "object"},
            "metadata": {"type": "object"},
            "created_at": _TIME,
            "archived_at": _NULL,
        }
    ),
    "Session": _open(
        {
            "id": _id("ses"),
            "object": {"const": "session"},
            "agent_id": _id("agt"),
            "agent_version": _whole(1),
            "status": {"enum": ["idle", "busy", "closing", "closed"]},
            "active_turn_id": _or_null(_id("trn")),
            "queue_depth": _whole(0),
            "last_sequence": _whole(0),
            "oldest_sequence": _whole(0),
            "workspace": {"type": "object"},
            "budget_id": _NULL,
            "budget": _or_null({"type": "object"}),
            "usage": _NULL,
            "title": {"type": ["string", "null"]},
            "metadata": {"type": "object"},
            "created_at": _TIME,
            "last_active_at": _TIME,
            "closed_at": _or_null(_TIME),
            "expires_at": _NULL,
        }
    ),
    "Usage": _open(
        {
            **_TOKENS,
            "total_tokens": _whole(0),
            "model_calls": _whole(0),
            "tool_calls": _whole(0),
            "sandbox_ms": _whole(0),
            "cost": _COST,
            "by_model": {
                "type": "array",
                "items": _open({"model": {"type": "string"}, **_TOKENS, "model_calls": _whole(0), "cost": _COST}),
            },
            "estimated": {"type": "boolean"},
        }
    ),
    "Turn": _open(
        {
            "id": _id("trn"),
            "object": {"const": "turn"},
            "session_id": _id("ses"),
            "agent_id": _id("agt"),
            "agent_version": _whole(1),
            "status": {"enum": [status.value for status in TurnStatus]},
            "stop_reason": {"enum": [None, *(reason.value for reason in StopReason)]},
            "input": {"type": ["string", "array"]},
            "output_schema": {},
            "output": _or_null(_open({"text": {"type": "string"}})),
            "result": {},
            "result_error": {"enum": [None, "not_submitted", "invalid", "withheld"]},
            "usage": {"$ref": "#/components/schemas/Usage"},
            "metadata": {"type": "object"},
            "idempotency_key": {"type": ["string", "null"]},
            "budget": _or_null({"type": "object"}),
            "on_busy": {"const": "enqueue"},
            "priority": {"const": "interactive"},
            "queue_position": {"type": ["integer", "null"]},
            "blocked_by": {"type": ["object", "null"]},
            "attempt": _whole(0),
            "max_attempts": _whole(1),
            "repair_attempts_left": {"type": ["integer", "null"]},
            "pause": _NULL,
            "error": _or_null(
                _open(
                    {
                        "type": {"type": "string"},
                        "code": {"type": "string"},
                        "message": {"type": "string"},
                        "retryable": {"type": "boolean"},
                    }
                )
            ),
            "parent_turn_id": _NULL,
            "retry_of": _NULL,
            "cancel_requested_at": _or_null(_TIME),
            "created_at": _TIME,
            "started_at": _or_null(_TIME),
            "ended_at": _or_null(_TIME),
            "start_by": _NULL,
            "duration_ms": {"type": ["integer", "null"], "minimum": 0},
            "first_sequence": _whole(1),
            "last_sequence": _whole(1),
        }
    ),
    "Submission": _open(
        {
            "submission": _whole(1),
            "valid": {"type": "boolean"},
            "value": {},
            "errors": {"type": "array", "items": {"type": "object"}},
            "withheld": {"type": "boolean", "description": "The value was not allowed out, or not yet."},
        }
    ),
    "Event": _open(
        {
            "id": _id("evt"),
            "object": {"const": "event"},
            "type": {"type": "string"},
            "api_version": {"type": "string"},
            "created_at": _TIME,
            "source": {"enum": ["sandbox", "platform"]},
            "project_id": _id("prj"),
            "session_id": _id("ses"),
            "turn_id": _or_null(_id("trn")),
            "sequence": {"type": ["integer", "null"], "minimum": 1},
            "attempt": {"type": ["integer", "null"], "minimum": 0},
            "thread_id": _NULL,
            "data": {"type": ["object", "null"]},
            "data_url": _NULL,
        }
    ),
    "Problem": _open(
        {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": _whole(400, 599),
            "detail": {"type": "string"},
            "code": {"enum": list(PROBLEMS)},
            "param": {"type": ["string", "null"]},
            "request_id": _id("req"),
            "retry_after_ms": {"type": ["integer", "null"]},
            "errors": {
                "type": "array",
                "items": _open(
                    {"pointer": {"type": "string"}, "code": {"type": "string"}, "detail": {"type": "string"}}
                ),
            },
            "hint": {"type": "string"},
        }
    ),
    "Health": _open({"status": {"const": "ok"}}),
    "Readiness": _open(
        {
            "ready": {"type": "boolean"},
            "checks": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "counters": {"type": "object", "additionalProperties": {"type": "integer"}},
        }
    ),
}

COMPONENTS: Final[Schema] = {
    **_REQUESTS,
    **_ANSWERS,
    **{f"{name}List": _list_of(name) for name in ("Agent", "Session", "Turn", "Submission", "Event")},
}
