"""What a turn boundary resets is declared by each rule."""

import pytest
from tests.unit.policy.samples import HEAD, engine

from turnkeeper.acs import Disposition
from turnkeeper.policy.facts import Facts, SessionFacts, TurnFacts
from turnkeeper.policy.rules import PolicyRejected, parse_rules


def step(turn_calls: int, session_calls: int) -> Facts:
    return Facts(
        method="steps/toolCallRequest",
        step_id="step",
        payload={"tool": {"name": "shell"}},
        agent_id="agent",
        session=SessionFacts("s", tool_calls=session_calls),
        turn=TurnFacts("t", open=True, tool_calls=turn_calls),
    )


def rule(scope: str, condition: str) -> str:
    return f"  - {{id: a, {scope}when: '{condition}', decision: deny, reasoning: No.}}"


@pytest.mark.parametrize(("scope", "denied"), [("turn", False), ("session", True)])
def test_a_new_turn_resets_only_what_a_rule_counts_by_turn(scope: str, denied: bool) -> None:
    rules = engine(rule(f"scope: {scope}, ", "scope.tool_calls > 3"))
    assert (rules.evaluate(step(turn_calls=1, session_calls=9)).disposition is Disposition.DENY) is denied


def test_the_name_scope_is_replaced_in_code_and_nowhere_else() -> None:
    condition = (
        'scope.steps>1 || payload.scope.steps == 1 || "scope.steps" == r"\\" // scope.steps\n || scope . denials>0'
    )
    rules = parse_rules((HEAD + rule("scope: session, ", condition.replace("\n", "\n\n"))).encode())
    when = rules.rules[0].when
    assert when is not None
    assert when.startswith('session.steps>1 || payload.scope.steps == 1 || "scope.steps" == r"\\" // scope.steps')
    assert when.endswith("|| session . denials>0")


@pytest.mark.parametrize(
    ("scope", "condition"),
    [
        ("", "scope.steps > 1"),
        ("scope: session, ", "turn.steps > 1"),
        ("scope: session, ", 'turn["steps"] > 1'),
        ("scope: turn, ", "session.steps > 1"),
        ("scope: turn, ", "scope.turns_since_taint > 1"),
        ("scope: turn, ", 'scope["steps"] > 1'),
        ("scope: day, ", "scope.steps > 1"),
    ],
)
def test_a_rule_that_reads_another_window_than_its_own_is_refused(scope: str, condition: str) -> None:
    with pytest.raises(PolicyRejected):
        parse_rules((HEAD + rule(scope, condition)).encode())


def test_a_scope_without_a_condition_says_nothing_and_is_refused() -> None:
    with pytest.raises(PolicyRejected):
        parse_rules((HEAD + "  - {id: a, scope: turn, decision: deny, reasoning: No.}").encode())


def test_a_rule_of_the_session_may_still_ask_which_turn_it_is() -> None:
    parse_rules((HEAD + rule("scope: session, ", 'scope.steps > 1 && turn.id != ""')).encode())
