"""What a Guardian's decision means for a step (ACS 6.1 to 6.5 and 9, ledger sections 7, 8 and 10).

Pure. Answers for MODIFY that is applied whole or denied, for ASK and DEFER as something that waits with an end, and
for decisions that a hook does not permit. Must never hand back the original payload where a change was asked for and
not made, save where the standard says so (postCompact, CORE-MOD-07).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from turnkeeper.acs import (
    Disposition,
    ModificationsInapplicable,
    ModificationsRejected,
    Verdict,
    apply_modifications,
    validator,
)
from turnkeeper.client.outcomes import Allowed, Denied, ExpiryAction, Pending
from turnkeeper.client.posture import Judgement, Note, Question

MODIFY_UNSUPPORTED: Final = "modify_unsupported"
MODIFY_COMPOSITION: Final = "modify_composition"
APPROVER_UNAVAILABLE: Final = "approver_unavailable"
NOT_PERMITTED: Final = "disposition_not_permitted"
EXPIRED: Final = "pending_expired"
MAX_PENDING_MS: Final = 86_400_000
"""The longest an answer may keep a step waiting: a day. A longer wait expires then, as the Guardian said it should."""

_POST_COMPACT = "steps/postCompact"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this agent can do with a decision; the Guardian learns it out of band (6.5, 9.2)."""

    modify: bool = True
    ask: bool = True


def judge_verdict(question: Question, verdict: Verdict, abilities: Abilities, now_ms: int) -> Judgement:
    """The outcome of a decision that holds. `now_ms` is monotonic."""
    if not _is_permitted(question, verdict.decision):
        return _not_permitted(question, verdict)
    if verdict.decision is Disposition.ALLOW:
        return Judgement(Allowed(question.request_id, question.payload, verdict))
    if verdict.decision is Disposition.DENY:
        return Judgement(denied_by(question, verdict))
    if verdict.decision is Disposition.MODIFY:
        return _modified(question, verdict, abilities)
    return _waiting(question, verdict, abilities, now_ms)


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


def _is_permitted(question: Question, decision: Disposition) -> bool:
    spec = question.spec
    return spec is None or decision in spec.permitted


def _not_permitted(question: Question, verdict: Verdict) -> Judgement:
    # What has happened is not undone by a decision that may not be given; anything else is doubt, and doubt is DENY.
    received = verdict.decision.value
    if question.audit_only:
        note = Note(NOT_PERMITTED, "observed", received=received, applied="allow", reason_codes=(NOT_PERMITTED,))
        return Judgement(Allowed(question.request_id, question.payload, verdict), (note,))
    note = Note(NOT_PERMITTED, "blocked", received=received, applied="deny", reason_codes=(NOT_PERMITTED,))
    reasoning = f"{question.method} does not permit {received}"
    return Judgement(Denied(question.request_id, reasoning, (NOT_PERMITTED,), verdict), (note,))


def _modified(question: Question, verdict: Verdict, abilities: Abilities) -> Judgement:
    if not abilities.modify:
        return _unmodified(question, verdict, MODIFY_UNSUPPORTED, "this agent applies no modifications")
    try:
        payload = apply_modifications(question.payload, _details(verdict, "modifications"))
    except ModificationsRejected as error:
        return _unmodified(question, verdict, MODIFY_COMPOSITION, error.message)
    except ModificationsInapplicable as error:
        return _unmodified(question, verdict, MODIFY_UNSUPPORTED, error.message)
    spec = question.spec
    if spec is not None and spec.schema is not None and not validator(spec.schema).is_valid(payload):
        return _unmodified(question, verdict, MODIFY_UNSUPPORTED, "the modified step is none of its hook")
    return Judgement(Allowed(question.request_id, payload, verdict, modified=True))


def _unmodified(question: Question, verdict: Verdict, code: str, why: str) -> Judgement:
    received = verdict.decision.value
    if question.method == _POST_COMPACT:
        note = Note("modify_not_applied", "original_kept", None, None, received, "original_kept", (code,))
        return Judgement(Allowed(question.request_id, question.payload, verdict), (note,))
    note = Note("modify_not_applied", "blocked", None, None, received, "deny", (code,))
    return Judgement(Denied(question.request_id, f"a modification was not applied: {why}", (code,), verdict), (note,))


def _waiting(question: Question, verdict: Verdict, abilities: Abilities, now_ms: int) -> Judgement:
    asked = verdict.decision is Disposition.ASK
    if asked and not abilities.ask:
        reasoning = "the Guardian asks an approver, and this agent cannot wait for one"
        note = Note(APPROVER_UNAVAILABLE, "blocked", None, None, "ask", "deny", (APPROVER_UNAVAILABLE,))
        return Judgement(Denied(question.request_id, reasoning, (APPROVER_UNAVAILABLE,), verdict), (note,))
    return Judgement(_ask(question, verdict, now_ms) if asked else _defer(question, verdict, now_ms))


def _ask(question: Question, verdict: Verdict, now_ms: int) -> Pending:
    details = _details(verdict, "ask_details")
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
    details = _details(verdict, "defer_details")
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


def _details(verdict: Verdict, name: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", verdict.result.get(name, {}))
