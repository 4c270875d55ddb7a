"""The shipped bundles: their own tests pass, and each of their rules is needed by one of them."""

from dataclasses import replace

import pytest

from turnkeeper.acs import Disposition
from turnkeeper.policy.bundle import Bundle
from turnkeeper.policy.cases import failing
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import RuleSet
from turnkeeper.policy.shipped import SHIPPED, shipped_bundle

RULES = [(name, rule.id) for name in SHIPPED for rule in shipped_bundle(name).rules.rules]


def broken(bundle: Bundle, rules: RuleSet) -> int:
    """How many of a bundle's own tests these rules fail."""
    engine = CelEngine(rules)
    return len(failing(bundle.cases, [engine.evaluate(case.facts) for case in bundle.cases]))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_tests_of_a_shipped_bundle_pass(name: str) -> None:
    bundle = shipped_bundle(name)
    assert bundle.name == name
    assert len(bundle.cases) > len(bundle.rules.rules)
    assert broken(bundle, bundle.rules) == 0


@pytest.mark.parametrize(("name", "rule_id"), RULES)
def test_without_any_one_rule_a_test_of_the_bundle_fails(name: str, rule_id: str) -> None:
    bundle = shipped_bundle(name)
    left = tuple(rule for rule in bundle.rules.rules if rule.id != rule_id)
    assert broken(bundle, replace(bundle.rules, rules=left)) > 0


@pytest.mark.parametrize(("name", "rule_id"), RULES)
def test_without_the_condition_of_any_one_rule_a_test_of_the_bundle_fails(name: str, rule_id: str) -> None:
    bundle = shipped_bundle(name)
    rules = tuple(replace(rule, when=None) if rule.id == rule_id else rule for rule in bundle.rules.rules)
    if rules != bundle.rules.rules:
        assert broken(bundle, replace(bundle.rules, rules=rules)) > 0


@pytest.mark.parametrize("name", SHIPPED)
def test_no_shipped_rule_answers_what_a_hook_does_not_permit_or_lets_time_allow(name: str) -> None:
    for rule in shipped_bundle(name).rules.rules:
        if rule.decision is Disposition.ASK:
            assert rule.details is not None
            assert rule.details["timeout_disposition"] == "deny"
