"""What an answer means: which words let an action go on, and what they bring with them."""

from collections.abc import Mapping

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import Disposition, Verdict
from turnkeeper.turns.model import Step
from turnkeeper.turns.payloads import AGENT_RESPONSE, TOOL_CALL_REQUEST, TOOL_CALL_RESULT, TURN_START, USER_MESSAGE
from turnkeeper.turns.rulings import Ruling, answer_of_verdict, ruling_of

LABEL = {"provenance": {"provenance_id": "p", "origin": "agent_generated"}}
CALL: dict[str, object] = {"tool": {"name": "shell"}, "arguments": {"command": {"value": "rm"} | LABEL}}
TEXT: dict[str, object] = {"content": [{"type": "text", "value": "hi"} | LABEL]}
OUTPUT: dict[str, object] = {"tool": {"name": "shell"}, "exit_status": "success", "outputs": [{"value": "hi"} | LABEL]}
ANSWER: dict[str, object] = {
    "content": [
        {"type": "text", "value": "hi"} | LABEL,
        {"type": "text", "value": "1", "name": "result", "media_type": "application/json"} | LABEL,
    ]
}


def asked(method: str, payload: Mapping[str, object]) -> Step:
    """A step as its row has it."""
    text = orjson.dumps(payload).decode()
    return Step("ses", 1, "r", method, "trn", True, text, None, "pending", None, None, None, (), None, 1)


def ruling(decision: str, members: Mapping[str, object], step: Step | None = None) -> Ruling:
    """What becomes of a step that is answered so."""
    verdict = Verdict(Disposition(decision), "because", ("code",), "c" * 64, {"decision": decision, **members})
    answer = answer_of_verdict(verdict)
    assert answer is not None
    return ruling_of(answer, step or asked(TOOL_CALL_REQUEST, CALL))


def modified(method: str, payload: Mapping[str, object], *paths: str) -> Ruling:
    """A step whose places were redacted."""
    redactions = [{"path": path, "replacement": "x"} for path in paths]
    return ruling("modify", {"modifications": {"redactions": redactions}}, asked(method, payload))


@pytest.mark.parametrize(("decision", "member"), [("ask", "ask_details"), ("defer", "defer_details")])
def test_a_ruling_that_waits_brings_what_it_waits_for(decision: str, member: str) -> None:
    made = ruling(decision, {member: {"question": "may I?"}})
    assert (made.kind, made.allowed, made.details) == ("unapplicable", False, {"question": "may I?"})


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_plain_word_brings_no_details(decision: str) -> None:
    assert ruling(decision, {"modifications": {"modified_content": "x"}}).details is None


@pytest.mark.parametrize(
    ("method", "payload", "path"),
    [
        (TOOL_CALL_REQUEST, CALL, "/arguments/command/value"),
        (TOOL_CALL_RESULT, OUTPUT, "/outputs/0/value"),
        (USER_MESSAGE, TEXT, "/content/0/value"),
        (AGENT_RESPONSE, ANSWER, "/content/1/value"),
    ],
)
def test_a_step_whose_value_was_changed_goes_on_with_the_change(
    method: str, payload: dict[str, object], path: str
) -> None:
    made = modified(method, payload, path)
    assert (made.kind, made.allowed, made.decision) == ("allowed", True, "modify")
    assert made.changed is not None
    assert made.changed != payload


@pytest.mark.parametrize(
    ("method", "payload", "paths"),
    [
        (TOOL_CALL_REQUEST, CALL, ["/tool/name"]),
        (TOOL_CALL_REQUEST, CALL, ["/arguments/command/value", "/tool/name"]),
        (TOOL_CALL_REQUEST, CALL, ["/arguments/command/provenance/provenance_id"]),
        (TOOL_CALL_RESULT, OUTPUT, ["/tool/name"]),
        (TOOL_CALL_RESULT, OUTPUT, ["/outputs/0/provenance/provenance_id"]),
        (USER_MESSAGE, TEXT, ["/content/0/provenance/provenance_id"]),
        (AGENT_RESPONSE, ANSWER, ["/content/1/name"]),
        (USER_MESSAGE, TEXT, ["/content/7/value"]),
    ],
)
def test_a_change_that_nothing_here_would_go_on_with_is_a_denial(
    method: str, payload: dict[str, object], paths: list[str]
) -> None:
    made = modified(method, payload, *paths)
    assert (made.kind, made.allowed, made.changed) == ("unapplicable", False, None)
    assert made.reason_codes[0] == "modify_unsupported"


def test_one_text_may_take_the_place_of_text_and_result() -> None:
    made = ruling("modify", {"modifications": {"modified_content": "nothing to see"}}, asked(AGENT_RESPONSE, ANSWER))
    assert made.changed == {"content": [{"type": "text", "value": "nothing to see"}]}


def test_a_modify_of_which_only_the_word_is_known_changes_nothing_and_allows_nothing() -> None:
    made = ruling("modify", {})
    assert (made.kind, made.allowed, made.reason_codes[0]) == ("unapplicable", False, "modify_composition")


def test_a_modify_where_only_allow_and_deny_are_permitted_allows_nothing() -> None:
    made = ruling("modify", {"modifications": {"modified_content": "x"}}, asked(TURN_START, {"turn_id": "t"}))
    assert (made.kind, made.allowed, made.reason_codes[0]) == ("unapplicable", False, "disposition_not_permitted")


@given(
    st.dictionaries(
        st.sampled_from(["modified_content", "redactions", "parameter_overrides", "other"]),
        st.none() | st.text(max_size=3) | st.dictionaries(st.sampled_from(["command", "x"]), st.text(max_size=3)),
        max_size=2,
    ),
    st.sampled_from([(TOOL_CALL_REQUEST, CALL), (USER_MESSAGE, TEXT), (AGENT_RESPONSE, ANSWER)]),
)
def test_whatever_a_modify_says_it_is_applied_or_denied(
    modifications: dict[str, object], step: tuple[str, dict[str, object]]
) -> None:
    """A law: nothing goes on as it was sent after a MODIFY."""
    made = ruling("modify", {"modifications": modifications}, asked(*step))
    assert made.allowed == (made.changed is not None)
