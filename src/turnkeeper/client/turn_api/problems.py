"""What a request can end in besides an answer (contract 13).

Pure. One class where an app would act differently; `error_code` is the problem's own code, `message` its sentence,
`detail` the members named per code, `request_id` what the operator finds it by.
"""

from collections.abc import Mapping
from typing import Final

from turnkeeper.client.errors import ClientError
from turnkeeper.client.turn_api.documents import Json
from turnkeeper.client.turn_api.views import TurnView

_OWN_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "code", "request_id", "hint"})


class ApiProblem(ClientError):
    """A request that the server refused. `status` is the answer's, `param` and `errors` say where it is wrong."""

    code = "api_problem"

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        request_id: str | None = None,
        hint: str | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, code=code, detail=detail, hint=hint)
        self.status = status
        self.request_id = request_id

    @property
    def retry_after_ms(self) -> int | None:
        """When to come back, where the server says."""
        value = self.detail.get("retry_after_ms")
        return value if isinstance(value, int) else None


class RequestInvalid(ApiProblem):
    """400, 413, 415, 422: the request cannot be taken as it is; sending it again changes nothing."""


class KeyRefused(ApiProblem):
    """401: the key is missing, not known, revoked or expired."""


class NotPermitted(ApiProblem):
    """403: the key may not do this."""


class NotFound(ApiProblem):
    """404: there is no such thing in this project."""


class Conflict(ApiProblem):
    """409: the thing's state does not allow it."""


class Gone(ApiProblem):
    """410: it was there, and was deleted or is no longer kept."""


class TooMany(ApiProblem):
    """429, still after every retry: a rate, a queue or the number of streams is at its limit."""


class ServerFailed(ApiProblem):
    """5xx, still after every retry."""


class ServerUnreachable(ClientError):
    """No answer came, still after every retry. For what cannot be repeated safely, after the first."""

    code = "server_unreachable"


class WaitTimedOut(ClientError):
    """The turn had not ended when the time was up; it goes on. `turn` is the last that was seen of it."""

    code = "wait_timed_out"

    def __init__(self, turn: TurnView, timeout_ms: int) -> None:
        super().__init__(f"the turn {turn.id} is {turn.status} after {timeout_ms} ms", detail={"turn_id": turn.id})
        self.turn = turn


_BY_STATUS: Final[Mapping[int, type[ApiProblem]]] = {
    401: KeyRefused,
    403: NotPermitted,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: TooMany,
}


def problem_of(status: int, members: Json, request_id: str | None) -> ApiProblem:
    """The error for a refusal. One that is no problem document (a proxy's) has the code `http_error`."""
    kind = _BY_STATUS.get(status, ServerFailed if status >= 500 else RequestInvalid)
    return kind(
        str(members.get("detail") or members.get("title") or f"the server answered {status}"),
        code=str(members.get("code") or "http_error"),
        status=status,
        request_id=_text(members.get("request_id")) or request_id,
        hint=_text(members.get("hint")),
        detail={name: value for name, value in members.items() if name not in _OWN_MEMBERS},
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
