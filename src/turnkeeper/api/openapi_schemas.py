"""The component schemas of the OpenAPI document: request bodies closed, answers open to new keys (contract 14)."""

from typing import Any, Final

from turnkeeper.api.agent_harness import MAX_WORDS
from turnkeeper.api.agent_mcp import MAX_HEADERS, MAX_SERVER_TOOLS, MAX_SERVERS, MAX_VARIABLES
from turnkeeper.api.agent_sandbox import LEAST_CPU_MILLIS, MAX_POOL_CHARACTERS
from turnkeeper.api.openapi_agent_skills import AGENT_SKILLS
from turnkeeper.api.openapi_approvals import APPROVAL_ANSWERS, APPROVAL_REQUESTS, CLIENT_TOOL, PAUSE, PERMISSIONS
from turnkeeper.api.openapi_subagents import SUBAGENTS
from turnkeeper.api.problems import PROBLEMS
from turnkeeper.turns.mcp_server import SERVER_NAME
from turnkeeper.turns.model import HARNESS_KINDS, REMOTE, StopReason, TurnStatus
from turnkeeper.turns.pausing import MAX_PAUSE_EXPIRY_MS
from turnkeeper.turns.retention import MAX_RETENTION_DAYS

Schema = dict[str, Any]


def id_schema(prefix: str) -> Schema:
    """An id with a prefix."""
    return {"type": "string", "pattern": f"^{prefix}_[0-9A-HJKMNP-TV-Z]{{26}}$"}


def closed_object(required: tuple[str, ...], properties: Schema) -> Schema:
    """An object of these members alone."""
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def open_object(properties: Schema) -> Schema:
    """An object with at least these members."""
    return {"type": "object", "required": list(properties), "properties": properties}


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def list_schema(name: str) -> Schema:
    """A page of a component."""
    return open_object(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}},
            "has_more": {"type": "boolean"},
            "next_cursor": nullable({"type": "string"}),
        }
    )


def whole_number(low: int, high: int | None = None) -> Schema:
    """An integer of a range."""
    return {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})


_NULL: Final[Schema] = {"type": "null"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_METADATA: Final[Schema] = {"type": "object", "description": "Echoed token for token; at most 16 KiB."}
_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
_MCP_SERVER: Final[Schema] = closed_object(
    ("name",),
    {
        "name": {"type": "string", "pattern": SERVER_NAME.pattern.replace("\\Z", "$")},
        "command": nullable({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_WORDS}),
        "env": nullable({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": MAX_VARIABLES}),
        "url": nullable({"type": "string", "description": "Streamable HTTP, through the agent's egress."}),
        "headers": nullable(
            {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "maxProperties": MAX_HEADERS,
                "description": "In a value, `${NAME}` stands for the session's secret of that name.",
            }
        ),
        "tools": nullable(
            {**_TEXTS, "maxItems": MAX_SERVER_TOOLS, "description": "Those that are offered; null: all."}
        ),
    },
)
_NETWORK: Final[Schema] = nullable(
    closed_object(
        (),
        {
            "egress": {"enum": ["none", "listed"], "description": "Nothing, or what `allow` lists."},
            "allow": {
                "type": "array",
                "items": {"type": "string", "description": "`host`, `*.host`, each with or without `:port`."},
                "uniqueItems": True,
                "maxItems": 100,
            },
        },
    )
)
_SESSION_SECRETS: Final[Schema] = {
    "type": "array",
    "items": closed_object(
        ("name", "ref"),
        {
            "name": {"type": "string", "pattern": r"^[A-Z_][A-Z0-9_]{0,63}$", "description": "A variable in the box."},
            "ref": {"type": "string", "minLength": 1, "maxLength": 64, "description": "The name of a secret."},
        },
    ),
    "maxItems": 20,
}
_NAME: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "pattern": r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$",
}
_TITLE: Final[Schema] = {"type": ["string", "null"], "maxLength": 200, "pattern": r"^[^\x00-\x1f\x7f]*$"}
_TEXT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 262_144, "pattern": r"\S"}
LIMITS: Final[Schema] = {
    **{
        name: {"type": ["integer", "null"], "minimum": 1, "maximum": 2**53 - 1}
        for name in ("max_model_calls", "max_total_tokens", "max_output_tokens", "max_tool_calls", "max_active_ms")
    },
    "max_cost": nullable(
        closed_object(
            ("amount", "currency"),
            {
                # Without a lookahead, so that engines with linear-time patterns read it too.
                "amount": {
                    "type": "string",
                    "pattern": r"^(0|[1-9][0-9]{0,11})(\.[0-9]{1,12})?$",
                    "not": {"pattern": r"^0(\.0+)?$"},
                },
                "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
            },
        )
    ),
}
_COST: Final[Schema] = nullable(open_object({"amount": {"type": "string"}, "currency": {"type": "string"}}))
_TOKENS: Final[Schema] = {
    name: whole_number(0)
    for name in ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
}

_TURN_MEMBERS: Final[Schema] = {
    "input": {
        "anyOf": [
            _TEXT,
            {
                "type": "array",
                "minItems": 1,
                "maxItems": 100,
                "items": {
                    "anyOf": [
                        closed_object(("type", "text"), {"type": {"const": "text"}, "text": _TEXT}),
                        closed_object(("type", "value"), {"type": {"const": "json"}, "value": {}}),
                        closed_object(("type", "file_id"), {"type": {"const": "file"}, "file_id": id_schema("fil")}),
                    ]
                },
            },
        ]
    },
    "output_schema": {"description": "A JSON Schema of draft 2020-12, at most 64 KiB, local references only."},
    "metadata": _METADATA,
    "budget": {"$ref": "#/components/schemas/Budget"},
    "max_repair_attempts": whole_number(0, 10),
    "max_attempts": whole_number(1, 5),
    "on_busy": {"enum": ["enqueue", "reject", "interrupt"]},
    "start_by": _TIME,
}

_REQUESTS: Final[Schema] = {
    "Budget": closed_object((), LIMITS),
    "NewAgent": closed_object(
        ("name", "model"),
        {
            "name": _NAME,
            "model": closed_object(
                ("provider", "id"),
                {
                    "provider": {"type": "string", "description": "The name of a configured provider."},
                    "id": _NAME,
                    "params": {"type": "object", "description": "Request parameters that the model gateway knows."},
                },
            ),
            "instructions": {"type": "string", "maxLength": 262_144},
            "tools": {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, CLIENT_TOOL]},
                "uniqueItems": True,
                "maxItems": 64,
            },
            "permissions": PERMISSIONS,
            "sandbox": nullable(
                closed_object(
                    (),
                    {
                        "cpu": nullable({"type": "number", "minimum": LEAST_CPU_MILLIS / 1000}),
                        "memory_mib": nullable(whole_number(1)),
                        "disk_mib": nullable(whole_number(1)),
                        "network": _NETWORK,
                        "kind": nullable({"enum": [REMOTE]}),
                        "pool": nullable({"type": "string", "maxLength": MAX_POOL_CHARACTERS}),
                    },
                )
            ),
            "harness": nullable(
                closed_object(
                    (),
                    {
                        "kind": {"enum": list(HARNESS_KINDS), "default": "builtin"},
                        "command": nullable({"type": "array", "items": {"type": "string"}, "maxItems": MAX_WORDS}),
                    },
                )
            ),
            "mcp_servers": nullable({"type": "array", "maxItems": MAX_SERVERS, "items": _MCP_SERVER}),
            "subagents": SUBAGENTS,
            "skills": AGENT_SKILLS,
            "limits": closed_object(
                (),
                {
                    "timeout_ms": whole_number(1, 86_400_000),
                    "max_repair_attempts": whole_number(0, 10),
                    "max_attempts": whole_number(1, 5),
                    "pause_expiry_ms": whole_number(1, MAX_PAUSE_EXPIRY_MS),
                },
            ),
            "guardian": closed_object(
                (),
                {
                    "stream_before_decision": {
                        "type": "boolean",
                        "description": "Whether text is streamed while it is written, before the Guardian decided.",
                    }
                },
            ),
            "metadata": _METADATA,
        },
    ),
    "NewSession": closed_object(
        ("agent_id",),
        {
            "agent_id": id_schema("agt"),
            "agent_version": whole_number(1),
            "title": _TITLE,
            "budget": {"$ref": "#/components/schemas/Budget"},
            "metadata": _METADATA,
            "retention_days": whole_number(1, MAX_RETENTION_DAYS),
            "network": _NETWORK,
            "secrets": _SESSION_SECRETS,
        },
    ),
    "SessionChange": closed_object(
        (), {"title": _TITLE, "metadata": _METADATA, "retention_days": whole_number(1, MAX_RETENTION_DAYS)}
    ),
    "CloseSession": closed_object((), {"mode": {"enum": ["drain", "cancel"], "default": "drain"}}),
    "NewTurn": closed_object(("input",), _TURN_MEMBERS),
    "NewLoneTurn": closed_object(
        ("agent_id", "input"), {"agent_id": id_schema("agt"), "title": _TITLE, **_TURN_MEMBERS}
    ),
    "RetryTurn": closed_object((), {"metadata": _METADATA, "budget": {"$ref": "#/components/schemas/Budget"}}),
    "CancelTurn": closed_object(
        (), {"mode": {"enum": ["graceful", "immediate"], "default": "graceful"}, "reason": {**_TITLE, "maxLength": 500}}
    ),
}

_ANSWERS: Final[Schema] = {
    "Agent": open_object(
        {
            "id": id_schema("agt"),
            "object": {"const": "agent"},
            "version": whole_number(1),
            "name": {"type": "string"},
            "model": open_object(
                {"provider": {"type": "string"}, "id": {"type": "string"}, "params": {"type": "object"}}
            ),
            "instructions": {"type": "string"},
            "tools": {"type": "array", "items": {"type": ["string", "object"]}},
            "permissions": {"type": "object"},
            "sandbox": {"type": "object"},
            "harness": {"type": "object"},
            "mcp_servers": {"type": "array", "items": {"type": "object"}},
            "subagents": {"type": "array", "items": {"type": "object"}},
            "skills": {"type": "array", "items": {"type": "object"}},
            "limits": {"type": "object"},
            "guardian": {"type": "object"},
            "budget_id": nullable(id_schema("bud")),
            "metadata": {"type": "object"},
            "created_at": _TIME,
            "archived_at": nullable(_TIME),
        }
    ),
    "Session": open_object(
        {
            "id": id_schema("ses"),
            "object": {"const": "session"},
            "agent_id": id_schema("agt"),
            "agent_version": whole_number(1),
            "status": {"enum": ["idle", "busy", "paused", "closing", "closed"]},
            "active_turn_id": nullable(id_schema("trn")),
            "queue_depth": whole_number(0),
            "last_sequence": whole_number(0),
            "oldest_sequence": whole_number(0),
            "workspace": {"type": "object"},
            "network": nullable({"type": "object"}),
            "secrets": {"type": "array"},
            "budget_id": nullable(id_schema("bud")),
            "budget": nullable({"type": "object"}),
            "usage": nullable({"$ref": "#/components/schemas/Usage"}),
            "title": {"type": ["string", "null"]},
            "metadata": {"type": "object"},
            "created_at": _TIME,
            "last_active_at": _TIME,
            "closed_at": nullable(_TIME),
            "retention_days": nullable(whole_number(1)),
            "expires_at": nullable(_TIME),
        }
    ),
    "Usage": open_object(
        {
            **_TOKENS,
            "total_tokens": whole_number(0),
            "model_calls": whole_number(0),
            "tool_calls": whole_number(0),
            "sandbox_ms": whole_number(0),
            "cost": _COST,
            "by_model": {
                "type": "array",
                "items": open_object(
                    {"model": {"type": "string"}, **_TOKENS, "model_calls": whole_number(0), "cost": _COST}
                ),
            },
            "estimated": {"type": "boolean"},
        }
    ),
    "Turn": open_object(
        {
            "id": id_schema("trn"),
            "object": {"const": "turn"},
            "session_id": id_schema("ses"),
            "agent_id": id_schema("agt"),
            "agent_version": whole_number(1),
            "status": {"enum": [status.value for status in TurnStatus]},
            "stop_reason": {"enum": [None, *(reason.value for reason in StopReason)]},
            "input": {"type": ["string", "array"]},
            "output_schema": {},
            "output": nullable(open_object({"text": {"type": "string"}})),
            "result": {},
            "result_error": {"enum": [None, "not_submitted", "invalid", "withheld"]},
            "usage": {"$ref": "#/components/schemas/Usage"},
            "metadata": {"type": "object"},
            "idempotency_key": {"type": ["string", "null"]},
            "budget": nullable({"type": "object"}),
            "on_busy": {"enum": ["enqueue", "reject", "interrupt"]},
            "priority": {"const": "interactive"},
            "queue_position": {"type": ["integer", "null"]},
            "blocked_by": {"type": ["object", "null"]},
            "attempt": whole_number(0),
            "max_attempts": whole_number(1),
            "repair_attempts_left": {"type": ["integer", "null"]},
            "pause": PAUSE,
            "error": nullable(
                open_object(
                    {
                        "type": {"type": "string"},
                        "code": {"type": "string"},
                        "message": {"type": "string"},
                        "retryable": {"type": "boolean"},
                    }
                )
            ),
            "parent_turn_id": _NULL,
            "retry_of": nullable(id_schema("trn")),
            "cancel_requested_at": nullable(_TIME),
            "created_at": _TIME,
            "started_at": nullable(_TIME),
            "ended_at": nullable(_TIME),
            "start_by": nullable(_TIME),
            "duration_ms": {"type": ["integer", "null"], "minimum": 0},
            "first_sequence": whole_number(1),
            "last_sequence": whole_number(1),
        }
    ),
    "Submission": open_object(
        {
            "submission": whole_number(1),
            "valid": {"type": "boolean"},
            "value": {},
            "errors": {"type": "array", "items": {"type": "object"}},
            "withheld": {"type": "boolean", "description": "The value was not allowed out, or not yet."},
        }
    ),
    "Event": open_object(
        {
            "id": id_schema("evt"),
            "object": {"const": "event"},
            "type": {"type": "string"},
            "api_version": {"type": "string"},
            "created_at": _TIME,
            "source": {"enum": ["sandbox", "platform"]},
            "project_id": id_schema("prj"),
            "session_id": nullable(id_schema("ses")),
            "turn_id": nullable(id_schema("trn")),
            "sequence": {"type": ["integer", "null"], "minimum": 1},
            "attempt": {"type": ["integer", "null"], "minimum": 0},
            "thread_id": nullable(id_schema("thr")),
            "data": {"type": ["object", "null"]},
            "data_url": _NULL,
        }
    ),
    "Problem": open_object(
        {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": whole_number(400, 599),
            "detail": {"type": "string"},
            "code": {"enum": list(PROBLEMS)},
            "param": {"type": ["string", "null"]},
            "request_id": id_schema("req"),
            "retry_after_ms": {"type": ["integer", "null"]},
            "errors": {
                "type": "array",
                "items": open_object(
                    {"pointer": {"type": "string"}, "code": {"type": "string"}, "detail": {"type": "string"}}
                ),
            },
            "hint": {"type": "string"},
        }
    ),
    "Health": open_object({"status": {"const": "ok"}}),
    "Readiness": open_object(
        {
            "ready": {"type": "boolean"},
            "checks": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "counters": {"type": "object", "additionalProperties": {"type": "integer"}},
            "draining": {"type": "boolean", "description": "An operator has turns refused, in every process."},
            "stopping": {"type": "boolean", "description": "This process ends."},
        }
    ),
}

COMPONENTS: Final[Schema] = {
    **_REQUESTS,
    **_ANSWERS,
    **APPROVAL_REQUESTS,
    **APPROVAL_ANSWERS,
    **{
        f"{name}List": list_schema(name)
        for name in ("Agent", "Session", "Turn", "Submission", "Event", "Approval", "ApprovalRule")
    },
}

# A new version has what is named and keeps the rest.
COMPONENTS["AgentChange"] = closed_object(
    ("expected_version",), {**COMPONENTS["NewAgent"]["properties"], "expected_version": whole_number(1)}
)
# What an agent is made with, and no version changes.
COMPONENTS["NewAgent"]["properties"] |= {"budget": {"$ref": "#/components/schemas/Budget"}}
