"""What the platform makes of a Guardian's answer: what becomes of the step, and whether the action may go on.

Pure. Doubt is a denial (house rule 5): only an ALLOW that holds, and a MODIFY that was applied whole, let an action go
on; a disposition we cannot apply does not, and a missing decision does so only where an operator chose `proceed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, cast

import orjson

from turnkeeper.acs import AcsErrorCode, Disposition, Recorded, Refusal, Verdict
from turnkeeper.acs.handshake import Posture
from turnkeeper.acs.obedience import MODIFY_UNSUPPORTED, course_of
from turnkeeper.turns.applied import is_applicable
from turnkeeper.turns.model import Step, StepAnswer

RulingKind: TypeAlias = Literal["allowed", "denied", "unapplicable", "refused", "undecided", "not_evaluated"]

PERMANENT_REFUSALS: Final = frozenset(
    {
        AcsErrorCode.INVALID_REQUEST,
        AcsErrorCode.METHOD_NOT_FOUND,
        AcsErrorCode.INVALID_PARAMS,
        AcsErrorCode.UNSUPPORTED_VERSION,
        AcsErrorCode.CAPABILITY_NOT_NEGOTIATED,
    }
)
"""Signed errors that the same step would get again, however often it is sent."""

UNRECORDED: Final = frozenset({"store_failed", "guardian_failed", "overloaded", "shutting_down"})
"""Reason codes of a Guardian that could not write a step down and denies it for that."""

NO_DECISION: Final = "no decision from the Guardian"
MAX_REASON_CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether an action may go on, and why.

    `delivered` says that the Guardian has the step in its chain, or may have it.
    `proceeded` says that nothing was decided and the operator's posture let the action go on all the same.
    `details` are the modifications, ask_details or defer_details that came with `decision`; None where the answer
    itself is not at hand, because only its record was shown or it was heard before a restart. `changed` is the payload
    to go on with where the Guardian modified it; nothing but `changed` may be used then.
    """

    kind: RulingKind
    allowed: bool
    request_id: str | None = None
    decision: str | None = None
    reasoning: str = ""
    reason_codes: tuple[str, ...] = ()
    delivered: bool = False
    proceeded: bool = False
    details: Mapping[str, object] | None = None
    changed: Mapping[str, object] | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasoning, then the codes: what an agent or an event is told."""
        return tuple(reason for reason in (self.reasoning, *self.reason_codes) if reason)


def answer_of_verdict(verdict: Verdict) -> StepAnswer | None:
    """A decision as the step's row keeps it; None where the step should be sent again.

    A DENY without an entry is an outage that tells of itself, not a decision on the step: the chain may hold the step
    or not (amendment 4), and what was asked about it is asked again under the same id, until one of the two is certain.
    """
    if verdict.chain_hash is None and UNRECORDED.intersection(verdict.reason_codes):
        return None
    return StepAnswer(
        state="answered",
        decision=verdict.decision.value,
        chain_hash=verdict.chain_hash,
        reasoning=_cut(verdict.reasoning),
        reason_codes=verdict.reason_codes,
        details=verdict.details,
    )


def answer_of_refusal(refusal: Refusal, *, repeated: bool) -> StepAnswer | None:
    """What a signed error makes of a step; None where the step should be sent again.

    A -32005 says that the step is written. Our Guardian then shows the recorded answer; another one does not, and after
    further tries (`repeated`, each with a new nonce) the step counts as written and its decision as unknown.
    """
    if refusal.code == AcsErrorCode.REPLAY_DETECTED:
        if refusal.recorded is not None:
            return _answer_of_record(refusal.recorded)
        return StepAnswer(state="answered", error_code=refusal.code) if repeated else None
    if refusal.code in PERMANENT_REFUSALS:
        return StepAnswer(
            state="refused",
            reasoning=_cut(refusal.message),
            reason_codes=(refusal.reason,) if refusal.reason else (),
            error_code=refusal.code,
        )
    return None


def withdrawn() -> StepAnswer:
    """A step that was never sent and will not be: its moment has passed."""
    return StepAnswer(state="refused", reasoning="withdrawn before it was sent", reason_codes=("withdrawn",))


def ruling_of(answer: StepAnswer, asked: Step) -> Ruling:
    """What a settled step means for the action."""
    written = answer.state == "answered"
    base = Ruling(
        kind="undecided",
        allowed=False,
        request_id=asked.request_id,
        decision=answer.decision,
        reasoning=answer.reasoning or "",
        reason_codes=answer.reason_codes,
        delivered=written,
        details=answer.details,
    )
    if not written:
        return replace(base, kind="refused", reasoning=base.reasoning or "the Guardian refused the step")
    if answer.decision is None:
        return replace(base, reasoning=NO_DECISION)
    return _decided(base, asked, Disposition(answer.decision))


def _decided(base: Ruling, asked: Step, decision: Disposition) -> Ruling:
    # Only a MODIFY needs the payload once more.
    sent = _payload(asked.payload_json if decision is Disposition.MODIFY else None)
    course = course_of(asked.method, sent, decision, base.details)
    if course.modified and not is_applicable(asked.method, sent, course.payload):
        message = "a modification was not applied: it changes what is not used here"
        return _unapplicable(base, MODIFY_UNSUPPORTED, message)
    if course.code:
        return _unapplicable(base, course.code, course.reasoning)
    if course.action == "wait":
        reasoning = f"the Guardian answered {decision.value}, which cannot be applied here"
        return replace(base, kind="unapplicable", reasoning=reasoning)
    if course.action == "stop":
        return replace(base, kind="denied", reasoning=base.reasoning or "denied by the Guardian")
    return replace(base, kind="allowed", allowed=True, changed=course.payload if course.modified else None)


def _unapplicable(base: Ruling, code: str, reasoning: str) -> Ruling:
    codes = tuple(dict.fromkeys((code, *base.reason_codes)))
    return replace(base, kind="unapplicable", reasoning=reasoning, reason_codes=codes)


def undecided(*, request_id: str | None, delivered: bool) -> Ruling:
    """No answer that holds came in time."""
    return Ruling("undecided", allowed=False, request_id=request_id, reasoning=NO_DECISION, delivered=delivered)


def not_evaluated(method: str) -> Ruling:
    """The Guardian said at the handshake that it does not look at such steps."""
    return Ruling(
        "not_evaluated",
        allowed=False,
        reasoning=f"the Guardian does not evaluate {method}",
        reason_codes=("method_not_evaluated",),
    )


def too_large(limit_bytes: int) -> Ruling:
    """The step is over what may be sent to a Guardian, so it cannot be asked for."""
    return Ruling(
        "refused",
        allowed=False,
        reasoning=f"the step is over {limit_bytes} bytes and cannot be shown to the Guardian",
        reason_codes=("step_too_large",),
    )


def under_posture(ruling: Ruling, posture: Posture) -> Ruling:
    """The ruling once the operator's choice for a missing decision is applied. A decision stays what it is."""
    if posture == "deny" or ruling.kind not in {"undecided", "refused", "not_evaluated"}:
        return ruling
    return replace(ruling, allowed=True, proceeded=True)


def _answer_of_record(recorded: Recorded) -> StepAnswer:
    if recorded.decision is None:
        return StepAnswer(state="refused", error_code=recorded.code)
    return StepAnswer(state="answered", decision=recorded.decision.value, chain_hash=recorded.chain_hash)


def _payload(payload_json: str | None) -> Mapping[str, object]:
    return cast("Mapping[str, object]", orjson.loads(payload_json or "{}"))


def _cut(text: str | None) -> str | None:
    return text if text is None else text[:MAX_REASON_CHARACTERS]
