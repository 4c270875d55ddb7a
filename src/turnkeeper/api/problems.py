"""How a refusal looks to a client: problem+json (RFC 9457, contract 13), one table from code to status.

Answers for the one place where a code meets an HTTP status. Must never show what an unexpected error said: that goes
to the log under the request id.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import orjson
from starlette.responses import Response

from turnkeeper.errors import TurnkeeperError

MEDIA_TYPE: Final = "application/problem+json"
MAX_ERRORS: Final = 20
RETRY_AFTER_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """What all problems of one code share. `hint` says what to do when the error itself does not."""

    status: int
    title: str
    hint: str


_SCHEMAS_HINT = "Compare the request with /openapi.json."
_LATER_HINT = "Leave it out: this version refuses what it would otherwise ignore."

PROBLEMS: Final[Mapping[str, ProblemKind]] = {
    "invalid_json": ProblemKind(400, "The body is not strict JSON", "Send one JSON object in UTF-8."),
    "duplicate_key": ProblemKind(400, "A member occurs twice", "Send each member of an object once."),
    "unknown_field": ProblemKind(400, "Unknown field", _SCHEMAS_HINT),
    "invalid_field": ProblemKind(400, "Invalid field", _SCHEMAS_HINT),
    "invalid_request": ProblemKind(400, "Invalid request", _SCHEMAS_HINT),
    "idempotency_key_invalid": ProblemKind(
        400, "Invalid Idempotency-Key", "Send 1 to 255 printable ASCII characters, plain or in double quotes."
    ),
    "cursor_invalid": ProblemKind(
        400, "Invalid cursor", "Use the next_cursor of the page before, with the same filters, unchanged."
    ),
    "cursor_ahead": ProblemKind(
        400, "The cursor is ahead of the events", "Start at or before the head_sequence of the session."
    ),
    "api_version_unknown": ProblemKind(
        400, "Unknown Api-Version", "Leave the header out or send a version served here."
    ),
    "key_invalid": ProblemKind(
        401,
        "The API key is missing or not valid",
        "Send `Authorization: Bearer <secret>`; `turnkeeper keys create --name NAME` makes a key and prints it.",
    ),
    "runner_token_invalid": ProblemKind(
        401,
        "The runner's token is missing or not valid",
        "Send the pool's token for a lease, the lease's for the rest.",
    ),
    "key_expired": ProblemKind(
        401, "The API key has expired", "Use another key, or have this one's `expires_at` moved."
    ),
    "scope_missing": ProblemKind(403, "The API key lacks a scope", "Use a key that has the scope."),
    "agent_not_allowed": ProblemKind(403, "The API key is not for this agent", "Use a key that names the agent."),
    "approver_not_asked": ProblemKind(
        403, "The Guardian takes no such answer from you", "Answer with the Guardian's own approvals, as who it asks."
    ),
    "not_found": ProblemKind(404, "Not found", "Check the id and the path."),
    "content_missing": ProblemKind(404, "The bytes are not there", "Upload the file again."),
    "idempotency_turn_deleted": ProblemKind(
        410, "The turn of this Idempotency-Key was deleted", "Use a new key to run it again."
    ),
    "cursor_expired": ProblemKind(
        410,
        "Events behind the cursor are no longer kept",
        "Read the snapshot and go on from its as_of, or use after=0.",
    ),
    "idempotency_resource_deleted": ProblemKind(
        410, "What this Idempotency-Key stands for was deleted", "Use a new key to make it again."
    ),
    "session_deleted": ProblemKind(410, "The session was deleted", "Open another session with POST /v1/sessions."),
    "method_not_allowed": ProblemKind(405, "Method not allowed", "Use a method that the Allow header lists."),
    "request_timeout": ProblemKind(408, "The body did not arrive in time", "Send the request again."),
    "turn_not_terminal": ProblemKind(409, "The turn has not ended", "Wait for its end, or cancel it."),
    "session_busy": ProblemKind(
        409, "The session has an open turn", "Post the turn again when that one has ended, or with on_busy enqueue."
    ),
    "session_closed": ProblemKind(409, "The session is closed", "Open another session with POST /v1/sessions."),
    "version_conflict": ProblemKind(409, "The agent has another version", "Read the agent and change that."),
    "agent_archived": ProblemKind(409, "The agent is archived", "Use another agent."),
    "attempts_used": ProblemKind(
        409, "The turn runs and has no other attempt", "Fail or cancel it, and post it again."
    ),
    "turn_ended": ProblemKind(409, "The turn has ended", "Post another turn."),
    "idempotency_in_progress": ProblemKind(409, "The first request is still being accepted", "Try again in a second."),
    "approval_already_decided": ProblemKind(
        409, "The approval has another answer, or its time is over", "Read the approval again."
    ),
    "approval_input_changed": ProblemKind(
        409, "The approval is about another input", "Read the approval again and decide about what it shows."
    ),
    "tool_result_conflict": ProblemKind(
        409, "The tool call has another result, or its time is over", "Read the turn again."
    ),
    "stale_attempt": ProblemKind(409, "The turn is no longer this worker's", "Read the turn again."),
    "cancel_requested": ProblemKind(409, "The turn is to stop", "Report what there is."),
    "stale_beat": ProblemKind(412, "Not the next heartbeat", "Send the beat that is expected."),
    "body_too_large": ProblemKind(413, "The body is too large", "Send a smaller body."),
    "media_type_unsupported": ProblemKind(
        415, "Unsupported media type", "Send `Content-Type: application/json`, UTF-8, not compressed."
    ),
    "output_schema_invalid": ProblemKind(
        422, "The output schema cannot be used", "Send a JSON Schema of draft 2020-12 that refers to nothing outside."
    ),
    "idempotency_key_reused": ProblemKind(
        422, "The Idempotency-Key belongs to another request", "Use another key, or repeat the first body unchanged."
    ),
    "event_not_allowed": ProblemKind(422, "Not a runner's to say", "Send only what runners may write."),
    "report_invalid": ProblemKind(422, "The report does not have its form", "Report again with the seven fields."),
    "file_not_ready": ProblemKind(
        422, "The turn names a file that is not there", "Upload the file first, with a key of the same project."
    ),
    "sha256_mismatch": ProblemKind(422, "The bytes are not the ones that were meant", "Send the file again."),
    "storage_full": ProblemKind(
        422, "The project keeps as much as it may", "Delete files that are not used, or have the limit raised."
    ),
    "budget_invalid": ProblemKind(
        422, "Invalid budget", "Each limit is a whole number above zero, or for `max_cost` an amount above zero."
    ),
    "price_unknown": ProblemKind(
        422, "The model has no price", "Put its price with PUT /v1/model_prices, or use a budget of tokens or calls."
    ),
    "secret_exists": ProblemKind(409, "There is a secret of this name", "Delete it first, or choose another name."),
    "secrets_full": ProblemKind(409, "Too many secrets", "Delete a secret that is not used."),
    "skill_refused": ProblemKind(
        422,
        "The archive is no skill that can be taken",
        "Pack SKILL.md and plain files, and nothing else.",
    ),
    "skills_full": ProblemKind(409, "Too many skills", "Use another project; versions are kept for their agents."),
    "too_many_budgets": ProblemKind(409, "Too many budgets", "Archive a budget that is not used."),
    "budget_archived": ProblemKind(409, "The budget is archived", "Make another one."),
    "egress_not_lent": ProblemKind(
        422, "No such way out is lent", "Name an address that sandbox.egress and the agent's sandbox.network allow."
    ),
    "harness_not_lent": ProblemKind(
        422, "The operator does not lend this harness", "Use one that is named, or have it added to the settings."
    ),
    "not_supported_yet": ProblemKind(422, "Not supported yet", _LATER_HINT),
    "webhook_address_refused": ProblemKind(
        422, "Webhooks may not be sent to this address", "Use a public https address, or have its network listed."
    ),
    "too_many_endpoints": ProblemKind(409, "Too many webhook endpoints", "Delete an endpoint that is not used."),
    "too_many_secrets": ProblemKind(409, "Too many secrets in their overlap", "Rotate with `overlap_hours` 0."),
    "delivery_pending": ProblemKind(409, "The delivery is still being tried", "Wait for its end."),
    "rate_limited": ProblemKind(429, "A limit of the API key is reached", "Wait for the time in Retry-After."),
    "too_many_questions": ProblemKind(429, "Too many questions are open", "Wait for an answer before you ask again."),
    "queue_full": ProblemKind(429, "The queue is full", "Wait for a turn to end."),
    "too_many_streams": ProblemKind(429, "Too many streams", "Close a stream before you open another."),
    "internal_error": ProblemKind(
        500, "Internal error", "Try again; if it stays, give the operator the request_id to find it in the log."
    ),
    "draining": ProblemKind(503, "No turn is accepted", "Try again in a moment."),
    "overloaded": ProblemKind(503, "The server is overloaded", "Try again in a moment."),
    "guardian_unreachable": ProblemKind(503, "The Guardian's approvals do not answer", "Try again in a moment."),
    "database_unavailable": ProblemKind(503, "The database does not answer", "Try again in a moment."),
}

# What the strict reader tells apart and the contract counts as one; its own word goes into `reason`.
_BROADER: Final[Mapping[str, str]] = {
    "lone_surrogate": "invalid_json",
    "too_deep": "invalid_json",
    "not_finite": "invalid_json",
    "too_large": "body_too_large",
}
_OWN_MEMBERS = frozenset(
    {"type", "title", "status", "detail", "code", "param", "request_id", "retry_after_ms", "errors", "hint"}
)


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong with a request: a JSON Pointer into the body, a code, a sentence."""

    pointer: str
    code: str
    message: str


class RequestRefused(TurnkeeperError):
    """A request that cannot be taken as it is. `param` names the field (a JSON Pointer), query value or header."""

    code = "invalid_request"

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        issues: tuple[Issue, ...] = (),
        headers: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.param = param
        self.issues = issues
        self.headers = dict(headers or {})


def not_found(what: str) -> RequestRefused:
    """The refusal for an id that names nothing here."""
    return RequestRefused("not_found", f"There is no {what}.")


def refused_for(issues: list[Issue]) -> RequestRefused:
    """The refusal of a body; the first issue decides the code, all are listed up to `MAX_ERRORS`."""
    first = issues[0]
    return RequestRefused(first.code, first.message, param=first.pointer, issues=tuple(issues[:MAX_ERRORS]))


def internal_error() -> TurnkeeperError:
    """What a client learns of an error that nobody expected: nothing but that it happened."""
    return TurnkeeperError("The request could not be served because of an error of ours.")


def problem_response(error: TurnkeeperError, *, request_id: str) -> Response:
    """The answer for an error. A code that is not in the table is an error of ours."""
    code = _BROADER.get(error.error_code, error.error_code)
    if code not in PROBLEMS:
        error, code = internal_error(), "internal_error"
    kind = PROBLEMS[code]
    document = _document(error, code, kind, request_id)
    return Response(orjson.dumps(document), kind.status, headers=_headers(error, code, kind), media_type=MEDIA_TYPE)


def _document(error: TurnkeeperError, code: str, kind: ProblemKind, request_id: str) -> dict[str, object]:
    issues = error.issues if isinstance(error, RequestRefused) else ()
    pointer = cast("str | None", error.detail.get("pointer"))
    param = error.param if isinstance(error, RequestRefused) else pointer
    members: dict[str, object] = {
        "type": f"/problems/{code}",
        "title": kind.title,
        "status": kind.status,
        "detail": error.message,
        "code": code,
        "param": param,
        "request_id": request_id,
        "retry_after_ms": _retry_after_ms(error) if kind.status in {429, 503} else None,
        "errors": [{"pointer": issue.pointer, "code": issue.code, "detail": issue.message} for issue in issues],
        "hint": error.hint or kind.hint,
    }
    if code != error.error_code:
        members["reason"] = error.error_code
    return members | {name: value for name, value in error.detail.items() if name not in _OWN_MEMBERS}


def _retry_after_ms(error: TurnkeeperError) -> int:
    known = error.detail.get("retry_after_ms")
    return known if isinstance(known, int) else RETRY_AFTER_MS


def _headers(error: TurnkeeperError, code: str, kind: ProblemKind) -> dict[str, str]:
    headers = dict(error.headers) if isinstance(error, RequestRefused) else {}
    if kind.status in {429, 503} or code == "idempotency_in_progress":
        headers["Retry-After"] = str(math.ceil(_retry_after_ms(error) / 1000))
    if kind.status == 429 and "limit" in error.detail:
        headers["RateLimit-Limit"] = str(error.detail["limit"])
        headers["RateLimit-Remaining"] = "0"
        headers["RateLimit-Reset"] = headers["Retry-After"]
    if kind.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers
