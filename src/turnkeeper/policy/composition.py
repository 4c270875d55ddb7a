"""How what several rules say becomes one decision.

Answers for the order DENY, ASK, DEFER, MODIFY, ALLOW: the first of them that anybody says is the decision, and nothing
that was said is loosened by it. What failed counts as DENY; so do questions, delays or changes that do not fit
together. Where nothing spoke the policy's default holds. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from turnkeeper.acs import Decision, Disposition, ModificationsRejected, PolicyReference, merge_modifications
from turnkeeper.policy.rules import Rule, RuleSet

EVALUATION_FAILED: Final = "evaluation_failed"
NO_RULE_ALLOWS: Final = "no_rule_allows"
APPROVED: Final = "approved"
APPROVERS_DIFFER: Final = "approvers_differ"
MODIFICATIONS_CONFLICT: Final = "modifications_conflict"
HUMAN_APPROVAL: Final = "human_approval"

PRECEDENCE: Final = (Disposition.DENY, Disposition.ASK, Disposition.DEFER, Disposition.MODIFY, Disposition.ALLOW)
"""Whose word counts: the strictest."""

# All rules that deny are cited; that many of them are quoted.
MAX_REASONINGS: Final = 3

# The resolution that needs most is the one that is owed.
_METHODS = ("timeout", "additional_context", HUMAN_APPROVAL)
_FAILED_REASONING = "A rule of the policy could not be evaluated for this step, so it is denied."
_DEFAULT_REASONING = "No rule of the policy allows this step."
_CONFLICTS: Mapping[str, str] = {
    APPROVERS_DIFFER: "Rules of the policy ask different approvers about this step, so it is denied.",
    MODIFICATIONS_CONFLICT: "Rules of the policy change this step in ways that do not fit together, so it is denied.",
}


class DetailsConflict(Exception):
    """Details that cannot be given as one answer. `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def compose(rules: RuleSet, matched: Sequence[Rule], failed: Sequence[Rule], *, approved: bool = False) -> Decision:
    """The decision of a policy whose rules `matched`, save those that `failed` to evaluate.

    `approved` says that an approver has granted this very step: what asks for approval then allows, and everything
    else a rule says still holds.
    """
    if failed:
        denying = [rule for rule in matched if rule.decision is Disposition.DENY]
        codes = (EVALUATION_FAILED, *_codes(denying))
        return Decision(Disposition.DENY, _FAILED_REASONING, codes, _references(rules, [*failed, *denying]))
    if not matched:
        return _by_default(rules)
    spoken = [(_effective(rule, approved=approved), rule) for rule in matched]
    said_at_all = {said for said, _ in spoken}
    strictest = next(candidate for candidate in PRECEDENCE if candidate in said_at_all)
    if strictest is Disposition.MODIFY and rules.default is Disposition.DENY and Disposition.ALLOW not in said_at_all:
        # To change a step is not to permit it: otherwise a redaction would open every tool that it touches.
        return _by_default(rules)
    return _as_one(rules, strictest, [rule for said, rule in spoken if said is strictest], approved=approved)


def merge_asks(asks: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Several questions to one approver as one. Raises `DetailsConflict` where they go to different approvers.

    The shortest time holds, a DENY at its end holds, and an extension of the intent is offered only if all offer it.
    """
    first = dict(asks[0])
    for ask in asks[1:]:
        if ask["approver"] != first["approver"]:
            raise DetailsConflict(APPROVERS_DIFFER)
        if ask["question"] not in cast("str", first["question"]).split("\n"):
            first["question"] = f"{first['question']}\n{ask['question']}"
        first["timeout_seconds"] = min(cast("int", first["timeout_seconds"]), cast("int", ask["timeout_seconds"]))
        if ask.get("timeout_disposition") != Disposition.ALLOW:
            first["timeout_disposition"] = Disposition.DENY.value
        for name in ("intent_extension", "options", "context"):
            if name in first and ask.get(name) != first[name]:
                del first[name]
    return first


def merge_defers(defers: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Several delays as one: the resolution that needs most, the shortest time, DENY at its end if anybody says so."""
    leading = max(defers, key=lambda defer: _METHODS.index(cast("str", defer["resolution_method"])))
    merged = dict(leading)
    merged["resolution_timeout_ms"] = min(cast("int", defer["resolution_timeout_ms"]) for defer in defers)
    if any(defer.get("timeout_decision") != Disposition.ASK for defer in defers):
        merged["timeout_decision"] = Disposition.DENY.value
    wanted = [name for defer in defers for name in cast("Sequence[str]", defer.get("required_context", ()))]
    if wanted:
        merged["required_context"] = list(dict.fromkeys(wanted))
    return merged


def conflict(code: str, codes: Iterable[str], references: tuple[PolicyReference, ...]) -> Decision:
    """The denial of a step whose rules cannot all be honored."""
    return Decision(
        Disposition.DENY, _CONFLICTS[code], tuple(dict.fromkeys((EVALUATION_FAILED, code, *codes))), references
    )


def with_details(
    disposition: Disposition,
    details: Sequence[Mapping[str, object]],
    *,
    reasoning: str | None,
    reason_codes: tuple[str, ...],
    references: tuple[PolicyReference, ...],
) -> Decision:
    """A decision with the details of all who said it, or the denial where they do not fit together."""
    modifications = ask = defer = None
    try:
        if disposition is Disposition.MODIFY:
            modifications = merge_modifications(details)
        elif disposition is Disposition.ASK:
            ask = merge_asks(details)
        elif disposition is Disposition.DEFER:
            defer = merge_defers(details)
    except ModificationsRejected:
        return conflict(MODIFICATIONS_CONFLICT, reason_codes, references)
    except DetailsConflict as found:
        return conflict(found.code, reason_codes, references)
    return Decision(
        disposition,
        reasoning,
        reason_codes,
        references,
        modifications=modifications,
        ask_details=ask,
        defer_details=defer,
    )


def quote(reasonings: Iterable[str | None]) -> str:
    """What several say, each once, and not more than a reader will read."""
    distinct = dict.fromkeys(reasoning for reasoning in reasonings if reasoning)
    return " ".join(list(distinct)[:MAX_REASONINGS])


def _effective(rule: Rule, *, approved: bool) -> Disposition:
    return Disposition.ALLOW if approved and asks_for_approval(rule.decision, rule.details) else rule.decision


def asks_for_approval(decision: Disposition, details: Mapping[str, object] | None) -> bool:
    """Whether an approver's yes is what this decision waits for, at once or at the end of its time."""
    if decision is Disposition.DEFER:
        method = None if details is None else details.get("resolution_method")
        return method == HUMAN_APPROVAL or (method == "timeout" and ends_in_a_question(details))
    return decision is Disposition.ASK


def ends_in_a_question(details: Mapping[str, object] | None) -> bool:
    """Whether a delay that nobody resolved is asked about when its time is over (ACS 6.1)."""
    return details is not None and details.get("timeout_decision") == Disposition.ASK


def granted(decision: Decision) -> Decision:
    """A decision once an approver has said yes: a question is answered, a DENY denies still, a change is made still."""
    if not asks_for_approval(decision.disposition, decision.defer_details):
        return decision
    changes = decision.modifications
    return replace(
        decision,
        disposition=Disposition.ALLOW if changes is None else Disposition.MODIFY,
        reasoning=None if changes is None else decision.reasoning,
        reason_codes=(APPROVED,),
        ask_details=None,
        defer_details=None,
    )


def _as_one(rules: RuleSet, disposition: Disposition, cited: Sequence[Rule], *, approved: bool) -> Decision:
    codes = tuple(
        dict.fromkeys(
            code
            for rule in cited
            for code in ((APPROVED,) if approved and rule.decision is not disposition else rule.reason_codes)
        )
    )
    # An ALLOW gives the first rule's reason, everything else quotes all who object.
    reasoning = cited[0].reasoning if disposition is Disposition.ALLOW else quote(rule.reasoning for rule in cited)
    if disposition in (Disposition.ALLOW, Disposition.DENY):
        return Decision(disposition, reasoning, codes, _references(rules, cited))
    return with_details(
        disposition,
        [rule.details or {} for rule in cited],
        reasoning=reasoning,
        reason_codes=codes,
        references=_references(rules, cited),
    )


def _by_default(rules: RuleSet) -> Decision:
    if rules.default is Disposition.DENY:
        return Decision(Disposition.DENY, _DEFAULT_REASONING, (NO_RULE_ALLOWS,), (rules.reference(),))
    return Decision(Disposition.ALLOW, policy_references=(rules.reference(),))


def _references(rules: RuleSet, cited: Sequence[Rule]) -> tuple[PolicyReference, ...]:
    return tuple(rules.reference(rule.id) for rule in cited)


def _codes(rules: Sequence[Rule]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(code for rule in rules for code in rule.reason_codes))
