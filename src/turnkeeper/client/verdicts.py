"""What a Guardian's decision means for a step (ACS 6.1 to 6.5 and 9, ledger sections 7, 8 and 10).

Pure. Answers for the outcome and the note of each decision, and for ASK and DEFER as something that waits with an
end. What a decision makes of a payload is `turnkeeper.acs.obedience`'s.
"""

from dataclasses import dataclass
from typing import Final, cast

from turnkeeper.acs import Disposition, Verdict
from turnkeeper.acs.obedience import NOT_PERMITTED, Course, course_of
from turnkeeper.client.outcomes import Allowed, Denied, ExpiryAction, Pending
from turnkeeper.client.posture import Judgement, Note, Question

APPROVER_UNAVAILABLE: Final = "approver_unavailable"
EXPIRED: Final = "pending_expired"
MAX_PENDING_MS: Final = 86_400_000
"""The longest an answer may keep a step waiting: a day. A longer wait expires then, as the Guardian said it should."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this agent can do with a decision; the Guardian learns it out of band (6.5, 9.2)."""

    modify: bool = True
    ask: bool = True


def judge_verdict(question: Question, verdict: Verdict, abilities: Abilities, now_ms: int) -> Judgement:
    """The outcome of a decision that holds. `now_ms` is monotonic."""
    course = course_of(
        question.method, question.payload, verdict.decision, verdict.details, can_modify=abilities.modify
    )
    if course.code:
        return _otherwise(question, verdict, course)
    if course.action == "wait":
        return _waiting(question, verdict, abilities, now_ms)
    if course.action == "stop":
        return Judgement(denied_by(question, verdict))
    return Judgement(Allowed(question.request_id, course.payload, verdict, modified=course.modified))


def judge_expiry(pending: Pending) -> Judgement:
    """What becomes of a step that nobody answered in time (CORE-DISP-04, CORE-ASK-07). `ask` is a denial by now."""
    if pending.on_expiry == "allow":
        note = Note(EXPIRED, "proceeded", received=pending.kind, applied="allow", reason_codes=(EXPIRED,))
        return Judgement(Allowed(pending.request_id, pending.payload, proceeded=True), (note,))
    note = Note(EXPIRED, "blocked", received=pending.kind, applied="deny", reason_codes=(EXPIRED,))
    return Judgement(Denied(pending.request_id, f"nobody answered in time: {pending.question}", (EXPIRED,)), (note,))


def denied_by(question: Question, verdict: Verdict) -> Denied:
    """A denial in the Guardian's own words."""
    return Denied(question.request_id, verdict.reasoning or "denied by the Guardian", verdict.reason_codes, verdict)


def _otherwise(question: Question, verdict: Verdict, course: Course) -> Judgement:
    """A decision that was not followed to the letter, with the note that it leaves."""
    received, codes = verdict.decision.value, (course.code,)
    permitted = course.code != NOT_PERMITTED
    event = "modify_not_applied" if permitted else NOT_PERMITTED
    if course.action == "stop":
        note = Note(event, "blocked", received=received, applied="deny", reason_codes=codes)
        return Judgement(Denied(question.request_id, course.reasoning, codes, verdict), (note,))
    if permitted:
        note = Note(event, "original_kept", received=received, applied="original_kept", reason_codes=codes)
    else:
        note = Note(event, "observed", received=received, applied="allow", reason_codes=codes)
    return Judgement(Allowed(question.request_id, course.payload, verdict), (note,))


def _waiting(question: Question, verdict: Verdict, abilities: Abilities, now_ms: int) -> Judgement:
    asked = verdict.decision is Disposition.ASK
    if asked and not abilities.ask:
        reasoning = "the Guardian asks an approver, and this agent cannot wait for one"
        note = Note(APPROVER_UNAVAILABLE, "blocked", None, None, "ask", "deny", (APPROVER_UNAVAILABLE,))
        return Judgement(Denied(question.request_id, reasoning, (APPROVER_UNAVAILABLE,), verdict), (note,))
    return Judgement(_ask(question, verdict, now_ms) if asked else _defer(question, verdict, now_ms))


def _ask(question: Question, verdict: Verdict, now_ms: int) -> Pending:
    details = verdict.details or {}
    wait_ms = int(cast("float", details["timeout_seconds"])) * 1_000
    disposition = details.get("timeout_disposition", "deny")
    return Pending(
        kind="ask",
        session_id=question.session_id,
        turn_id=question.turn_id,
        method=question.method,
        payload=question.payload,
        request_id=question.request_id or "",
        question=str(details["question"]),
        details=details,
        expires_at_ms=now_ms + min(wait_ms, MAX_PENDING_MS),
        on_expiry="allow" if disposition == "allow" else "deny",
        polled=True,
    )


def _defer(question: Question, verdict: Verdict, now_ms: int) -> Pending:
    details = verdict.details or {}
    wait_ms = int(cast("float", details["resolution_timeout_ms"]))
    then: ExpiryAction = "ask" if details.get("timeout_decision") == "ask" else "deny"
    return Pending(
        kind="defer",
        session_id=question.session_id,
        turn_id=question.turn_id,
        method=question.method,
        payload=question.payload,
        request_id=question.request_id or "",
        question=verdict.reasoning or str(details["reason"]),
        details=details,
        expires_at_ms=now_ms + min(wait_ms, MAX_PENDING_MS),
        on_expiry=then,
        # More tries bring no more context, and each may count towards the Guardian's bound on deferrals.
        polled=details["resolution_method"] == "human_approval",
    )
