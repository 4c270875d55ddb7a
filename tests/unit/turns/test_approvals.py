"""What may be answered to a question, and what a pause makes of what a Guardian said. Pure."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.approvals import (
    Approval,
    ApprovalAnswer,
    ApprovalDecided,
    ApprovalInputChanged,
    DecidedBy,
    PendingCall,
    close,
    decide,
    rule_of,
)
from turnkeeper.turns.pausing import deferral_of, hash_of, question_of, tool_view, wait_of_ask
from turnkeeper.turns.permissions import permission_for

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOUR_MS = 3_600_000
CALL = PendingCall("tcl_1", "shell", "builtin", '{"command":"ls"}', hash_of('{"command":"ls"}'), "request")
ASKED = Approval(
    id="apr_1",
    kind="ask",
    origin="guardian",
    session_id="ses_1",
    turn_id="trn_1",
    call=CALL,
    question="May it?",
    reasons=(),
    created_at=NOW,
    expires_at=NOW + timedelta(hours=1),
)
ANA = DecidedBy("user", "ana")
YES = ApprovalAnswer("approve", ANA)
NO = ApprovalAnswer("deny", ANA)
ANSWERS = [YES, NO, replace(YES, remember="session"), replace(YES, modified_input_json="{}"), replace(NO, note="n")]


@given(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=6))
def test_the_first_answer_stands_whatever_comes_after_it(answers: list[ApprovalAnswer]) -> None:
    """A law: an answered question never changes."""
    first = decide(ASKED, answers[0], NOW)
    for answer in answers[1:]:
        try:
            assert decide(first, answer, NOW) is first
        except ApprovalDecided:
            assert (answer.word, answer.remember, answer.modified_input_json) != (
                answers[0].word,
                answers[0].remember,
                answers[0].modified_input_json,
            )


def test_a_question_whose_time_is_over_takes_no_answer() -> None:
    with pytest.raises(ApprovalDecided):
        decide(ASKED, YES, ASKED.expires_at)
    assert ASKED.status_at(ASKED.expires_at) == "expired"
    assert decide(ASKED, YES, ASKED.expires_at - timedelta(milliseconds=1)).status == "approved"


def test_a_question_that_was_withdrawn_takes_no_answer() -> None:
    withdrawn = close(ASKED, "canceled", NOW)
    assert withdrawn.decided_by == DecidedBy("system")
    with pytest.raises(ApprovalDecided):
        decide(withdrawn, NO, NOW)


def test_an_answer_about_another_input_is_none() -> None:
    with pytest.raises(ApprovalInputChanged):
        decide(ASKED, replace(YES, input_hash="0" * 64), NOW)


def test_only_a_yes_for_the_session_is_remembered() -> None:
    remembered = rule_of(decide(ASKED, replace(YES, remember="session"), NOW))
    assert remembered is not None
    assert (remembered.tool, remembered.input_hash, remembered.request_id) == ("shell", CALL.input_hash, "request")
    assert rule_of(decide(ASKED, YES, NOW)) is None
    assert rule_of(decide(ASKED, NO, NOW)) is None
    assert rule_of(ASKED) is None


@pytest.mark.parametrize(
    ("details", "wait_ms"),
    [
        (None, HOUR_MS),
        ({"timeout_seconds": 60}, 60_000),
        ({"timeout_seconds": 10**30}, HOUR_MS),
        ({"timeout_seconds": "soon"}, HOUR_MS),
        ({"timeout_seconds": True}, HOUR_MS),
    ],
)
def test_a_question_waits_as_long_as_it_says_within_the_agents_limit(
    details: dict[str, object] | None, wait_ms: int
) -> None:
    assert wait_of_ask(details, HOUR_MS) == wait_ms


def test_a_deferral_has_only_words_of_the_standard() -> None:
    said: dict[str, object] = {"reason": "low_confidence", "resolution_method": "prayer", "resolution_timeout_ms": 7}
    deferral = deferral_of(said, HOUR_MS)
    assert (deferral.reason, deferral.resolution_method) == ("low_confidence", "human_approval")
    assert (deferral.resolution_timeout_ms, deferral.timeout_decision) == (7, "deny")
    assert deferral_of(None, HOUR_MS).resolution_timeout_ms == HOUR_MS


def test_a_question_without_words_is_the_reasoning() -> None:
    assert question_of({"question": "  "}, "because") == "because"
    assert question_of({"question": 7}, "because") == "because"
    assert question_of({"question": "May it?"}, "because") == "May it?"


def test_a_long_input_is_shown_by_its_beginning() -> None:
    long = replace(CALL, input_json='{"a":"' + "ä" * 100 + '"}')
    assert tool_view(long, 9)["input_preview"] == '{"a":"ä'


@pytest.mark.parametrize(
    ("permissions", "tool", "expected"),
    [
        ({}, "shell", "allow"),
        ({"read_*": "deny"}, "shell", "allow"),
        ({"*": "ask", "shell": "allow"}, "shell", "allow"),
        ({"*": "allow", "sh*": "ask", "s*": "deny"}, "shell", "ask"),
        ({"sh*": "ask", "*ll": "deny"}, "shell", "deny"),
        ({"*_file": "deny"}, "read_file", "deny"),
        ({"a.c": "deny"}, "abc", "allow"),
    ],
)
def test_the_most_specific_permission_counts(permissions: dict[str, str], tool: str, expected: str) -> None:
    assert permission_for(permissions, tool) == expected  # pyright: ignore[reportArgumentType]
