"""Which decision may be given: what a hook permits, what has one meaning, what the client can do (rows 19 and 21).

Answers for ACS 5, 6.3, 6.5, 9.2 and the bound on deferrals: a policy's decision stays, or is replaced by a stricter one
that says why. Must never answer a step that reports what has happened with anything but ALLOW, or, where the hook
permits it, MODIFY. Each replacement has a code, which becomes a finding. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, cast

from turnkeeper.acs import (
    Decision,
    Disposition,
    HookSpec,
    ModificationsInapplicable,
    ModificationsRejected,
    apply_modifications,
    validator,
)
from turnkeeper.guardian.capabilities import AskFallback, ClientAbilities
from turnkeeper.policy.composition import EVALUATION_FAILED, HUMAN_APPROVAL
from turnkeeper.records import record

CHAIN_MISMATCH: Final = "chain_mismatch"
DISPOSITION_NOT_PERMITTED: Final = "disposition_not_permitted"
MODIFY_COMPOSITION: Final = "modify_composition"
MODIFY_UNSUPPORTED: Final = "modify_unsupported"
APPROVER_UNAVAILABLE: Final = "approver_unavailable"
DEFERRAL_BOUND_EXCEEDED: Final = "deferral_bound_exceeded"
MAX_SHOWN_EDITS: Final = 10
MAX_SHOWN_CHARACTERS: Final = 200

_DETAILS: Final[Mapping[Disposition, str]] = {
    Disposition.ASK: "ask-details",
    Disposition.DEFER: "defer-details",
}


@record
class Given:
    """The decision that is given, and a code for each way in which it is not the policy's.

    `ask` is the question to an approver, also where the client is told to wait by a DEFER.
    """

    decision: Decision
    codes: tuple[str, ...] = ()
    ask: Mapping[str, object] | None = None


@record
class Recipient:
    """Who is answered: the client's abilities, and the deferrals it had in this session."""

    abilities: ClientAbilities
    deferrals: int
    max_deferrals: int


def give(spec: HookSpec, decision: Decision, payload: Mapping[str, object], to: Recipient) -> Given:
    """What is answered to a step when the policy said `decision`."""
    if decision.disposition not in spec.permitted:
        return _not_permitted(spec, decision)
    if decision.disposition is Disposition.MODIFY:
        return _modify(spec, decision, payload, to.abilities)
    schema = _DETAILS.get(decision.disposition)
    if schema is None:
        return Given(decision)
    details = decision.ask_details if decision.disposition is Disposition.ASK else decision.defer_details
    if not validator(schema).is_valid(dict(details or {})):
        return _replaced(spec, decision, EVALUATION_FAILED, "The policy's decision lacks what the standard asks for.")
    return _ask(spec, decision, to) if decision.disposition is Disposition.ASK else _defer(spec, decision, to)


def _not_permitted(spec: HookSpec, decision: Decision) -> Given:
    ours = {CHAIN_MISMATCH, EVALUATION_FAILED}.intersection(decision.reason_codes)
    if spec.audit_only and ours:
        # The reason is the Guardian's own and has its own finding; there was no decision of a policy to replace.
        return Given(_allowed(decision, decision.reason_codes))
    reasoning = f"The policy answered {decision.disposition}, which cannot be given here. {decision.reasoning}"
    return _replaced(spec, decision, DISPOSITION_NOT_PERMITTED, reasoning)


def _modify(spec: HookSpec, decision: Decision, payload: Mapping[str, object], abilities: ClientAbilities) -> Given:
    modifications = decision.modifications or {}
    try:
        modified = apply_modifications(payload, modifications)
    except ModificationsRejected as rejected:
        reasoning = f"The policy's modifications have no single meaning: {rejected.message}."
        return _replaced(spec, decision, EVALUATION_FAILED, reasoning, MODIFY_COMPOSITION)
    except ModificationsInapplicable as inapplicable:
        reasoning = f"The policy's modifications do not fit this step: {inapplicable.message}."
        return _replaced(spec, decision, EVALUATION_FAILED, reasoning)
    if spec.schema is not None and not validator(spec.schema).is_valid(modified):
        reasoning = "The policy's modifications would make the step none of its hook."
        return _replaced(spec, decision, EVALUATION_FAILED, reasoning)
    if abilities.can_modify:
        return Given(decision)
    reasoning = f"This client cannot apply {describe(modifications)}. {decision.reasoning}"
    return _replaced(spec, decision, MODIFY_UNSUPPORTED, reasoning)


def _ask(spec: HookSpec, decision: Decision, to: Recipient) -> Given:
    details = cast("Mapping[str, object]", decision.ask_details)
    approver = cast("Mapping[str, str]", details["approver"])
    if to.abilities.can_wait_for(approver["type"]):
        return Given(decision, ask=details)
    if to.abilities.ask_fallback is AskFallback.DENY:
        reasoning = f"This client cannot wait for an approver of type {approver['type']} (ask). {decision.reasoning}"
        return _replaced(spec, decision, APPROVER_UNAVAILABLE, reasoning)
    deferred = Decision(
        Disposition.DEFER,
        decision.reasoning,
        (APPROVER_UNAVAILABLE, *decision.reason_codes),
        decision.policy_references,
        decision.policy_data,
        defer_details={
            "reason": "pending_dependency",
            "resolution_method": HUMAN_APPROVAL,
            "resolution_timeout_ms": int(cast("float", details["timeout_seconds"])) * 1_000,
            "timeout_decision": Disposition.DENY.value,
        },
    )
    given = _defer(spec, deferred, to)
    return replace(given, codes=(APPROVER_UNAVAILABLE, *given.codes), ask=details)


def _defer(spec: HookSpec, decision: Decision, to: Recipient) -> Given:
    if to.deferrals >= to.max_deferrals:
        reasoning = f"The session has had its {to.max_deferrals} deferrals. {decision.reasoning}"
        return _replaced(spec, decision, DEFERRAL_BOUND_EXCEEDED, reasoning)
    details = cast("Mapping[str, object]", decision.defer_details)
    if details.get("timeout_decision") == Disposition.ASK and not to.abilities.can_ask:
        # At the end of the wait it would have to ask, which it cannot.
        closed = replace(decision, defer_details={**details, "timeout_decision": Disposition.DENY.value})
        return Given(replace(closed, reason_codes=_with(APPROVER_UNAVAILABLE, closed)), (APPROVER_UNAVAILABLE,))
    return Given(decision)


def _replaced(spec: HookSpec, decision: Decision, code: str, reasoning: str, *more: str) -> Given:
    codes = tuple(dict.fromkeys((code, *more, *decision.reason_codes)))
    if spec.audit_only:
        return Given(_allowed(decision, codes), (code, *more))
    denied = Decision(Disposition.DENY, reasoning.strip(), codes, decision.policy_references, decision.policy_data)
    return Given(denied, (code, *more))


def _allowed(decision: Decision, codes: tuple[str, ...]) -> Decision:
    """ALLOW for a step that reports what has happened, with the reasons why it would have been something else."""
    return Decision(
        Disposition.ALLOW,
        reasoning=decision.reasoning,
        reason_codes=codes,
        policy_references=decision.policy_references,
    )


def _with(code: str, decision: Decision) -> tuple[str, ...]:
    return tuple(dict.fromkeys((code, *decision.reason_codes)))


def describe(modifications: Mapping[str, object]) -> str:
    """Modifications in words, without the values that they hide or set."""
    places = list(_places(modifications))
    shown = ", ".join(place[:MAX_SHOWN_CHARACTERS] for place in places[:MAX_SHOWN_EDITS])
    return shown if len(places) <= MAX_SHOWN_EDITS else f"{shown} and {len(places) - MAX_SHOWN_EDITS} more"


def _places(modifications: Mapping[str, object]) -> Iterator[str]:
    if "modified_content" in modifications:
        yield "modified_content"
    for redaction in cast("list[dict[str, str]]", modifications.get("redactions", [])):
        yield f"a redaction of {redaction['path']}"
    for name in cast("Mapping[str, object]", modifications.get("parameter_overrides", {})):
        yield f"an override of {name}"
