"""Engines in processes of their own: what they are asked, how their word counts, and that silence never permits."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.samples import SESSION_ID, engine, facts, rule_ids, tool_call

from turnkeeper.acs import Decision, Disposition, PolicyReference
from turnkeeper.policy.composition import PRECEDENCE
from turnkeeper.policy.engines.cedar import CedarEngine, NotExpressible, cedar_request, cedar_value
from turnkeeper.policy.facts import ApprovalFacts, TurnFacts
from turnkeeper.policy.hosted import ComposedEngine, EngineUnavailable, compose_decisions
from turnkeeper.policy.settings import HostedSettings

REFERENCE = PolicyReference("house", "sha256:0")
HOOKS = HostedSettings(frozenset({"toolCallRequest"}))
FORBIDDEN = {
    "decision": "deny",
    "errors": 0,
    "policies": [{"id": "no-shell", "reasoning": "No shell.", "reason_code": "shell"}],
}
ASK = {"approver": {"type": "human", "id": "ops"}, "question": "Sure?", "timeout_seconds": 5}
DEFER = {"reason": "low_confidence", "resolution_method": "timeout", "resolution_timeout_ms": 5}


class Line:
    """A link that always says the same; None for one that says nothing."""

    def __init__(self, answer: Mapping[str, object] | None) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, object]] = []

    async def ask(self, question: Mapping[str, object]) -> Mapping[str, object]:
        """The answer."""
        self.asked.append(question)
        if self.answer is None:
            raise EngineUnavailable("late")
        return self.answer


def cedar(answer: Mapping[str, object] | None) -> CedarEngine:
    return CedarEngine(REFERENCE, HOOKS, Line(answer))


def decided(answer: Mapping[str, object] | None, *, rules: str = "  []") -> Decision:
    composed = ComposedEngine(engine(rules), (cedar(answer),))
    step = tool_call()
    return composed.evaluate(step, asyncio.run(composed.hear(step)))


def test_what_cedar_forbids_is_denied_and_both_engines_are_cited() -> None:
    decision = decided(FORBIDDEN, rules="  - {id: fine, decision: allow}")
    assert decision.disposition is Disposition.DENY
    assert decision.reason_codes == ("shell",)
    assert decision.reasoning == "No shell."
    assert rule_ids(decision) == ["fine", "no-shell"]
    assert decision.policy_data == {"rules": {"decision": "allow"}, "cedar": {"decision": "deny"}}


def test_what_cedar_permits_the_built_in_rules_can_still_deny() -> None:
    permitted = {"decision": "allow", "errors": 0, "policies": [{"id": "all"}]}
    assert decided(permitted).disposition is Disposition.ALLOW
    denied = decided(permitted, rules="  - {id: never, decision: deny, reasoning: No.}")
    assert denied.disposition is Disposition.DENY


def test_cedar_denies_where_no_policy_permits() -> None:
    assert decided({"decision": "deny", "errors": 0, "policies": []}).reason_codes == ("no_rule_allows",)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"decision": "allow"},
        {"decision": "allow", "errors": 1, "policies": []},
        {"decision": None, "errors": 0, "policies": []},
        {"decision": "Allow", "errors": 0, "policies": []},
    ],
)
def test_silence_and_every_unclear_answer_deny(answer: Mapping[str, object] | None) -> None:
    decision = decided(answer)
    assert decision.disposition is Disposition.DENY
    assert decision.reason_codes == ("evaluation_failed",)


def test_a_step_that_was_not_heard_or_has_changed_since_is_denied() -> None:
    composed = ComposedEngine(engine("  []"), (cedar({"decision": "allow", "errors": 0, "policies": []}),))
    heard = asyncio.run(composed.hear(tool_call(turn=TurnFacts("t", tool_calls=1))))
    now = tool_call(turn=TurnFacts("t", tool_calls=2))
    assert composed.evaluate(now).reason_codes == ("evaluation_failed",)
    assert composed.evaluate(now, heard).reason_codes == ("evaluation_failed",)
    assert composed.evaluate(heard.facts, heard).disposition is Disposition.ALLOW


def test_a_hook_that_no_hosted_engine_is_asked_about_needs_no_hearing() -> None:
    composed = ComposedEngine(engine("  []"), (cedar(None),))
    step = facts("steps/userMessage")
    assert not composed.needs_hearing(step)
    assert composed.evaluate(step).disposition is Disposition.ALLOW


def test_a_step_is_asked_about_in_cedars_own_terms() -> None:
    question = cedar_request(tool_call("shell", command="ls", ratio=1.5, nothing=None, big=2**70, turn=TurnFacts("t")))
    assert question["principal"] == {"type": "Agent", "id": "agent"}
    assert question["action"] == {"type": "Action", "id": "toolCallRequest"}
    assert question["resource"] == {"type": "Tool", "id": "shell"}
    context = question["context"]
    assert isinstance(context, dict)
    assert context["args"] == {"command": "ls", "ratio": "1.5", "big": str(2**70)}
    assert context["session"]["id"] == SESSION_ID


@pytest.mark.parametrize("name", ["__entity", "__extn", "__expr", "__x"])
def test_an_argument_never_becomes_an_entity_or_a_call_in_cedar(name: str) -> None:
    with pytest.raises(NotExpressible):
        cedar_value({"a": [{name: {"type": "Tool", "id": "x"}}]})
    composed = ComposedEngine(engine("  []"), (cedar({"decision": "allow", "errors": 0, "policies": []}),))
    step = tool_call(path={name: {"type": "Tool", "id": "x"}})
    assert composed.evaluate(step, asyncio.run(composed.hear(step))).disposition is Disposition.DENY


def test_a_value_nested_beyond_reason_is_not_passed_on() -> None:
    value: object = 1
    for _ in range(50):
        value = [value]
    with pytest.raises(NotExpressible):
        cedar_value(value)


def said(disposition: Disposition) -> Decision:
    return Decision(
        disposition,
        "Because.",
        (f"code_{disposition}",),
        (PolicyReference(f"policy-{disposition}"),),
        modifications={"parameter_overrides": {"a": 1}} if disposition is Disposition.MODIFY else None,
        ask_details=ASK if disposition is Disposition.ASK else None,
        defer_details=DEFER if disposition is Disposition.DEFER else None,
    )


@given(st.lists(st.sampled_from(list(Disposition)), min_size=1, max_size=5))
def test_the_strictest_word_of_all_engines_holds_in_any_order(words: list[Disposition]) -> None:
    spoken = [(str(index), said(word)) for index, word in enumerate(words)]
    forward, backward = compose_decisions(spoken), compose_decisions(spoken[::-1])
    strictest = min(words, key=PRECEDENCE.index)
    assert forward.disposition is backward.disposition is strictest
    assert set(forward.policy_references) == {PolicyReference(f"policy-{word}") for word in words}
    assert forward.reason_codes == (f"code_{strictest}",)


def test_an_approval_answers_the_question_of_any_engine_and_lifts_no_denial() -> None:
    asked = [("rego", said(Disposition.ASK)), ("rules", said(Disposition.ALLOW))]
    assert compose_decisions(asked, approved=True).disposition is Disposition.ALLOW
    assert compose_decisions([*asked, ("cedar", said(Disposition.DENY))], approved=True).disposition is Disposition.DENY


def test_changes_of_two_engines_that_touch_one_place_deny_the_step() -> None:
    other = replace(said(Disposition.MODIFY), modifications={"parameter_overrides": {"a": 2}})
    decision = compose_decisions([("a", said(Disposition.MODIFY)), ("b", other)])
    assert decision.disposition is Disposition.DENY
    assert "modifications_conflict" in decision.reason_codes


def test_the_approval_is_part_of_what_an_engine_was_heard_about() -> None:
    composed = ComposedEngine(engine("  []"), (cedar({"decision": "allow", "errors": 0, "policies": []}),))
    heard = asyncio.run(composed.hear(tool_call()))
    approved = replace(tool_call(), approval=ApprovalFacts(granted=True))
    assert composed.evaluate(approved, heard).disposition is Disposition.DENY
