from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.turns.samples import BY_APP, SCHEMA, a_cancel, a_failure, a_turn, an_ending

from turnkeeper.events.founding import check_founding, validate_turn_completed
from turnkeeper.turns.lifecycle import Happening, TurnEnded
from turnkeeper.turns.model import Ending, ModelUsage, StopReason, Turn, TurnStatus, Usage
from turnkeeper.turns.results import (
    RETRYABLE,
    IllegalEnding,
    NormalizedReport,
    SubmissionTally,
    check_ending,
    normalize_report,
    render_terminal,
    result_after_validation,
    turn_error,
)

TEN_KEYS = [
    "turn_id",
    "idempotency_key",
    "status",
    "stop_reason",
    "output",
    "result",
    "result_error",
    "usage",
    "metadata",
    "duration_ms",
]
USED = Usage(by_model=(ModelUsage("stub/m", 100, 40, 10, 50, 20, 2),), tool_calls=3, sandbox_ms=90)

PLAIN = a_turn()
ASKED = a_turn(output_schema_json=SCHEMA)
BUDGET = StopReason.BUDGET_REACHED


def at_front(**changes: Any) -> Ending:
    front: dict[str, Any] = {"happening": "budget_gone_at_front", "source": "platform", "stop_reason": BUDGET}
    return an_ending(**{**front, "text": "", "duration_ms": 0, **changes})


COMPLETED = {
    "C1": (PLAIN, an_ending(text=""), USED),
    "C2": (PLAIN, an_ending(stop_reason=BUDGET), USED),
    "C3": (ASKED, an_ending(result_json='{"b":1,"a":1.50}'), USED),
    "C3 with null": (ASKED, an_ending(result_json="null"), USED),
    "C4": (ASKED, an_ending(result_json="[1]", stop_reason=BUDGET), USED),
    "C5": (ASKED, an_ending(result_error="not_submitted"), USED),
    "C6": (ASKED, an_ending(result_error="not_submitted", stop_reason=BUDGET), USED),
    "C7": (ASKED, an_ending(result_error="invalid"), USED),
    "C8": (ASKED, an_ending(result_error="invalid", stop_reason=BUDGET), USED),
    "C9": (a_turn(status=TurnStatus.QUEUED, attempt=0), at_front(), Usage()),
    "C10": (
        a_turn(status=TurnStatus.QUEUED, attempt=0, output_schema_json=SCHEMA),
        at_front(result_error="not_submitted"),
        Usage(),
    ),
}


@pytest.mark.parametrize("name", COMPLETED)
def test_each_legal_answer_is_a_founding_document(name: str) -> None:
    turn, ending, usage = COMPLETED[name]

    document = orjson.loads(render_terminal(turn, ending, usage))

    validate_turn_completed(document)
    assert check_founding(document) == []
    assert list(document) == TEN_KEYS


@pytest.mark.parametrize("name", COMPLETED)
def test_the_founding_rules_hold_for_the_whole_event_too(name: str) -> None:
    turn, ending, usage = COMPLETED[name]
    data = orjson.loads(render_terminal(turn, ending, usage))

    assert check_founding({"type": "turn.completed", "source": ending.source, "turn_id": turn.id, "data": data}) == []


Q = TurnStatus.QUEUED
ILLEGAL_COMPLETED = {
    "a completed turn withholds something": (ASKED, an_ending(result_error="withheld")),
    "a result without a schema": (PLAIN, an_ending(result_json="1")),
    "a result_error without a schema": (PLAIN, an_ending(result_error="invalid")),
    "neither result nor error with a schema": (ASKED, an_ending()),
    "both result and error": (ASKED, an_ending(result_json="1", result_error="invalid")),
    "a result that is not JSON": (ASKED, an_ending(result_json="{")),
    "a result on two lines": (ASKED, an_ending(result_json="[1,\n2]")),
    "an answer of the platform while running": (PLAIN, an_ending(source="platform")),
    "end_turn by the platform": (a_turn(status=Q), at_front(stop_reason=StopReason.END_TURN)),
    "an unpaid turn with text": (a_turn(status=Q), at_front(text="x")),
    "an unpaid turn with a duration": (a_turn(status=Q), at_front(duration_ms=1)),
    "an unpaid turn with a result": (a_turn(status=Q, output_schema_json=SCHEMA), at_front(result_json="1")),
    "an unpaid turn with invalid": (a_turn(status=Q, output_schema_json=SCHEMA), at_front(result_error="invalid")),
    "an unpaid turn by the sandbox": (a_turn(status=Q), at_front(source="sandbox")),
    "an unpaid turn that runs": (PLAIN, at_front()),
    "a report of a queued turn": (a_turn(status=Q), an_ending(text="", duration_ms=0)),
    "an answer with another reason": (PLAIN, an_ending(stop_reason=StopReason.CANCELED)),
    "an answer with an error": (PLAIN, an_ending(error=turn_error(StopReason.TIMEOUT, "c", "m"))),
    "an answer with canceled_by": (PLAIN, an_ending(canceled_by=BY_APP)),
    "an answer without turnEnd": (PLAIN, an_ending(turn_outcome=None)),
    "an answer whose turnEnd says error": (PLAIN, an_ending(turn_outcome="error")),
    "a negative duration": (PLAIN, an_ending(duration_ms=-1)),
    "an unknown happening": (PLAIN, an_ending(happening="sunset")),
    "a happening that ends nothing": (PLAIN, an_ending(happening="response_denied")),
    "a status that is not the row's": (PLAIN, an_ending(happening="report_failed", source="sandbox")),
}


@pytest.mark.parametrize("name", ILLEGAL_COMPLETED)
def test_an_answer_the_contract_does_not_know_is_refused(name: str) -> None:
    turn, ending = ILLEGAL_COMPLETED[name]

    with pytest.raises(IllegalEnding):
        render_terminal(turn, ending, Usage())


def test_an_unpaid_turn_that_used_something_is_refused() -> None:
    with pytest.raises(IllegalEnding, match="used nothing"):
        check_ending(a_turn(status=Q), at_front(), USED)


WITHHELD = {"result_error": "withheld"}
FAILED = {
    "agent_error": (
        PLAIN,
        a_failure(StopReason.AGENT_ERROR, retryable=False, happening="report_failed", source="sandbox"),
    ),
    "model_error": (
        PLAIN,
        a_failure(StopReason.MODEL_ERROR, retryable=True, happening="report_failed", source="sandbox"),
    ),
    "sandbox_lost": (PLAIN, a_failure(StopReason.SANDBOX_LOST, retryable=True, happening="sandbox_lost")),
    "timeout": (PLAIN, a_failure(StopReason.TIMEOUT, retryable=True, happening="time_over")),
    "denied_output": (PLAIN, a_failure(StopReason.DENIED_OUTPUT, retryable=False, happening="repairs_used")),
    "internal_error": (PLAIN, a_failure(StopReason.INTERNAL_ERROR, retryable=True, happening="internal_fault")),
    "guardian at the end": (
        PLAIN,
        a_failure(StopReason.GUARDIAN_UNAVAILABLE, retryable=True, happening="guardian_silent_at_end"),
    ),
    "withheld result": (
        ASKED,
        a_failure(StopReason.DENIED_OUTPUT, retryable=False, happening="repairs_used", **WITHHELD),
    ),
    "withheld on a lost sandbox": (
        ASKED,
        a_failure(StopReason.SANDBOX_LOST, retryable=True, happening="sandbox_lost", **WITHHELD),
    ),
    "a result that was allowed before": (
        ASKED,
        a_failure(
            StopReason.AGENT_ERROR,
            retryable=False,
            happening="report_failed",
            source="sandbox",
            result_json="1",
            text="x",
        ),
    ),
}
CANCELED = {
    "killed": (PLAIN, a_cancel()),
    "acknowledged": (PLAIN, a_cancel(happening="cancel_acknowledged", source="sandbox")),
    "superseded": (PLAIN, a_cancel(stop_reason=StopReason.SUPERSEDED)),
    "session closed": (PLAIN, a_cancel(stop_reason=StopReason.SESSION_CLOSED)),
    "by an operator": (PLAIN, a_cancel(stop_reason=StopReason.OPERATOR)),
    "withheld": (ASKED, a_cancel(**WITHHELD)),
    "in the queue": (
        a_turn(status=Q, attempt=0),
        a_cancel(happening="canceled_in_queue", duration_ms=0, turn_outcome=None),
    ),
    "in the queue after turnStart": (
        a_turn(status=Q, attempt=0, output_schema_json=SCHEMA),
        a_cancel(happening="canceled_in_queue", duration_ms=0, result_error="not_submitted"),
    ),
    "while starting": (
        a_turn(status=TurnStatus.STARTING, attempt=0),
        a_cancel(happening="canceled_while_starting", duration_ms=0),
    ),
}


@pytest.mark.parametrize("name", [*FAILED, *CANCELED])
def test_a_failed_or_canceled_turn_has_the_ten_keys_and_one_more(name: str) -> None:
    turn, ending = {**FAILED, **CANCELED}[name]

    document = orjson.loads(render_terminal(turn, ending, USED))

    companion = "error" if ending.status is TurnStatus.FAILED else "canceled_by"
    assert list(document) == [*TEN_KEYS, companion]
    assert document["status"] == ending.status
    assert document[companion] is not None


def failure(reason: StopReason, **changes: Any) -> Ending:
    return a_failure(reason, **{"retryable": RETRYABLE[reason] is True, **changes})


ILLEGAL_ENDINGS = {
    "denied output with text": (PLAIN, failure(StopReason.DENIED_OUTPUT, happening="repairs_used", text="secret")),
    "denied output with a result": (
        ASKED,
        failure(StopReason.DENIED_OUTPUT, happening="repairs_used", result_json="1"),
    ),
    "silence at the end with text": (
        PLAIN,
        failure(StopReason.GUARDIAN_UNAVAILABLE, happening="guardian_silent_at_end", text="secret"),
    ),
    "withheld without a schema": (
        PLAIN,
        failure(StopReason.DENIED_OUTPUT, happening="repairs_used", result_error="withheld"),
    ),
    "withheld before anything ran": (
        a_turn(status=TurnStatus.STARTING, attempt=0, output_schema_json=SCHEMA),
        failure(StopReason.SANDBOX_UNAVAILABLE, happening="tries_used", result_error="withheld", duration_ms=0),
    ),
    "text of a turn that never ran": (
        a_turn(status=Q),
        failure(StopReason.DENIED_INPUT, happening="input_denied", text="x", duration_ms=0),
    ),
    "a failure without an error": (PLAIN, failure(StopReason.TIMEOUT, happening="time_over", error=None)),
    "a failure that says it is retryable": (
        PLAIN,
        failure(StopReason.DENIED_OUTPUT, happening="repairs_used", retryable=True),
    ),
    "a failure that says it is not": (PLAIN, failure(StopReason.TIMEOUT, happening="time_over", retryable=False)),
    "a failure with canceled_by": (PLAIN, failure(StopReason.TIMEOUT, happening="time_over", canceled_by=BY_APP)),
    "a timeout by the sandbox": (PLAIN, failure(StopReason.TIMEOUT, happening="time_over", source="sandbox")),
    "a model error by the platform": (PLAIN, failure(StopReason.MODEL_ERROR, happening="report_failed")),
    "a denial with another reason": (
        a_turn(status=Q),
        failure(StopReason.DENIED_INPUT, happening="denied_at_start", duration_ms=0),
    ),
    "a turnEnd where no turnStart was sent": (
        a_turn(status=Q),
        failure(StopReason.DENIED_BEFORE_START, happening="denied_before_start", duration_ms=0),
    ),
    "a cancel by nobody": (PLAIN, a_cancel(canceled_by=None)),
    "a cancel with an error": (PLAIN, a_cancel(error=turn_error(StopReason.TIMEOUT, "c", "m"))),
    "a cancel that says completed": (PLAIN, a_cancel(turn_outcome="completed")),
    "a cancel for no reason of the table": (PLAIN, a_cancel(stop_reason=StopReason.TIMEOUT)),
    "an acknowledgement by the platform": (PLAIN, a_cancel(happening="cancel_acknowledged")),
}


@pytest.mark.parametrize("name", ILLEGAL_ENDINGS)
def test_an_ending_the_contract_does_not_know_is_refused(name: str) -> None:
    turn, ending = ILLEGAL_ENDINGS[name]

    with pytest.raises(IllegalEnding):
        render_terminal(turn, ending, Usage())


def test_an_ended_turn_cannot_end_again() -> None:
    with pytest.raises(TurnEnded):
        render_terminal(a_turn(status=TurnStatus.COMPLETED), an_ending(), Usage())


def test_metadata_and_result_come_back_token_for_token() -> None:
    metadata, result = '{"z":1.50,"a":"\\u0000","n":12345678901234567890}', '{"b":1e2,"a":[1.0,-0]}'
    turn = a_turn(metadata_json=metadata, output_schema_json=SCHEMA, idempotency_key='"quoted"')

    text = render_terminal(turn, an_ending(result_json=result), Usage())

    assert f'"metadata":{metadata}' in text
    assert f'"result":{result}' in text
    assert orjson.loads(text)["idempotency_key"] == '"quoted"'


@given(st.text(), st.text(alphabet=st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), min_size=1))
def test_any_text_and_any_key_make_a_founding_document(text: str, key: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    document = orjson.loads(render_terminal(a_turn(idempotency_key=key), an_ending(text=text), USED))

    validate_turn_completed(document)
    assert (document["output"]["text"], document["idempotency_key"]) == (text, key)


EVERY_ENDING = st.builds(
    an_ending,
    happening=st.sampled_from([*Happening]),
    stop_reason=st.sampled_from([*StopReason]),
    source=st.sampled_from(["sandbox", "platform"]),
    text=st.sampled_from(["", "done"]),
    duration_ms=st.sampled_from([0, 10]),
    result_error=st.sampled_from([None, "not_submitted", "invalid", "withheld"]),
    result_json=st.sampled_from([None, "null", "{}"]),
)
ANSWER = st.builds(an_ending, text=st.just(""), result_error=st.sampled_from([None, "invalid", "withheld"]))


@given(st.sampled_from([*TurnStatus]), st.booleans(), EVERY_ENDING | ANSWER)
def test_whatever_is_written_as_completed_is_a_founding_document(
    status: TurnStatus, asked: bool, ending: Ending
) -> None:
    turn = a_turn(status=status, output_schema_json=SCHEMA if asked else None)
    try:
        document = orjson.loads(render_terminal(turn, ending, Usage()))
    except (IllegalEnding, TurnEnded):
        return
    event = {"type": "turn.completed", "source": ending.source, "turn_id": turn.id, "data": document}
    assert check_founding(event) == []
    assert document["result_error"] in ({None, "not_submitted", "invalid"} if asked else {None})


NONE, VALID, REFUSED = SubmissionTally(), SubmissionTally(2, '{"a":1}'), SubmissionTally(2)
READINGS = {
    "a value": ("[1]", None, True, REFUSED, NormalizedReport("[1]", None)),
    "a submitted null": ("null", None, True, NONE, NormalizedReport("null", None)),
    "nothing said, nothing submitted": (
        None,
        None,
        True,
        NONE,
        NormalizedReport(None, "not_submitted", ("result_error",), "the report contradicts what was submitted"),
    ),
    "not submitted, as said": (None, "not_submitted", True, NONE, NormalizedReport(None, "not_submitted")),
    "invalid, as said": (None, "invalid", True, REFUSED, NormalizedReport(None, "invalid")),
    "says invalid, but nothing was submitted": (
        None,
        "invalid",
        True,
        NONE,
        NormalizedReport(None, "not_submitted", ("result_error",), "the report contradicts what was submitted"),
    ),
    "says nothing was submitted, but it was": (
        None,
        "not_submitted",
        True,
        REFUSED,
        NormalizedReport(None, "invalid", ("result_error",), "the report contradicts what was submitted"),
    ),
    "forgets a valid value": (
        None,
        "not_submitted",
        True,
        VALID,
        NormalizedReport('{"a":1}', None, ("result", "result_error"), "the report contradicts what was submitted"),
    ),
    "a value with an error": (
        "[1]",
        "invalid",
        True,
        REFUSED,
        NormalizedReport(None, "invalid", ("result", "result_error"), "a value came with an error"),
    ),
    "null with an error is the error": ("null", "invalid", True, REFUSED, NormalizedReport(None, "invalid")),
    "no schema, a value": (
        "[1]",
        None,
        False,
        NONE,
        NormalizedReport(None, None, ("result",), "the turn has no output_schema"),
    ),
    "no schema, an error": (
        None,
        "invalid",
        False,
        NONE,
        NormalizedReport(None, None, ("result_error",), "the turn has no output_schema"),
    ),
    "no schema, nothing": (None, None, False, NONE, NormalizedReport(None, None)),
}


@pytest.mark.parametrize("name", READINGS)
def test_a_report_is_read_as_the_contract_says(name: str) -> None:
    result, error, has_schema, tally, expected = READINGS[name]

    assert normalize_report(result, error, has_schema=has_schema, tally=tally) == expected  # pyright: ignore[reportArgumentType] (a table of literals)


@given(
    st.sampled_from([None, "null", "1"]),
    st.sampled_from([None, "not_submitted", "invalid"]),
    st.booleans(),
    st.sampled_from([NONE, VALID, REFUSED]),
)
def test_a_report_once_read_can_always_be_written(
    result: str | None, error: Any, has_schema: bool, tally: SubmissionTally
) -> None:
    read = normalize_report(result, error, has_schema=has_schema, tally=tally)
    turn: Turn = ASKED if has_schema else PLAIN

    check_ending(turn, an_ending(result_json=read.result_json, result_error=read.result_error), Usage())
    assert (read.reason is None) == (read.changed == ())


def test_a_value_that_fails_the_last_validation_is_invalid() -> None:
    assert result_after_validation("[1]", valid=True) == ("[1]", None)
    assert result_after_validation("[1]", valid=False) == (None, "invalid")


def test_an_error_is_retryable_as_the_contract_says_and_only_a_model_error_may_choose() -> None:
    assert turn_error(StopReason.TIMEOUT, "c", "m").retryable
    assert not turn_error(StopReason.DENIED_INPUT, "c", "m", retryable=True).retryable
    assert turn_error(StopReason.MODEL_ERROR, "c", "m", retryable=True).retryable
    assert not turn_error(StopReason.MODEL_ERROR, "c", "m").retryable
