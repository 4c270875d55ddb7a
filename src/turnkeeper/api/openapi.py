"""The OpenAPI document: what FastAPI cannot see is written here by hand.

Bodies are parsed by our own strict reader and answers are rendered text, so both are described by the component
schemas; routes name them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastapi import FastAPI

from turnkeeper.api.filters import SESSION_VIEWS
from turnkeeper.api.openapi_budgets import BUDGET_COMPONENTS
from turnkeeper.api.openapi_files import FILE_COMPONENTS
from turnkeeper.api.openapi_headers import describe_headers
from turnkeeper.api.openapi_keys import KEY_COMPONENTS
from turnkeeper.api.openapi_schemas import COMPONENTS
from turnkeeper.api.openapi_secrets import SECRET_COMPONENTS
from turnkeeper.api.openapi_skills import SKILL_COMPONENTS
from turnkeeper.api.openapi_streams import STREAM_COMPONENTS
from turnkeeper.api.openapi_webhooks import WEBHOOK_COMPONENTS
from turnkeeper.api.problems import MEDIA_TYPE, PROBLEMS
from turnkeeper.events.envelope import API_VERSION
from turnkeeper.turns.approvals import APPROVAL_STATUSES
from turnkeeper.turns.model import StopReason, TurnStatus

Document = dict[str, Any]

LIST_QUERY: Final = ("limit", "after", "order")
EVENT_QUERY: Final = ("events_limit", "events_after", "types")
STREAM_QUERY: Final = ("stream_after", "types", "deltas", "stream_token", "Last-Event-ID")

_TEXTS: Final[Mapping[int, str]] = {
    200: "As asked.",
    201: "Made.",
    202: "Accepted and committed; the work happens later.",
    204: "The stream is finished; there is nothing more to come.",
    503: "Not ready.",
}
_STREAM: Final[Document] = {"text/event-stream": {"schema": {"type": "string"}}}
_REFUSALS: Final = (400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 500, 503)
_EDGE_REFUSALS: Final = (400, 422, 500)
"""What the edge of the application answers before anybody looks for a key."""


def _value(name: str, schema: Document, description: str, *, place: str = "query") -> Document:
    return {"name": name, "in": place, "required": False, "schema": schema, "description": description}


_ID_PATTERN = "^{}_[0-9A-HJKMNP-TV-Z]{{26}}$"
_VALUES: Final[Mapping[str, Document]] = {
    "limit": _value("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Length of the page."),
    "after": _value("after", {"type": "string", "maxLength": 512}, "The `next_cursor` of the page before."),
    "order": _value("order", {"enum": ["desc", "asc"], "default": "desc"}, "Newest first, or oldest first."),
    "agent_id": _value("agent_id", {"type": "string", "pattern": _ID_PATTERN.format("agt")}, "Only of this agent."),
    "session_id": _value(
        "session_id", {"type": "string", "pattern": _ID_PATTERN.format("ses")}, "Only of this session."
    ),
    "session_status": _value("status", {"enum": list(SESSION_VIEWS)}, "Only sessions that are so."),
    "turn_status": _value("status", {"enum": [status.value for status in TurnStatus]}, "Only turns that are so."),
    "stop_reason": _value(
        "stop_reason", {"enum": [reason.value for reason in StopReason]}, "Only turns that ended so."
    ),
    "created_after": _value("created_after", {"type": "string", "format": "date-time"}, "Only what was made later."),
    "created_before": _value("created_before", {"type": "string", "format": "date-time"}, "Only what was made before."),
    "metadata": _value(
        "metadata",
        {"type": "object", "additionalProperties": {"type": "string", "maxLength": 512}, "maxProperties": 4},
        "Only with these top-level members of metadata, each as `metadata[name]=text`.",
    )
    | {"style": "deepObject", "explode": True},
    "scope_id": _value("scope_id", {"type": "string", "maxLength": 64}, "Only of this project, key, agent or session."),
    "group_by": _value(
        "group_by", {"enum": ["session", "agent", "api_key", "model", "day"], "default": "day"}, "What is summed by."
    ),
    "from": _value("from", {"type": "string", "format": "date-time"}, "From then on; 30 days before `to` without it."),
    "to": _value("to", {"type": "string", "format": "date-time"}, "Until then; until now without it."),
    "approval_status": _value("status", {"enum": list(APPROVAL_STATUSES)}, "Only with this status."),
    "turn_id": _value("turn_id", {"type": "string", "pattern": _ID_PATTERN.format("trn")}, "Only of this turn."),
    "wait_ms": _value(
        "wait_ms", {"type": "integer", "minimum": 0, "maximum": 60_000}, "Answer at the end, or after this time."
    ),
    "events_limit": _value(
        "limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20}, "Length of the page."
    ),
    "events_after": _value("after", {"type": "string", "maxLength": 512}, "A sequence, or a `next_cursor`."),
    "types": _value(
        "types", {"type": "string", "pattern": r"^[a-z_]+(\.[a-z_]+)+(,[a-z_]+(\.[a-z_]+)+)*$"}, "Types, by commas."
    ),
    "stream_after": _value(
        "after", {"type": "integer", "minimum": 0}, "Begin behind this sequence; without it at the tail."
    ),
    "deltas": _value(
        "deltas", {"enum": ["true", "false"]}, "Whether unfinished text is wanted, where it may be shown."
    ),
    "stream_token": _value(
        "stream_token", {"type": "string", "maxLength": 256}, "In place of the Authorization header."
    ),
    "stream": _value("stream", {"enum": ["true", "false"]}, "Answer with the stream of the turn."),
    "delivery_status": _value(
        "status", {"enum": ["pending", "delivered", "dead", "canceled"]}, "Only deliveries that stand so."
    ),
    "Last-Event-ID": _value("Last-Event-ID", {"type": "integer", "minimum": 0}, "Wins over `after`.", place="header"),
    "Idempotency-Key": _value(
        "Idempotency-Key",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
        "The same key and body again make nothing else, and show what they have made.",
        place="header",
    ),
}


def answers(by_status: Mapping[int, str | None], *, protected: bool = True) -> dict[int | str, Document]:
    """The `responses` of a route: what each status carries, and the problems."""
    described: dict[int | str, Document] = {
        status: {"description": _TEXTS[status], **_content(name)} for status, name in by_status.items()
    }
    for status in _REFUSALS if protected else _EDGE_REFUSALS:
        described.setdefault(status, _problem(status))
    return described


def body(name: str, *, required: bool = True) -> Document:
    """The request body of a route, for `openapi_extra`."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {"requestBody": {"required": required, "content": content}}


def making(name: str) -> Document:
    """The request of a route that makes something from a body, at most once with an Idempotency-Key."""
    return body(name) | query("Idempotency-Key")


def query(*names: str) -> Document:
    """The query values and headers of a route, for `openapi_extra`."""
    return {"parameters": [_VALUES[name] for name in names]}


def openapi_document(app: FastAPI, generate: Callable[[], Document]) -> Document:
    """The whole document, made once."""
    if app.openapi_schema is None or "Problem" not in app.openapi_schema.get("components", {}).get("schemas", {}):
        document = generate()
        components = document.setdefault("components", {})
        components["schemas"] = {
            **COMPONENTS,
            **WEBHOOK_COMPONENTS,
            **STREAM_COMPONENTS,
            **KEY_COMPONENTS,
            **SECRET_COMPONENTS,
            **SKILL_COMPONENTS,
            **BUDGET_COMPONENTS,
            **FILE_COMPONENTS,
        }
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["info"]["version"] = API_VERSION
        _secure(document)
        describe_headers(document)
        app.openapi_schema = document
    return app.openapi_schema


def _secure(document: Document) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            # FastAPI adds one for the models that it thinks it validates.
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                operation["responses"]["422"] = _problem(422)
            if path.startswith("/v1/"):
                operation["security"] = [{"key": []}]


def _content(name: str | None) -> Document:
    if name is None:
        return {}
    if name == "stream":
        return {"content": _STREAM}
    if name == "Turn or stream":
        return {"content": {**_content("Turn")["content"], **_STREAM}}
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}


def _problem(status: int) -> Document:
    codes = ", ".join(f"`{code}`" for code, kind in PROBLEMS.items() if kind.status == status)
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": f"Refused: {codes}.", "content": content}
