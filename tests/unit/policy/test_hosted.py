"""Engines in processes of their own: what they are asked, how their word counts, and that silence never permits."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.samples import SESSION_ID, engine, facts, rule_ids, tool_call

from turnkeeper.acs import Decision, Disposition, PolicyReference
from turnkeeper.policy.composition import PRECEDENCE, granted
from turnkeeper.policy.engines.cedar import CedarEngine, NotExpressible, cedar_request, cedar_value
from turnkeeper.policy.facts import ApprovalFacts, Facts, TurnFacts
from turnkeeper.policy.hosted import ComposedEngine, EngineUnavailable, Unheard, compose_decisions, decide
from turnkeeper.policy.settings import HostedSettings

REFERENCE = PolicyReference("house", "sha256:0")
HOOKS = HostedSettings(frozenset({"toolCallRequest"}))
FORBIDDEN = {
    "decision": "deny",
    "errors": 0,
    "policies": [{"id": "no-shell", "reasoning": "No shell.", "reason_code": "shell"}],
}
PERMITTED: Mapping[str, object] = {"decision": "allow", "errors": 0, "policies": []}
INVALID = ("engine_answer_invalid",)
ASK = {"approver": {"type": "human", "id": "ops"}, "question": "Sure?", "timeout_seconds": 5}
DEFER = {"reason": "low_confidence", "resolution_method": "timeout", "resolution_timeout_ms": 5}


class Line:
    """A link that always says the same; None for one that says nothing."""

    def __init__(self, answer: Mapping[str, object] | None) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, object]] = []
        self.stopped = False

    async def ask(self, question: Mapping[str, object]) -> Mapping[str, object]:
        """The answer."""
        self.asked.append(question)
        if self.answer is None:
            raise EngineUnavailable("late")
        return self.answer

    async def stop(self) -> None:
        """Remembers it."""
        self.stopped = True


def cedar(answer: Mapping[str, object] | None) -> CedarEngine:
    return CedarEngine(REFERENCE, HOOKS, Line(answer))


def decided(answer: Mapping[str, object] | None, *, rules: str = "  []") -> Decision:
    composed = ComposedEngine(engine(rules), (cedar(answer),))
    step = tool_call()
    return asyncio.run(decide(composed, step))


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


UNCLEAR: list[tuple[Mapping[str, object] | None, tuple[str, ...]]] = [
    (None, ("engine_unavailable",)),
    ({"fault": "MemoryError"}, ("engine_failed",)),
    ({}, INVALID),
    ({"decision": "allow"}, INVALID),
    ({"decision": "allow", "errors": "0", "policies": []}, INVALID),
    ({"decision": "allow", "errors": False, "policies": []}, INVALID),
    ({"decision": "allow", "errors": 0, "policies": None}, INVALID),
    ({"decision": "allow", "errors": 0, "policies": ["a"]}, INVALID),
    ({"decision": "allow", "errors": 0, "policies": [{}]}, INVALID),
    ({"decision": "deny", "errors": 0, "policies": [{"id": "a", "reasoning": ["b"]}]}, INVALID),
    ({"decision": None, "errors": 0, "policies": []}, INVALID),
    ({"decision": "Allow", "errors": 0, "policies": []}, INVALID),
    ({"decision": "allow", "errors": 1, "policies": []}, ()),
    ({"decision": None, "errors": 1, "policies": []}, ()),
]


@pytest.mark.parametrize(("answer", "codes"), UNCLEAR)
def test_silence_and_every_unclear_answer_deny_and_say_why(
    answer: Mapping[str, object] | None, codes: tuple[str, ...]
) -> None:
    decision = decided(answer)
    assert decision.disposition is Disposition.DENY
    assert decision.reason_codes == ("evaluation_failed", *codes)


def test_who_delegates_to_an_agent_layer_that_is_not_there_denies() -> None:
    """ENG-03."""
    delegating = {"decision": "allow", "errors": 0, "policies": [{"id": "ask-a-model", "delegate_to": "agent"}]}
    assert decided(delegating).reason_codes == ("evaluation_failed", "agent_layer_unavailable")
    both = {**FORBIDDEN, "policies": [{"id": "no-shell", "reason_code": "shell"}]}
    assert decided(both).reason_codes == ("shell",)


def test_a_step_that_was_not_heard_or_has_changed_since_is_not_decided() -> None:
    composed = ComposedEngine(engine("  []"), (cedar(PERMITTED),))
    heard = asyncio.run(composed.hear(tool_call(turn=TurnFacts("t", tool_calls=1))))
    now = tool_call(turn=TurnFacts("t", tool_calls=2))
    with pytest.raises(Unheard):
        composed.evaluate(now)
    with pytest.raises(Unheard):
        heard.evaluate(now)
    assert heard.evaluate(heard.facts).disposition is Disposition.ALLOW


def test_a_last_hearing_denies_facts_that_have_changed() -> None:
    composed = ComposedEngine(engine("  []"), (cedar(PERMITTED),))
    heard = asyncio.run(composed.hear(tool_call(turn=TurnFacts("t", tool_calls=1)), final=True))
    changed = heard.evaluate(tool_call(turn=TurnFacts("t", tool_calls=2)))
    assert (changed.disposition, changed.reason_codes) == (
        Disposition.DENY,
        ("evaluation_failed", "facts_changed"),
    )


class Failing:
    """An engine that says something else than a decision, or raises."""

    name = "rego"
    reference = REFERENCE

    def __init__(self, word: object) -> None:
        self.word = word

    def concerns(self, facts: Facts) -> bool:
        """Always."""
        return facts.hook != ""

    async def evaluate(self, facts: Facts) -> Decision:
        """The word."""
        del facts
        if isinstance(self.word, Exception):
            raise self.word
        return cast("Decision", self.word)

    async def close(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("word", [None, "allow", RuntimeError("broken")])
def test_an_engine_that_breaks_its_port_denies_beside_engines_that_permit(word: object) -> None:
    composed = ComposedEngine(engine("  []"), (cedar(PERMITTED), Failing(word)))
    decision = asyncio.run(decide(composed, tool_call()))
    assert decision.reason_codes == ("evaluation_failed", "engine_failed")
    assert set(decision.policy_data or {}) == {"rules", "cedar", "rego"}


def test_a_replaced_policy_closes_its_engines_once_no_step_holds_them() -> None:
    line, unused = Line(PERMITTED), list[bool]()
    composed = ComposedEngine(engine("  []"), (CedarEngine(REFERENCE, HOOKS, line),))
    with composed.held():
        composed.retire(lambda: unused.append(line.stopped))
        assert unused == []
    assert unused == [False]
    asyncio.run(composed.close())
    assert line.stopped


def test_a_hook_that_no_hosted_engine_is_asked_about_needs_no_hearing() -> None:
    composed = ComposedEngine(engine("  []"), (cedar(None),))
    step = facts("steps/userMessage")
    assert not composed.needs_hearing(step)
    assert composed.evaluate(step).disposition is Disposition.ALLOW


@pytest.mark.parametrize("hook", ["protocols/MCP/*", "protocols/MCP/tools/call"])
def test_a_wrapped_call_is_put_to_an_engine_that_names_it_and_to_no_other(hook: str) -> None:
    wrapped = facts("protocols/MCP/tools/call", {"jsonrpc": "2.0", "id": 1, "method": "tools/call"})
    asked = CedarEngine(REFERENCE, HostedSettings(frozenset({hook})), Line(PERMITTED))
    assert (asked.concerns(wrapped), asked.concerns(tool_call()), cedar(None).concerns(wrapped)) == (True, False, False)


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
    composed = ComposedEngine(engine("  []"), (cedar(PERMITTED),))
    step = tool_call(path={name: {"type": "Tool", "id": "x"}})
    assert asyncio.run(decide(composed, step)).reason_codes == ("evaluation_failed", "facts_not_expressible")


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


def test_an_approval_leaves_the_change_that_a_question_came_with() -> None:
    asked = replace(said(Disposition.ASK), modifications={"parameter_overrides": {"a": 1}})
    given = granted(asked)
    assert (given.disposition, given.modifications, given.ask_details) == (
        Disposition.MODIFY,
        {"parameter_overrides": {"a": 1}},
        None,
    )
    assert compose_decisions([("rego", asked)], approved=True).disposition is Disposition.MODIFY


@pytest.mark.parametrize("disposition", [Disposition.DENY, Disposition.DEFER, Disposition.MODIFY, Disposition.ALLOW])
def test_an_approval_changes_nothing_but_a_question(disposition: Disposition) -> None:
    assert granted(said(disposition)) == said(disposition)


def test_changes_of_two_engines_that_touch_one_place_deny_the_step() -> None:
    other = replace(said(Disposition.MODIFY), modifications={"parameter_overrides": {"a": 2}})
    decision = compose_decisions([("a", said(Disposition.MODIFY)), ("b", other)])
    assert decision.disposition is Disposition.DENY
    assert "modifications_conflict" in decision.reason_codes


def test_the_approval_is_part_of_what_an_engine_was_heard_about() -> None:
    composed = ComposedEngine(engine("  []"), (cedar(PERMITTED),))
    heard = asyncio.run(composed.hear(tool_call()))
    with pytest.raises(Unheard):
        heard.evaluate(replace(tool_call(), approval=ApprovalFacts(granted=True)))
