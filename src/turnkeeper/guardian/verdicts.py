"""The Guardian's word on one step (rows 17 to 21 of the order of checks).

Answers for a decision in every case: the client's chain head, the policy engine, the dispositions a hook permits, the
codes of its turn window. Must never deny an audit-only hook, nor let anything an engine does become anything but a
decision. Pure but for the engine it is handed.
"""

from collections.abc import Mapping
from dataclasses import replace

import structlog

from turnkeeper.acs import Decision, Disposition
from turnkeeper.guardian.calls import Call
from turnkeeper.guardian.dispositions import (
    APPROVER_UNAVAILABLE,
    CHAIN_MISMATCH,
    DEFERRAL_BOUND_EXCEEDED,
    DISPOSITION_NOT_PERMITTED,
    MODIFY_COMPOSITION,
    MODIFY_UNSUPPORTED,
    Given,
    Recipient,
    give,
)
from turnkeeper.guardian.ledger import Considered
from turnkeeper.guardian.memory import SESSION_MEMORY_FULL
from turnkeeper.guardian.observations import facts_of
from turnkeeper.guardian.ports import FindingRecord, SessionProgress
from turnkeeper.guardian.provenance import PROVENANCE_ID_REPEATED
from turnkeeper.guardian.resubmissions import (
    APPROVAL_DENIED,
    APPROVAL_EXPIRED,
    APPROVAL_INPUT_CHANGED,
    APPROVAL_UNKNOWN,
    APPROVAL_USED,
    Resubmission,
    asked_at_its_end,
    may_wait,
    raises_question,
    with_grant,
    without_room,
)
from turnkeeper.guardian.windows import Conduct
from turnkeeper.policy.composition import EVALUATION_FAILED, granted
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.facts import Facts
from turnkeeper.policy.hosted import Unheard
from turnkeeper.records import record

_FAILED = "The policy could not be evaluated for this step."
_MESSAGES: Mapping[str, str] = {
    Conduct.TURN_NOT_OPEN: "the step names a turn, and none is open",
    Conduct.TURN_ALREADY_OPEN: "a turnStart came while another turn was open; its counts go on",
    Conduct.TURN_LEFT_OPEN: "the session ended while a turn was open",
    Conduct.TURN_ID_MISSING: "the step names no turn; it was counted in the open one",
    Conduct.TURN_ID_FOREIGN: "the step names another turn than the open one, in which it was counted",
    Conduct.TURN_MISMATCH: "the turnEnd belongs to no open turn; it closes nothing",
    Conduct.STEP_COUNT_MISMATCH: "the agent counted other steps in the turn than the Guardian",
    Conduct.TOOL_CALL_COUNT_MISMATCH: "the agent counted other tool calls in the turn than the Guardian",
    Conduct.DENIED_AFTER_ALLOW: "the turn ended as denied at its start, which was allowed",
    Conduct.COMPLETED_AFTER_DENY: "the turn ended as completed, and its start was denied",
    Conduct.DEFERRED_WITHOUT_DEFER: "the turn ended as deferred, and nothing in it was",
    APPROVAL_UNKNOWN: "the step refers to a question that this session does not have",
    APPROVAL_INPUT_CHANGED: "a step refers to a question about another input",
    APPROVAL_DENIED: "a step was sent again that an approver had denied",
    APPROVAL_EXPIRED: "a step was sent again whose question or grant was over",
    APPROVAL_USED: "a step was sent again whose grant was used before",
    SESSION_MEMORY_FULL: "the session can remember no more, so the step was denied",
    CHAIN_MISMATCH: "the agent believes in another chain head than the Guardian",
    EVALUATION_FAILED: "the policy could not be evaluated",
    DISPOSITION_NOT_PERMITTED: "the policy's decision is not permitted for this hook and was replaced",
    MODIFY_COMPOSITION: "the policy's modifications have no single meaning and were replaced by a denial",
    MODIFY_UNSUPPORTED: "the client cannot apply the policy's modifications, which were replaced",
    APPROVER_UNAVAILABLE: "the client cannot wait for an approver, so the question was replaced",
    DEFERRAL_BOUND_EXCEEDED: "the session had as many deferrals as it may have, so this one was replaced by a denial",
}

_log = structlog.get_logger(__name__)


@record
class Ruling:
    """What is answered, and what an auditor should see about it. `ask` is the policy's question to an approver."""

    decision: Decision
    findings: tuple[FindingRecord, ...]
    ask: Mapping[str, object] | None = None


def decide(
    call: Call,
    progress: SessionProgress,
    considered: Considered,
    engine: PolicyEngine,
    *,
    to: Recipient,
    again: Resubmission | None = None,
) -> Ruling:
    """The decision on a step whose session stands at `progress`, the step itself not counted.

    `again` is what the step refers to, where it was sent before. Raises `Unheard` as the engine does.
    """
    placement = considered.placement
    codes = [conduct.value for conduct in placement.conduct]
    if _differs(call, progress):
        codes.append(CHAIN_MISMATCH)
        decision = Decision(
            Disposition.DENY, "The chain head that the agent names is not the Guardian's.", (CHAIN_MISMATCH,)
        )
    elif considered.denial is not None:
        decision = Decision(Disposition.DENY, considered.denial.reasoning, (considered.denial.code,))
    elif again is not None and again.refusal is not None:
        refusal = again.refusal
        codes.append(refusal.code)
        decision = Decision(Disposition.DENY, refusal.reasoning, (refusal.code,))
    else:
        facts = with_grant(facts_of(call.envelope, progress, considered), again, considered.memory)
        decision = _evaluate(engine, facts)
        if again is not None and again.grant is not None and raises_question(decision):
            # An engine that does not look at approvals asks again what was answered.
            decision = granted(decision)
        if again is not None:
            decision = asked_at_its_end(decision, again, call.received_at_ms)
        if EVALUATION_FAILED in decision.reason_codes:
            codes.append(EVALUATION_FAILED)
    given = Given(decision)
    if call.spec is not None:
        given = _with_room(give(call.spec, decision, call.envelope.payload, to), call, considered, again)
        decision = given.decision
        codes.extend(given.codes)
    if again is None and call.reference is not None and may_wait(call.spec):
        codes.append(APPROVAL_UNKNOWN)
    if placement.reason_codes or considered.codes:
        decision = replace(decision, reason_codes=(*decision.reason_codes, *placement.reason_codes, *considered.codes))
    findings = [_finding(code, placement.turn_id) for code in dict.fromkeys(codes)]
    findings += [
        FindingRecord(note.code, note.message, placement.turn_id)
        for note in considered.notes
        # The same step sent again carries the same data by design.
        if again is None or again.refusal is not None or note.code != PROVENANCE_ID_REPEATED
    ]
    return Ruling(decision, tuple(findings), given.ask)


def _with_room(given: Given, call: Call, considered: Considered, again: Resubmission | None) -> Given:
    """What is given, or DENY where the session can remember no further question."""
    asked_anew = raises_question(given.decision) and again is None
    if not asked_anew or not without_room(considered.memory, call.received_at_ms):
        return given
    reasoning = "The session can have no more questions to approvers."
    return Given(Decision(Disposition.DENY, reasoning, (SESSION_MEMORY_FULL,)), given.codes)


def _differs(call: Call, progress: SessionProgress) -> bool:
    believed = call.envelope.client_chain_hash
    return believed is not None and believed != progress.head


def _evaluate(engine: PolicyEngine, facts: Facts) -> Decision:
    try:
        decision = engine.evaluate(facts)
        if isinstance(decision, Decision):
            return decision
        _log.error("policy_engine_gave_no_decision", session_id=facts.session.id, step_id=facts.step_id)
    except (KeyboardInterrupt, SystemExit, GeneratorExit, Unheard):
        raise
    except BaseException:  # noqa: BLE001  one engine call; bindings raise panics that are no Exception
        _log.exception("policy_engine_failed", session_id=facts.session.id, step_id=facts.step_id)
    return Decision(Disposition.DENY, _FAILED, (EVALUATION_FAILED,), (engine.reference,))


def _finding(code: str, turn_id: str | None) -> FindingRecord:
    return FindingRecord(code, _MESSAGES[code], turn_id)
