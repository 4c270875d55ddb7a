"""From bytes to something that may be believed, or to the failure they are (ACS 6.4, CORE-HON-02, HON-08, HON-09).

Pure. Answers for the words in which a failure is known. Must never put what an unproven answer says into them.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from turnkeeper.acs import Answer, AnswerRejected, ObservedSession, Refusal
from turnkeeper.acs.strictjson import is_object
from turnkeeper.client.posture import Failure, FailureKind

_MESSAGES: Final[Mapping[str, tuple[FailureKind, str]]] = {
    "answer_not_bound": (FailureKind.MALFORMED, "the answer belongs to another request"),
    "answer_unsigned": (FailureKind.SIGNATURE, "the answer is not signed"),
    "answer_signature_invalid": (FailureKind.SIGNATURE, "the answer is not signed by the Guardian"),
}
_MALFORMED: Final = (FailureKind.MALFORMED, "the answer is malformed")

Read: TypeAlias = Answer | Failure


def read_answer(observed: ObservedSession, raw: bytes, request_id: str) -> Read:
    """The answer that holds for this request, or why there is none."""
    try:
        return observed.answer(raw, request_id=request_id)
    except AnswerRejected as error:
        return _failure_of(error)


def failure_of_refusal(refusal: Refusal) -> Failure:
    """A signed error, as the decision failure or refusal it is."""
    return Failure(FailureKind.ERROR, _error_text(refusal.code), refusal.code, refusal.reason)


def _failure_of(error: AnswerRejected) -> Failure:
    unproven = error.detail.get("unproven_error")
    if is_object(unproven) and isinstance(unproven.get("code"), int | float):
        code = int(cast("float", unproven["code"]))
        return Failure(FailureKind.ERROR, _error_text(code) + ", unsigned", code)
    return Failure(*_MESSAGES.get(error.error_code, _MALFORMED))


def _error_text(code: int) -> str:
    return f"the Guardian answered with error {code}"
