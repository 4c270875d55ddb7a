"""Rules in CEL: which rules speak, how they combine, and that no error is ever read as silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.samples import engine, facts, rule_ids, tool_call

from turnkeeper.acs import Disposition
from turnkeeper.policy.facts import TurnFacts
from turnkeeper.policy.rules import PolicyRejected

THREE = """
  - id: three
    hooks: [toolCallRequest]
    when: turn.tool_calls > 3
    decision: deny
    reasoning: At most three tool calls in a turn.
    reason_codes: [tool_call_limit]
"""


def when(condition: str) -> str:
    return f"  - {{id: a, decision: deny, reasoning: No., when: '{condition}'}}"


def test_a_condition_decides_by_the_guardians_own_counts() -> None:
    rules = engine(THREE)
    assert rules.evaluate(tool_call(turn=TurnFacts("t", open=True, tool_calls=3))).disposition is Disposition.ALLOW
    denied = rules.evaluate(tool_call(turn=TurnFacts("t", open=True, tool_calls=4)))
    assert denied.disposition is Disposition.DENY
    assert denied.reason_codes == ("tool_call_limit",)
    assert denied.reasoning == "At most three tool calls in a turn."


def test_a_decision_cites_the_policy_its_digest_and_its_rule() -> None:
    rules = engine(THREE)
    (reference,) = rules.evaluate(tool_call(turn=TurnFacts("t", tool_calls=4))).policy_references
    assert reference.policy_id == "house"
    assert reference.policy_version == rules.reference.policy_version
    assert reference.rule_id == "three"


def test_a_rule_for_one_hook_is_silent_for_another() -> None:
    decision = engine(THREE).evaluate(facts("steps/toolCallResult", turn=TurnFacts("t", tool_calls=9)))
    assert decision.disposition is Disposition.ALLOW


@pytest.mark.parametrize(("name", "denied"), [("shell", True), ("fs.read", True), ("fsread", False), ("Shell", False)])
def test_tool_patterns_are_globs_over_the_whole_name(name: str, denied: bool) -> None:
    rules = engine("  - {id: a, tools: [shell, 'fs.*'], decision: deny, reasoning: No.}")
    assert (rules.evaluate(tool_call(name)).disposition is Disposition.DENY) is denied


def test_a_rule_with_tools_says_nothing_about_steps_without_one() -> None:
    rules = engine("  - {id: a, tools: ['*'], decision: deny, reasoning: No.}")
    assert rules.evaluate(facts("steps/userMessage")).disposition is Disposition.ALLOW


def test_deny_wins_over_allow_and_cites_every_rule_that_denies() -> None:
    rules = engine(
        "  - {id: a, decision: deny, reasoning: One., reason_codes: [x]}\n"
        "  - {id: b, decision: allow}\n"
        "  - {id: c, decision: deny, reasoning: Two., reason_codes: [y, x]}\n"
    )
    decision = rules.evaluate(tool_call())
    assert decision.disposition is Disposition.DENY
    assert rule_ids(decision) == ["a", "c"]
    assert decision.reason_codes == ("x", "y")
    assert decision.reasoning == "One. Two."


def test_where_no_rule_speaks_the_default_holds() -> None:
    assert engine("  []").evaluate(tool_call()).disposition is Disposition.ALLOW
    denied = engine("  []", default="deny").evaluate(tool_call())
    assert denied.disposition is Disposition.DENY
    assert denied.reason_codes == ("no_rule_allows",)


@pytest.mark.parametrize(
    "condition",
    [
        'args.command == "x"',
        "payload.nothing > 1",
        "1 / (turn.steps - turn.steps) == 1",
        'args.big > "text"',
        "payload.arguments",
        'tool.name.matches("(" + "")',
        "payload.list.all(x, payload.list.all(y, y == x || y != x))",
    ],
)
def test_a_condition_that_fails_denies_and_names_its_rule(condition: str) -> None:
    step = facts("steps/toolCallRequest", {"tool": {"name": "t"}, "arguments": {}, "list": list(range(20_000))})
    decision = engine(when(condition)).evaluate(step)
    assert decision.disposition is Disposition.DENY
    assert decision.reason_codes == ("evaluation_failed",)
    assert rule_ids(decision) == ["a"]


def test_a_failed_condition_of_an_allowing_rule_denies_too() -> None:
    rules = engine("  - {id: a, decision: allow, when: args.command == 'x'}")
    assert rules.evaluate(tool_call()).reason_codes == ("evaluation_failed",)


def test_no_detail_of_the_failure_is_told() -> None:
    decision = engine(when('args.secret_name == "x"')).evaluate(tool_call())
    assert "secret_name" not in (decision.reasoning or "")


def test_has_asks_for_an_absent_member_without_failing() -> None:
    rules = engine(when('has(args.command) && args.command == "x"'))
    assert rules.evaluate(tool_call()).disposition is Disposition.ALLOW
    assert rules.evaluate(tool_call(command="x")).disposition is Disposition.DENY


def test_every_fact_can_be_read() -> None:
    condition = (
        'step.method == "steps/toolCallRequest" && step.hook == "toolCallRequest" && step.id == "step"'
        ' && payload.tool.name == "t" && tool.name == "t" && tool.provider == "" && args.a == 1'
        ' && turn.id == "turn" && turn.open && !turn.denied && turn.steps == 2 && turn.tool_calls == 1'
        ' && session.steps == 1 && session.tool_calls == 0 && session.turns == 0 && session.id != ""'
        ' && agent.id == "agent" && environment == ""'
    )
    step = tool_call("t", a=1, turn=TurnFacts("turn", open=True, steps=2, tool_calls=1))
    assert engine(when(condition)).evaluate(step).disposition is Disposition.DENY


@pytest.mark.parametrize("condition", ["turn.steps >", "nobody.knows", "1 + 1", "missing(args)"])
def test_a_condition_that_cannot_be_compiled_is_refused_at_load_with_its_rule(condition: str) -> None:
    with pytest.raises(PolicyRejected) as caught:
        engine(f"  - {{id: fine, decision: allow}}\n{when(condition)}")
    assert caught.value.detail == {"path": "rules[1].when", "rule_id": "a"}


def test_a_hostile_pattern_argument_takes_linear_time() -> None:
    rules = engine(when('args.command.matches("(a+)+$")'))
    assert rules.evaluate(tool_call(command="a" * 200_000 + "b")).disposition is Disposition.ALLOW


CONDITIONS = ("turn.steps == 1", "turn.steps == 2", "args.none == 1", "payload.arguments", "true", "false // never")


@given(st.lists(st.tuples(st.sampled_from(CONDITIONS), st.sampled_from(["allow", "deny"])), max_size=6))
def test_asking_conditions_together_decides_as_asking_each_alone(rules: list[tuple[str, str]]) -> None:
    texts = [
        f"  - {{id: r{index}, decision: {decision}, reasoning: R., when: '{condition}'}}"
        for index, (condition, decision) in enumerate(rules)
    ]
    step = tool_call(turn=TurnFacts("t", open=True, steps=1))
    together = engine("\n".join(texts) or "  []").evaluate(step)
    alone = [engine(text).evaluate(step) for text in texts]
    denied = any(decision.disposition is Disposition.DENY for decision in alone)
    assert (together.disposition is Disposition.DENY) is denied
    spoken = {rule for decision in alone for rule in rule_ids(decision) if rule is not None}
    assert set(rule_ids(together)) - {None} <= spoken


def test_more_rules_than_one_expression_can_hold_are_still_decided() -> None:
    many = "\n".join(
        f'  - {{id: r{index}, decision: deny, reasoning: R., when: \'turn.steps == {index} && "{"x" * 200}" != ""\'}}'
        for index in range(900)
    )
    assert rule_ids(engine(many).evaluate(tool_call(turn=TurnFacts("t", steps=899)))) == ["r899"]
    assert engine(many).evaluate(tool_call(turn=TurnFacts("t", steps=900))).disposition is Disposition.ALLOW


def test_a_tool_name_of_any_length_is_decided() -> None:
    rules = engine("  - {id: a, tools: ['*x'], decision: deny, reasoning: No.}")
    assert rules.evaluate(tool_call("y" * 500_000 + "x")).disposition is Disposition.DENY
    assert rules.evaluate(tool_call("y" * 500_000)).disposition is Disposition.ALLOW


@pytest.mark.parametrize(
    ("command", "condition"),
    [
        ("true \0 curl x", 'args.command.contains("curl")'),
        (["\0curl"], 'args.command.exists(part, part.contains("curl"))'),
        ({"\0curl": 1}, 'args.command.exists(name, name.contains("curl"))'),
    ],
)
def test_a_nul_hides_nothing_behind_it_from_a_rule(command: object, condition: str) -> None:
    """The runtime itself ends a text at its first NUL."""
    assert engine(when(condition)).evaluate(tool_call(command=command)).disposition is Disposition.DENY
