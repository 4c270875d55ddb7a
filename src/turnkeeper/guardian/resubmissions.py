"""Steps that are sent again once an approver may have answered (design: docs/decisions/0007).

Answers for `payload.request_id_ref` of a step that was asked about or deferred: still waiting, granted, or refused, and
for what the session remembers of questions. Must never let a grant be used for another input, by another session, or
twice where it was given once. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

from turnkeeper.acs import ContextEntry, Decision, Disposition, HookSpec, RequestEnvelope
from turnkeeper.guardian.approvals import (
    HUMAN,
    MAX_APPROVAL_MS,
    NO_APPROVER,
    REFERENCE,
    Approval,
    ApprovalKind,
    ApprovalScope,
    ApprovalStatus,
    approval_id_of,
    input_hash,
)
from turnkeeper.guardian.checks import Denial
from turnkeeper.guardian.intent import capabilities_of
from turnkeeper.guardian.memory import SESSION_MEMORY_FULL, Asked, KnownCapability, SessionMemory
from turnkeeper.guardian.ports import SessionTerms
from turnkeeper.policy.composition import asks_for_approval, ends_in_a_question
from turnkeeper.policy.facts import ApprovalFacts, Facts
from turnkeeper.policy.intent import Capability

APPROVAL_INPUT_CHANGED: Final = "approval_input_changed"
APPROVAL_DENIED: Final = "approval_denied"
APPROVAL_EXPIRED: Final = "approval_expired"
APPROVAL_USED: Final = "approval_used"
APPROVAL_UNKNOWN: Final = "approval_unknown"
INTENT_EXTENSION: Final = "intent_extension"
MAX_QUESTIONS: Final = 64
"""Questions that a session may have open at one time, grants for the whole session included."""
MAX_CAPABILITIES: Final = 1_024
"""Capabilities that an intent may come to have by extension."""
USE_GRACE_MS: Final = 300_000
"""How long after its end a grant may still be used: an approver may answer in the last second."""

_MAY_IT: Final = "May this step go on?"
_ORIGINS: Final = {"human": "user_input", "agent": "agent_generated"}
_REFUSALS: Final[Mapping[str, str]] = {
    APPROVAL_INPUT_CHANGED: "The step is not the one that an approver was asked about.",
    APPROVAL_DENIED: "An approver has denied this step.",
    APPROVAL_EXPIRED: "No approver answered in time, or the grant was not used in time.",
    APPROVAL_USED: "The grant for this step was used before.",
    SESSION_MEMORY_FULL: "The session can remember no more capabilities.",
}


@dataclass(frozen=True, slots=True)
class Resubmission:
    """A step that was sent before as `asked_id`. It waits still where it has neither a refusal nor a grant.

    `question` is what the store has of it; None where that could not be read yet.
    """

    asked_id: str
    asked: Asked
    question: Approval | None = None
    refusal: Denial | None = None
    grant: Approval | None = None

    @property
    def waits(self) -> bool:
        """Whether nobody has answered yet."""
        return self.refusal is None and self.grant is None


def may_wait(spec: HookSpec | None) -> bool:
    """Whether a step of this kind can be asked about or deferred."""
    return spec is not None and not spec.permitted.isdisjoint({Disposition.ASK, Disposition.DEFER})


def resubmission_of(
    request: RequestEnvelope, spec: HookSpec | None, memory: SessionMemory, found: Approval | None, now_ms: int
) -> Resubmission | None:
    """What a step refers to; None where it refers to no question of its session. `found` is what the store knows."""
    reference = request.payload.get(REFERENCE)
    if not isinstance(reference, str) or not may_wait(spec):
        return None
    asked = memory.kept.asked.get(reference)
    if asked is None:
        return None
    waiting = Resubmission(reference, asked, found)
    if input_hash(request.payload) != asked.input_hash:
        return _refused(waiting, APPROVAL_INPUT_CHANGED)
    status = ApprovalStatus.PENDING if found is None else found.status
    if status is ApprovalStatus.DENIED:
        return _refused(waiting, APPROVAL_DENIED)
    if found is None or status is ApprovalStatus.PENDING:
        expires_at_ms = asked.expires_at_ms if found is None else min(asked.expires_at_ms, found.expires_at_ms)
        return waiting if now_ms < expires_at_ms else _refused(waiting, APPROVAL_EXPIRED)
    return _granted(waiting, found, memory, now_ms)


def asked_at_its_end(decision: Decision, resubmission: Resubmission, now_ms: int) -> Decision:
    """A delay that ends in a question, once its time is over and nobody has answered: now it is one (CORE-DISP-04).

    It is the same question as before, so that an answer to the delay and one to the question are one answer.
    """
    question, details = resubmission.question, decision.defer_details
    if not resubmission.waits or question is None or details is None or not ends_in_a_question(details):
        return decision
    if now_ms < question.created_at_ms + int(cast("float", details["resolution_timeout_ms"])):
        return decision
    ask = {
        "approver": {"type": question.approver_type, "id": question.approver_id},
        "question": question.question or _MAY_IT,
        "timeout_seconds": max((question.expires_at_ms - now_ms) // 1_000, 1),
        "timeout_disposition": Disposition.DENY.value,
    }
    return replace(decision, disposition=Disposition.ASK, ask_details=ask, defer_details=None)


def with_grant(facts: Facts, resubmission: Resubmission | None, memory: SessionMemory) -> Facts:
    """The facts of a step that an approver has granted: the grant, and the intent it extends."""
    if resubmission is None or resubmission.grant is None:
        return facts
    grant = resubmission.grant
    approval = ApprovalFacts(granted=True, by=grant.decided_by or "", scope=grant.scope or "")
    if not _extends(grant, memory):
        return replace(facts, approval=approval)
    more = tuple(Capability(one.tool, one.operation, one.resource) for one in _capabilities(grant))
    intent = replace(facts.intent, capabilities=(*facts.intent.capabilities, *more))
    return replace(facts, approval=approval, intent=intent)


def without_room(memory: SessionMemory, now_ms: int) -> bool:
    """Whether the session can have no further question."""
    return len(_open(memory, now_ms)) >= MAX_QUESTIONS


def raises_question(decision: Decision) -> bool:
    """Whether an approver's answer is what the decision waits for."""
    return asks_for_approval(decision.disposition, decision.defer_details)


def question_of(
    request: RequestEnvelope,
    terms: SessionTerms,
    decision: Decision,
    ask: Mapping[str, object] | None,
    *,
    tool: str,
    turn_id: str | None,
    now_ms: int,
) -> Approval:
    """The question that a decision raises. `ask` is what the policy asked, also where the answer became a DEFER."""
    asked = ask or {}
    approver = cast("Mapping[str, str]", asked.get("approver", {"type": HUMAN, "id": NO_APPROVER}))
    return Approval(
        approval_id=approval_id_of(request.session_id, request.request_id),
        session_id=request.session_id,
        request_id=request.request_id,
        turn_id=turn_id,
        agent_id=terms.agent_id,
        key_id=terms.key_id,
        kind=ApprovalKind(decision.disposition.value),
        method=request.method,
        tool=tool,
        input_hash=input_hash(request.payload),
        question=cast("str", asked.get("question") or decision.reasoning or ""),
        approver_type=approver["type"],
        approver_id=approver["id"],
        created_at_ms=now_ms,
        expires_at_ms=now_ms + min(_wait_ms(decision), MAX_APPROVAL_MS),
        extension=cast("Mapping[str, object] | None", asked.get(INTENT_EXTENSION)),
    )


def asking(memory: SessionMemory, question: Approval) -> SessionMemory:
    """The memory of a session once a question was raised. Questions that are over are forgotten."""
    still_open = _open(memory, question.created_at_ms)
    asked = Asked(question.input_hash, question.expires_at_ms)
    return memory.keeping(asked={**still_open, question.request_id: asked})


def using(memory: SessionMemory, resubmission: Resubmission, grant: Approval) -> SessionMemory:
    """The memory once a grant let its step through."""
    standing = grant.scope is ApprovalScope.SESSION
    used = replace(resubmission.asked, used=True, standing=standing)
    changed = memory.keeping(asked={**memory.kept.asked, resubmission.asked_id: used})
    if resubmission.asked.used or not _extends(grant, memory):
        return changed
    changed = replace(changed, extensions=changed.extensions + 1)
    intent = memory.kept.intent
    if not standing or intent is None:
        return changed
    more = (*(intent.capabilities or ()), *_capabilities(grant))
    return changed.keeping(intent=replace(intent, capabilities=tuple(dict.fromkeys(more))))


def extension_entry(
    request: RequestEnvelope, resubmission: Resubmission, memory: SessionMemory, turn_id: str | None
) -> dict[str, object] | None:
    """The unlinked ContextEntry of an extension that a step brings into force; None where it brings none.

    It stands before the step's own entry and is bound to the step by `request_hash` (CORE-EXT-02, AUD-03).
    """
    grant = resubmission.grant
    if grant is None or resubmission.asked.used or not _extends(grant, memory):
        return None
    entry_id = f"{request.request_id}/{INTENT_EXTENSION}"
    origin = _ORIGINS.get(grant.approver_type, "external")
    base = ContextEntry.for_request(request, turn_id=turn_id, provenance_summary=_summary(origin, grant.request_id))
    entry = replace(base, entry_id=entry_id, step_id=grant.request_id, step_type=INTENT_EXTENSION).to_document()
    approver = {"type": grant.approver_type, "id": grant.decided_by or ""}
    extension = {
        "capabilities": [dict(one) for one in _offered(grant)],
        "scope": cast("ApprovalScope", grant.scope).value,
        "provenance": {
            "provenance_id": grant.approval_id,
            "origin": origin,
            "source_id": grant.decided_by or "approver",
        },
    }
    return entry | {"approver": approver, INTENT_EXTENSION: extension}


def _granted(waiting: Resubmission, found: Approval, memory: SessionMemory, now_ms: int) -> Resubmission:
    asked = waiting.asked
    if found.scope is not ApprovalScope.SESSION:
        if asked.used:
            return _refused(waiting, APPROVAL_USED)
        if now_ms >= asked.expires_at_ms + USE_GRACE_MS:
            return _refused(waiting, APPROVAL_EXPIRED)
    known = memory.kept.intent
    if known is not None and len(known.capabilities or ()) + len(_offered(found)) > MAX_CAPABILITIES:
        return _refused(waiting, SESSION_MEMORY_FULL)
    return replace(waiting, grant=found)


def _refused(waiting: Resubmission, code: str) -> Resubmission:
    return replace(waiting, refusal=Denial(code, _REFUSALS[code]))


def _open(memory: SessionMemory, now_ms: int) -> dict[str, Asked]:
    return {
        request_id: asked
        for request_id, asked in memory.kept.asked.items()
        if asked.standing or (not asked.used and now_ms < asked.expires_at_ms + USE_GRACE_MS)
    }


def _extends(grant: Approval, memory: SessionMemory) -> bool:
    # Where nothing was parsed there is no list of capabilities that could grow.
    intent = memory.kept.intent
    return grant.extension is not None and intent is not None and intent.capabilities is not None


def _offered(grant: Approval) -> list[Mapping[str, str]]:
    return cast("list[Mapping[str, str]]", (grant.extension or {}).get("capabilities", []))


def _capabilities(grant: Approval) -> tuple[KnownCapability, ...]:
    return capabilities_of([dict(one) for one in _offered(grant)])


def _wait_ms(decision: Decision) -> int:
    if decision.disposition is Disposition.ASK:
        return int(cast("float", (decision.ask_details or {})["timeout_seconds"])) * 1_000
    details = decision.defer_details or {}
    if ends_in_a_question(details):
        # How long the question at the end may wait, nobody has said: as long as whoever asks for the step wants to.
        return MAX_APPROVAL_MS
    return int(cast("float", details["resolution_timeout_ms"]))


def _summary(origin: str, step_id: str) -> dict[str, object]:
    return {
        "origins_seen": [origin],
        "entry_count": 1,
        "entry_count_by_origin": {origin: 1},
        "earliest_step_id_by_origin": {origin: step_id},
    }
