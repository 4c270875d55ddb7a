"""Rules that modify, ask and defer: checked completely when they are loaded."""

import pytest
from tests.unit.policy.samples import HEAD, engine, rule_ids, tool_call

from turnkeeper.acs import Disposition
from turnkeeper.acs.schemas import validator
from turnkeeper.policy.facts import ApprovalFacts, Facts, SessionFacts
from turnkeeper.policy.rules import PolicyRejected, parse_rules

ASK = (
    "  - {id: ask, hooks: [toolCallRequest], decision: ask, reasoning: Somebody has to look.,"
    " ask: {question: 'Delete?', timeout_seconds: 600, approver: {type: human, id: operators}}}\n"
)
DEFER = (
    "  - {id: wait, hooks: [toolCallRequest], decision: defer, reasoning: Not yet.,"
    " defer: {reason: insufficient_context, resolution_method: human_approval, resolution_timeout_ms: 600000}}\n"
)
MODIFY = (
    "  - {id: redact, hooks: [toolCallRequest], decision: modify, reasoning: Keys stay here.,"
    " modify: {redactions: [{path: /arguments/command/value}]}}\n"
)
ALLOW = "  - {id: allow, decision: allow}\n"
DENY = "  - {id: deny, when: session.denials > 2, decision: deny, reasoning: No.}\n"


def approved(denials: int = 0) -> Facts:
    return Facts(
        method="steps/toolCallRequest",
        step_id="again",
        payload={"tool": {"name": "shell"}, "arguments": {"command": {"value": "x"}}},
        agent_id="agent",
        session=SessionFacts("s", denials=denials),
        approval=ApprovalFacts(granted=True, by="alice"),
    )


def test_a_question_is_answered_with_its_details_and_the_safe_default() -> None:
    decision = engine(ASK).evaluate(tool_call())
    assert decision.disposition is Disposition.ASK
    assert decision.reason_codes == ("approval_required",)
    assert decision.ask_details is not None
    assert decision.ask_details["timeout_disposition"] == "deny"
    validator("ask-details").check(dict(decision.ask_details))


def test_a_delay_says_what_holds_at_its_end() -> None:
    decision = engine(DEFER).evaluate(tool_call())
    assert decision.disposition is Disposition.DEFER
    assert decision.defer_details is not None
    assert decision.defer_details["timeout_decision"] == "deny"
    validator("defer-details").check(dict(decision.defer_details))


def test_a_change_that_the_step_has_a_place_for_is_answered() -> None:
    decision = engine(MODIFY).evaluate(tool_call(command="secret"))
    assert decision.disposition is Disposition.MODIFY
    assert decision.modifications == {"redactions": [{"path": "/arguments/command/value"}]}


def test_a_change_that_the_step_has_no_place_for_denies_it() -> None:
    decision = engine(MODIFY).evaluate(tool_call(other="x"))
    assert decision.disposition is Disposition.DENY
    assert decision.reason_codes == ("evaluation_failed", "policy_modified")
    assert rule_ids(decision) == ["redact"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (ALLOW + MODIFY + DEFER + ASK + "  - {id: never, decision: deny, reasoning: No.}", Disposition.DENY),
        (ALLOW + MODIFY + DEFER + ASK, Disposition.ASK),
        (ALLOW + MODIFY + DEFER, Disposition.DEFER),
        (ALLOW + MODIFY, Disposition.MODIFY),
        (ALLOW, Disposition.ALLOW),
    ],
)
def test_the_strictest_word_holds(rules: str, expected: Disposition) -> None:
    assert engine(rules, default="deny").evaluate(tool_call(command="x")).disposition is expected


def test_a_change_alone_permits_nothing_where_the_default_denies() -> None:
    assert engine(MODIFY, default="deny").evaluate(tool_call(command="x")).reason_codes == ("no_rule_allows",)


def test_an_approved_step_is_allowed_and_says_so() -> None:
    decision = engine(ASK + DEFER, default="deny").evaluate(approved())
    assert decision.disposition is Disposition.ALLOW
    assert decision.reason_codes == ("approved",)
    assert rule_ids(decision) == ["ask", "wait"]


def test_an_approval_lifts_neither_a_denial_nor_a_change() -> None:
    assert engine(ASK + DENY).evaluate(approved(denials=3)).disposition is Disposition.DENY
    assert engine(ASK + MODIFY, default="deny").evaluate(approved()).disposition is Disposition.MODIFY


def test_an_approval_does_not_replace_context_that_is_missing() -> None:
    rules = DEFER.replace("human_approval", "additional_context, required_context: [ticket]")
    assert engine(rules).evaluate(approved()).disposition is Disposition.DEFER


def test_changes_of_several_rules_are_one_where_they_touch_different_places() -> None:
    other = MODIFY.replace("redact,", "override,").replace(
        "redactions: [{path: /arguments/command/value}]", "parameter_overrides: {note: x}"
    )
    decision = engine(MODIFY + other).evaluate(tool_call(command="x", note="y"))
    assert decision.modifications is not None
    assert set(decision.modifications) == {"redactions", "parameter_overrides"}
    assert rule_ids(decision) == ["redact", "override"]


def test_changes_of_several_rules_that_touch_one_place_deny_the_step() -> None:
    other = MODIFY.replace("redact,", "whole,").replace("/arguments/command/value", "/arguments/command")
    decision = engine(MODIFY + other).evaluate(tool_call(command="x"))
    assert decision.disposition is Disposition.DENY
    assert decision.reason_codes == ("evaluation_failed", "modifications_conflict", "policy_modified")


def test_two_questions_to_one_approver_are_one_and_the_stricter_terms_hold() -> None:
    other = (
        ASK.replace("id: ask,", "id: too,")
        .replace("Delete?", "Really?")
        .replace("600", "60, timeout_disposition: allow")
    )
    details = engine(ASK + other).evaluate(tool_call()).ask_details
    assert details is not None
    assert details["question"] == "Delete?\nReally?"
    assert details["timeout_seconds"] == 60
    assert details["timeout_disposition"] == "deny"


def test_questions_to_two_approvers_deny_the_step() -> None:
    other = ASK.replace("id: ask,", "id: too,").replace("operators", "lawyers")
    assert "approvers_differ" in engine(ASK + other).evaluate(tool_call()).reason_codes


def test_two_delays_are_one_and_a_person_is_asked_where_one_of_them_wants_it() -> None:
    other = DEFER.replace("id: wait,", "id: too,").replace("human_approval", "timeout").replace("600000", "5")
    details = engine(other + DEFER).evaluate(tool_call()).defer_details
    assert details is not None
    assert details["resolution_method"] == "human_approval"
    assert details["resolution_timeout_ms"] == 5


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        (ASK.replace("hooks: [toolCallRequest], ", ""), "rules[0].hooks"),
        (ASK.replace("toolCallRequest", "userMessage"), "rules[0].hooks"),
        (MODIFY.replace("toolCallRequest", "toolCallRequest, turnEnd"), "rules[0].hooks"),
        (ASK.replace("reasoning: Somebody has to look., ", ""), "rules[0].reasoning"),
        (ASK.replace("ask: {", "defer: {"), "rules[0].defer"),
        (ASK.replace("decision: ask", "decision: allow"), "rules[0].ask"),
        (MODIFY.replace(", modify: {redactions: [{path: /arguments/command/value}]}", ""), "rules[0].modify"),
        (ASK.replace("type: human", "type: robot"), "rules[0].ask.approver.type"),
        (ASK.replace(", id: operators", ""), "rules[0].ask.approver.id"),
        (ASK.replace("600", "0"), "rules[0].ask.timeout_seconds"),
        (ASK.replace("600", "1.5"), "rules[0].ask.timeout_seconds"),
        (ASK.replace("600", "99999999"), "rules[0].ask.timeout_seconds"),
        (ASK.replace("600", "600, timeout_disposition: maybe"), "rules[0].ask.timeout_disposition"),
        (ASK.replace("600", "600, else: 1"), "rules[0].ask.else"),
        (
            ASK.replace("600", "600, intent_extension: {capabilities: [{}], scope: session}"),
            "rules[0].ask.intent_extension.capabilities[0]",
        ),
        (
            ASK.replace("600", "600, intent_extension: {capabilities: [{tool: x}], scope: session, provenance: {}}"),
            "rules[0].ask.intent_extension.provenance",
        ),
        (DEFER.replace("insufficient_context", "because"), "rules[0].defer.reason"),
        (DEFER.replace("human_approval", "retry"), "rules[0].defer.resolution_method"),
        (DEFER.replace("human_approval", "additional_context"), "rules[0].defer.required_context"),
        (DEFER.replace("600000", "600000, timeout_decision: allow"), "rules[0].defer.timeout_decision"),
        (MODIFY.replace("/arguments/command/value", "arguments.command"), "rules[0].modify"),
        (MODIFY.replace("{path: /arguments/command/value}", "{path: /a}, {path: /a/b}"), "rules[0].modify"),
        (MODIFY.replace("]}}", "], modified_content: x}}"), "rules[0].modify"),
        (
            MODIFY.replace("redactions: [{path: /arguments/command/value}]", "modified_content: x"),
            "rules[0].modify.modified_content",
        ),
        (
            MODIFY.replace("redactions: [{path: /arguments/command/value}]", "parameter_overrides: {a: 1}").replace(
                "toolCallRequest", "toolCallRequest, toolCallResult"
            ),
            "rules[0].modify.parameter_overrides",
        ),
    ],
)
def test_details_that_could_not_be_sent_are_refused_at_load_with_their_path(rule: str, path: str) -> None:
    with pytest.raises(PolicyRejected) as caught:
        parse_rules((HEAD + rule).encode())
    assert caught.value.detail["path"] == path


def test_a_rule_may_speak_about_wrapped_methods() -> None:
    rules = engine("  - {id: a, hooks: ['protocols/MCP/*'], decision: deny, reasoning: No.}\n")
    for method, denied in (("protocols/MCP/tools/call", True), ("wrapped:mcp-1/x", True), ("steps/turnStart", False)):
        step = Facts(method=method, step_id="s", payload={}, agent_id="a", session=SessionFacts("s"))
        assert (rules.evaluate(step).disposition is Disposition.DENY) is denied
