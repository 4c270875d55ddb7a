"""How rules combine, as laws over any set of rules."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.samples import rule_ids

from turnkeeper.acs import Disposition
from turnkeeper.policy.composition import compose
from turnkeeper.policy.rules import Rule, RuleSet

DISPOSITIONS = st.sampled_from([Disposition.ALLOW, Disposition.DENY])


@st.composite
def outcomes(draw: st.DrawFn) -> tuple[RuleSet, list[Rule], list[Rule]]:
    """A policy, the rules that matched and those that failed."""
    decisions = draw(st.lists(DISPOSITIONS, max_size=6))
    rules = tuple(Rule(f"r{index}", decision, reasoning="R.") for index, decision in enumerate(decisions))
    fates = draw(st.lists(st.sampled_from("mfs"), min_size=len(rules), max_size=len(rules)))
    matched = [rule for rule, fate in zip(rules, fates, strict=True) if fate == "m"]
    failed = [rule for rule, fate in zip(rules, fates, strict=True) if fate == "f"]
    return RuleSet("p", "sha256:0", draw(DISPOSITIONS), rules), matched, failed


@given(outcomes())
def test_what_denies_or_fails_is_never_outvoted(outcome: tuple[RuleSet, list[Rule], list[Rule]]) -> None:
    rules, matched, failed = outcome
    decision = compose(rules, matched, failed)
    if failed or any(rule.decision is Disposition.DENY for rule in matched):
        assert decision.disposition is Disposition.DENY
    elif matched:
        assert decision.disposition is Disposition.ALLOW
    else:
        assert decision.disposition is rules.default


@given(outcomes())
def test_the_order_of_rules_changes_nothing_but_the_order_of_what_is_cited(
    outcome: tuple[RuleSet, list[Rule], list[Rule]],
) -> None:
    rules, matched, failed = outcome
    forward = compose(rules, matched, failed)
    backward = compose(rules, matched[::-1], failed[::-1])
    assert forward.disposition is backward.disposition
    assert set(rule_ids(forward)) == set(rule_ids(backward))


@given(outcomes())
def test_every_decision_cites_the_policy(outcome: tuple[RuleSet, list[Rule], list[Rule]]) -> None:
    assert all(reference.policy_id == "p" for reference in compose(*outcome).policy_references)
    assert compose(*outcome).policy_references
