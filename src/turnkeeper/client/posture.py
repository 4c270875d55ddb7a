"""Who decides when nobody decides (ACS 4.1 and 6.4, ledger sections 3 and 9), as rules without I/O.

Answers for the stance of a session, for what a failure or a refusal means for a step, and for the note each of them
leaves. Must never read a stance from the environment (CORE-HS-18), nor apply one to a refused handshake (CORE-HS-15).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from turnkeeper.acs import AcsErrorCode, HookSpec, ServerHello, hook_spec
from turnkeeper.acs.handshake import DENY, HANDSHAKE_REFUSALS, Posture
from turnkeeper.client.outcomes import Allowed, Denied, Outcome

PostureSource: TypeAlias = Literal["negotiated", "default", "configured"]
StartupPosture: TypeAlias = Literal["proceed", "refuse"]
RefusalRule: TypeAlias = Literal["closed", "posture"]
UnevaluatedRule: TypeAlias = Literal["allow", "deny"]
Effect: TypeAlias = Literal["proceeded", "blocked", "original_kept", "observed"]

NO_DECISION: Final = "no_decision"
NOT_EVALUATED: Final = "method_not_evaluated"
UNSENDABLE: Final = "step_not_sendable"


class FailureKind(StrEnum):
    """Why there is no decision."""

    TRANSPORT = "transport"
    TIMEOUT = "timeout"
    MALFORMED = "malformed_response"
    SIGNATURE = "signature_invalid"
    ERROR = "guardian_error"
    HANDSHAKE = "handshake_failed"
    UNSENDABLE = "unsendable"


_TRACE_CLASSES: Final[Mapping[FailureKind, str]] = {
    FailureKind.TRANSPORT: "unreachable",
    FailureKind.HANDSHAKE: "handshake_failure",
    FailureKind.UNSENDABLE: "other",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A decision failure: silence, a broken wire, an answer that proves nothing, or an error instead of a decision.

    `code` and `reason` are the Guardian's where it answered with an error. `message` holds no byte of an answer.
    """

    kind: FailureKind
    message: str
    code: int | None = None
    reason: str | None = None

    @property
    def trace_class(self) -> str:
        """The value of `acs.failure.class` (TRACE-08)."""
        return _TRACE_CLASSES.get(self.kind, self.kind.value)

    @property
    def refused(self) -> bool:
        """Whether the Guardian refused the step rather than failed: any error of the registry but -32603."""
        return self.kind is FailureKind.ERROR and self.code != AcsErrorCode.INTERNAL_ERROR

    def to_document(self) -> dict[str, object]:
        """As the audit log has it."""
        members = {"kind": self.kind.value, "message": self.message, "code": self.code, "reason": self.reason}
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PostureRules:
    """The deployment's own choices (ledger HON-03, HON-07, HS-04, HS-14).

    `on_decision_failure` is what was negotiated unless a deployment is stricter than its Guardian asks it to be.
    `refusals` says whether an error that refuses a step blocks it (`closed`) or falls to the posture, which an
    attacker who can get a step refused may count on. `unevaluated` is for methods the Guardian does not look at.
    """

    on_decision_failure: Literal["negotiated", "deny"] = "negotiated"
    startup: StartupPosture = "proceed"
    refusals: RefusalRule = "closed"
    unevaluated: UnevaluatedRule = "allow"


@dataclass(frozen=True, slots=True)
class Stance:
    """What a missing decision means for one session, and who said so."""

    posture: Posture
    source: PostureSource


@dataclass(frozen=True, slots=True)
class Question:
    """A step that was, or could not be, asked."""

    method: str
    payload: Mapping[str, object]
    request_id: str | None
    session_id: str
    turn_id: str | None = None

    @property
    def spec(self) -> HookSpec | None:
        """What the standard says of its method."""
        return hook_spec(self.method)

    @property
    def audit_only(self) -> bool:
        """Whether it reports what has happened, so that nothing can be held back any more."""
        return self.spec is not None and self.spec.audit_only


@dataclass(frozen=True, slots=True)
class Note:
    """What the deployment's own log must say about a step (AUD-05), before it has a time and a place in that log."""

    event: str
    effect: Effect
    failure: Failure | None = None
    session_failure: Failure | None = None
    received: str | None = None
    applied: str | None = None
    reason_codes: tuple[str, ...] = ()
    chain_hash: str | None = None
    witnessed_head: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """An outcome and the notes it leaves."""

    outcome: Outcome
    notes: tuple[Note, ...] = ()


def stance_of(terms: ServerHello | None, rules: PostureRules) -> Stance:
    """The stance of a session: what its ServerHello says, `proceed` where there is none or it says nothing."""
    if rules.on_decision_failure == "deny":
        return Stance("deny", "configured")
    if terms is None:
        return Stance("proceed", "default")
    return Stance("deny" if terms.on_decision_failure == DENY else "proceed", "negotiated")


def startup_stance(rules: PostureRules) -> Stance:
    """What a handshake without terms means: the standard lets the session start, a deployment may not (CORE-HS-14)."""
    closed = rules.startup == "refuse" or rules.on_decision_failure == "deny"
    return Stance("deny", "configured") if closed else Stance("proceed", "default")


def is_handshake_refusal(failure: Failure) -> bool:
    """Whether a failed handshake was a decision (CORE-HS-15)."""
    return failure.code in HANDSHAKE_REFUSALS


def may_start_unguarded(failure: Failure, rules: PostureRules) -> bool:
    """Whether a session may start without terms. A refusal and a stricter deployment never let it."""
    return startup_stance(rules).posture == "proceed" and not is_handshake_refusal(failure)


def judge_failure(
    question: Question, failure: Failure, stance: Stance, rules: PostureRules, *, session_failure: Failure | None = None
) -> Judgement:
    """What becomes of a step that got no decision.

    A refusal blocks under `refusals: closed`, and so does a step that could not be shown to the Guardian at all:
    whoever can make a step too large must not thereby get it past. An audit-only step has already happened.
    """
    blocked = stance.posture == "deny" or (failure.refused and rules.refusals == "closed")
    blocked = (blocked or failure.kind is FailureKind.UNSENDABLE) and not question.audit_only
    note = Note("decision_failure", "blocked" if blocked else "proceeded", failure, session_failure)
    return Judgement(_denied(question, failure) if blocked else _proceeded(question), (note,))


def judge_unevaluated(question: Question, rules: PostureRules) -> Judgement:
    """What becomes of a step whose method the Guardian said it does not look at (CORE-HS-04)."""
    if rules.unevaluated == "allow" or question.audit_only:
        note = Note("not_evaluated", "proceeded", reason_codes=(NOT_EVALUATED,))
        return Judgement(_proceeded(question), (note,))
    reasoning = f"the Guardian does not evaluate {question.method}"
    note = Note("not_evaluated", "blocked", reason_codes=(NOT_EVALUATED,))
    return Judgement(Denied(None, reasoning, (NOT_EVALUATED,)), (note,))


def _proceeded(question: Question) -> Allowed:
    return Allowed(question.request_id, question.payload, proceeded=True)


def _denied(question: Question, failure: Failure) -> Denied:
    if failure.kind is FailureKind.UNSENDABLE:
        return Denied(question.request_id, failure.message, (UNSENDABLE,))
    if failure.refused:
        codes = (failure.reason,) if failure.reason else ()
        return Denied(question.request_id, f"the Guardian refused the step: {failure.message}", codes)
    return Denied(question.request_id, f"no decision from the Guardian: {failure.message}", (NO_DECISION,))
