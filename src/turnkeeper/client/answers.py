"""From bytes to something that may be believed, or to the failure they are (ACS 6.4, CORE-HON-02, HON-08, HON-09).

Pure. Answers for telling a broken MODIFY, which is a denial (CORE-MOD-03), from a malformed answer, which is none.
Must never put what an unproven answer says into words of ours.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from turnkeeper.acs import (
    Answer,
    AnswerRejected,
    Disposition,
    ObservedSession,
    Refusal,
    SignatureRejected,
    Verdict,
    parse_object,
    validator,
    verify_response,
)
from turnkeeper.acs.strictjson import JsonRejected, is_object
from turnkeeper.client.posture import Failure, FailureKind

_MODIFICATIONS: Final = "modifications"
_HARMLESS: Final = {"modified_content": ""}
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
        answer = observed.answer(raw, request_id=request_id)
    except AnswerRejected as error:
        return _broken_modify(observed, raw, request_id) or _failure_of(error)
    if isinstance(answer, Verdict) and _names_nothing(answer):
        return Failure(*_MALFORMED)
    return answer


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


def _names_nothing(verdict: Verdict) -> bool:
    # 0.1.4: a policy reference leaves a member out rather than send it empty (CORE-WIRE-19).
    references = cast("list[Mapping[str, object]]", verdict.result.get("policy_references", []))
    return any(value == "" for reference in references for value in reference.values())


def _broken_modify(observed: ObservedSession, raw: bytes, request_id: str) -> Verdict | None:
    """A proven MODIFY that is well-formed but for its modifications; None for anything else."""
    try:
        document = parse_object(raw, observed.limits)
    except JsonRejected:
        return None
    result = document.get("result")
    if not is_object(result) or result.get("decision") != Disposition.MODIFY or _MODIFICATIONS not in result:
        return None
    mended = {**document, "result": {**result, _MODIFICATIONS: _HARMLESS}}
    if not validator("response-envelope").is_valid(mended):
        return None
    if document["id"] != request_id or result["request_id"] != request_id:
        return None
    try:
        verify_response(document, observed.key)
    except SignatureRejected:
        return None
    modifications = result[_MODIFICATIONS]
    # What is no object has no meaning either; an empty one says so to whoever applies it.
    shown = {**result, _MODIFICATIONS: modifications if is_object(modifications) else {}}
    chain_hash = result.get("chain_hash")
    return Verdict(
        decision=Disposition.MODIFY,
        reasoning=cast("str | None", result.get("reasoning")),
        reason_codes=tuple(cast("list[str]", result.get("reason_codes", []))),
        chain_hash=chain_hash if isinstance(chain_hash, str) else None,
        result=shown,
    )
