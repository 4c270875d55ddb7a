"""How what several rules say becomes one decision.

DENY wins; what failed counts as DENY; where nothing spoke the policy's default holds. Pure.
"""

from collections.abc import Sequence
from typing import Final

from turnkeeper.acs import Decision, Disposition
from turnkeeper.policy.rules import Rule, RuleSet

EVALUATION_FAILED: Final = "evaluation_failed"
NO_RULE_ALLOWS: Final = "no_rule_allows"

# All rules that deny are cited; that many of them are quoted.
MAX_REASONINGS: Final = 3

_FAILED_REASONING = "A rule of the policy could not be evaluated for this step, so it is denied."
_DEFAULT_REASONING = "No rule of the policy allows this step."


def compose(rules: RuleSet, matched: Sequence[Rule], failed: Sequence[Rule]) -> Decision:
    """The decision of a policy whose rules `matched`, save those that `failed` to evaluate."""
    denying = [rule for rule in matched if rule.decision is Disposition.DENY]
    if failed:
        return _denial(rules, [*failed, *denying], (EVALUATION_FAILED, *_codes(denying)), _FAILED_REASONING)
    if denying:
        return _denial(rules, denying, _codes(denying), _reasoning(denying))
    if matched:
        return Decision(
            Disposition.ALLOW,
            reasoning=matched[0].reasoning,
            reason_codes=_codes(matched),
            policy_references=tuple(rules.reference(rule.id) for rule in matched),
        )
    if rules.default is Disposition.DENY:
        return Decision(Disposition.DENY, _DEFAULT_REASONING, (NO_RULE_ALLOWS,), (rules.reference(),))
    return Decision(Disposition.ALLOW, policy_references=(rules.reference(),))


def _denial(rules: RuleSet, cited: Sequence[Rule], codes: tuple[str, ...], reasoning: str) -> Decision:
    references = tuple(rules.reference(rule.id) for rule in cited)
    return Decision(Disposition.DENY, reasoning, tuple(dict.fromkeys(codes)), references)


def _reasoning(rules: Sequence[Rule]) -> str:
    distinct = dict.fromkeys(rule.reasoning or "" for rule in rules)
    return " ".join(list(distinct)[:MAX_REASONINGS])


def _codes(rules: Sequence[Rule]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(code for rule in rules for code in rule.reason_codes))
