"""The one translation from an error to a problem+json answer of the Guardian's HTTP API (RFC 9457).

Answers for codes and statuses. Must never show more of an error of ours than that it happened.
"""

from dataclasses import dataclass
from typing import Final

import orjson

from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.http import Send

MEDIA_TYPE: Final = b"application/problem+json"
_STATUS: Final = {
    "invalid_json": 400,
    "invalid_field": 400,
    "unknown_field": 400,
    "key_invalid": 401,
    "scope_missing": 403,
    "approver_not_asked": 403,
    "approver_is_the_agent": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "approval_not_pending": 409,
    "approval_input_differs": 409,
    "body_too_large": 413,
    "approver_decision_invalid": 422,
    "approval_scope_invalid": 422,
    "approval_scope_exceeded": 422,
    "internal_error": 500,
    "store_failed": 503,
}


class ProblemRefused(TurnkeeperError):
    """A request that cannot be taken as it is. `param` names what is wrong with it."""

    code = "invalid_request"

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message, code=code)
        self.param = param


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer that is none."""

    status: int
    code: str
    detail: str
    param: str | None = None


def problem_of(error: TurnkeeperError | None) -> Problem:
    """The answer for an error; None and codes that are not in the table are faults of ours."""
    if error is None or error.error_code not in _STATUS:
        return Problem(500, "internal_error", "The request could not be served because of an error of ours.")
    status = _STATUS[error.error_code]
    # What a store says names files of this machine.
    detail = "The Guardian's store does not answer." if status == 503 else error.message
    return Problem(status, error.error_code, detail, error.param if isinstance(error, ProblemRefused) else None)


async def render_problem(problem: Problem, send: Send) -> None:
    """Sends the answer."""
    document = {
        "type": f"/problems/{problem.code}",
        "title": problem.code.replace("_", " "),
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "param": problem.param,
    }
    body = orjson.dumps(document)
    headers = [
        (b"content-type", MEDIA_TYPE),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if problem.status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
