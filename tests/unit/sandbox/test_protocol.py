import contextlib
import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.sandbox.protocol import (
    MAX_FRAME_BYTES,
    MAX_SAFE_INTEGER,
    Cancel,
    Canceled,
    Done,
    Frame,
    FromHarness,
    HarnessProtocolError,
    HistoryItem,
    Ready,
    Report,
    ResponseDenied,
    Start,
    Started,
    SubmissionResult,
    Submit,
    ToHarness,
    ToolAsked,
    ToolRan,
    ToolRequest,
    ToolResult,
    ToolRuled,
    ToolSpec,
    Ungoverned,
    parse_from_harness,
    parse_to_harness,
    render_frame,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
COUNT = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
MEMBERS = st.dictionaries(TEXT, st.none() | st.booleans() | COUNT | TEXT, max_size=3)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)

TO_HARNESS: st.SearchStrategy[ToHarness] = st.one_of(
    st.builds(
        Start,
        turn_id=TEXT,
        attempt=COUNT,
        instructions=TEXT,
        input=TEXT,
        model=TEXT,
        gateway_socket=TEXT,
        output_mode=st.sampled_from(["tool", "native"]),
        tool_calling=st.sampled_from(["native", "prompted"]),
        output_schema=st.none() | TEXT,
        params=MEMBERS,
        tools=st.lists(st.builds(ToolSpec, TEXT, TEXT, MEMBERS), max_size=2),
        history=st.lists(st.builds(HistoryItem, st.sampled_from(["user", "agent", "tool"]), TEXT, TEXT), max_size=2),
        max_model_calls=COUNT,
    ),
    st.builds(ToolResult, TEXT, st.sampled_from(["ok", "error", "denied", "canceled", "timeout", "unknown"]), TEXT),
    st.builds(ToolRuled, TEXT, st.booleans(), TEXT, TEXT),
    st.builds(SubmissionResult, COUNT, st.booleans(), st.booleans(), COUNT, st.lists(TEXT, max_size=2)),
    st.builds(ResponseDenied, st.lists(TEXT, max_size=2), COUNT),
    st.builds(Cancel, COUNT),
    st.just(Done()),
)

FROM_HARNESS: st.SearchStrategy[FromHarness] = st.one_of(
    st.builds(Ready, TEXT, TEXT, COUNT),
    st.builds(Started, TEXT),
    st.builds(ToolRequest, TEXT, TEXT, TEXT),
    st.builds(ToolAsked, TEXT, TEXT, TEXT),
    st.builds(ToolRan, TEXT, st.sampled_from(["ok", "error"]), TEXT),
    st.builds(Ungoverned, TEXT),
    st.builds(Submit, TEXT),
    st.builds(
        Report,
        st.sampled_from(["completed", "failed"]),
        st.sampled_from(["end_turn", "budget_reached", "agent_error", "model_error"]),
        TEXT,
        st.none() | TEXT,
        st.sampled_from([None, "not_submitted", "invalid"]),
        MEMBERS,
        COUNT,
        st.none() | TEXT,
    ),
    st.builds(Canceled, TEXT),
)

REPORT: dict[str, Any] = {
    "type": "report",
    "status": "completed",
    "stop_reason": "end_turn",
    "text": "done",
    "result": None,
    "result_error": None,
    "usage": {},
    "duration_ms": 5,
}


@given(TO_HARNESS)
def test_a_frame_to_the_harness_is_read_as_it_was_written(frame: ToHarness) -> None:
    assert parse_to_harness(render_frame(frame)) == frame


@given(FROM_HARNESS)
def test_a_frame_from_the_harness_is_read_as_it_was_written(frame: FromHarness) -> None:
    assert parse_from_harness(render_frame(frame)) == frame


@given(st.one_of(TO_HARNESS, FROM_HARNESS))
def test_a_frame_is_exactly_one_line(frame: Frame) -> None:
    line = render_frame(frame)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


@given(TO_HARNESS)
def test_a_harness_cannot_speak_the_workers_half(frame: ToHarness) -> None:
    with pytest.raises(HarnessProtocolError):
        parse_from_harness(render_frame(frame))


@given(FROM_HARNESS, st.data())
def test_a_frame_without_a_required_member_is_refused(frame: FromHarness, data: st.DataObject) -> None:
    document = json.loads(render_frame(frame))
    required = [member.name for member in fields(frame) if member.default is MISSING]
    if required:
        del document[data.draw(st.sampled_from(required))]
        with pytest.raises(HarnessProtocolError):
            parse_from_harness(json.dumps(document).encode())


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_protocol_error(line: bytes) -> None:
    _read_or_refuse(parse_from_harness, line)
    _read_or_refuse(parse_to_harness, line)


@given(st.sampled_from(["ready", "started", "tool_request", "submit", "report", "canceled"]), st.data())
def test_no_value_of_a_member_raises_anything_but_a_protocol_error(kind: str, data: st.DataObject) -> None:
    names = st.sampled_from(["harness", "version", "turn_id", "call_id", "name", "arguments", "value", "text", "usage"])
    document = {"type": kind, **data.draw(st.dictionaries(names, ANY_JSON, max_size=4))}
    _read_or_refuse(parse_from_harness, json.dumps(document).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b'"ready"',
        b"{",
        b"{}",
        b'{"type":null}',
        b'{"type":["ready"]}',
        b'{"type":{}}',
        b'{"type":"ready"}{"type":"ready"}',
        b'{"type":"shutdown"}',
        b'{"type":"submit","value":"a","value":"b"}',
        b'{"type":"submit","type":"submit","value":"a"}',
        b'{"type":"submit","value":1}',
        b'{"type":"submit","value":null}',
        b'{"type":"submit","value":["a"]}',
        b'{"type":"submit","value":"\\ud800"}',
        b'{"type":"submit","value":"a","fence":7}',
        b'{"type":"submit","value":"\xff"}',
        b'\xef\xbb\xbf{"type":"submit","value":"a"}\xff',
        b'{"type":"ready","harness":"x","version":"1","protocol":true}',
        b'{"type":"ready","harness":"x","version":"1","protocol":1.0}',
        b'{"type":"ready","harness":"x","version":"1","protocol":NaN}',
        b'{"type":"ready","harness":"x","version":"1","protocol":Infinity}',
        b'{"type":"ready","harness":"x","version":"1","protocol":9007199254740992}',
        b'{"type":"ready","harness":"x","version":"1","protocol":' + b"9" * 5000 + b"}",
        b'{"type":"submit","value":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type":"submit","value":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b"[" * MAX_FRAME_BYTES,
        b'{"type":"submit","value":"' + b"a" * MAX_FRAME_BYTES + b'"}',
    ],
    ids=lambda line: f"{line[:30]!r}+{len(line)}",
)
def test_a_hostile_line_is_refused(line: bytes) -> None:
    with pytest.raises(HarnessProtocolError):
        parse_from_harness(line)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("status", "canceled"),
        ("status", None),
        ("stop_reason", "deferred"),
        ("result_error", "unknown"),
        ("result_error", 0),
        ("usage", None),
        ("usage", []),
        ("duration_ms", "5"),
        ("duration_ms", 5.5),
        ("text", {"$ref": "x"}),
    ],
)
def test_a_report_with_a_value_it_may_not_have_is_refused_and_named(member: str, value: object) -> None:
    with pytest.raises(HarnessProtocolError, match=f"report.{member}"):
        parse_from_harness(json.dumps({**REPORT, member: value}).encode())


def test_an_unknown_member_inside_a_list_is_refused() -> None:
    start = json.loads(render_frame(Start("t", 1, "", "", "m", "/run/s")))
    start["tools"] = [{"name": "a", "description": "b", "parameters": {}, "run": "rm"}]
    with pytest.raises(HarnessProtocolError, match="run"):
        parse_to_harness(json.dumps(start).encode())


def test_a_frame_over_the_limit_is_not_written() -> None:
    with pytest.raises(HarnessProtocolError, match=str(MAX_FRAME_BYTES)):
        render_frame(Submit("a" * MAX_FRAME_BYTES))


def test_the_longest_frame_that_is_written_can_be_read() -> None:
    longest = Submit("a" * (MAX_FRAME_BYTES - len(render_frame(Submit("")))))
    assert parse_from_harness(render_frame(longest)) == longest


def test_an_error_text_repeats_little_of_a_hostile_line() -> None:
    with pytest.raises(HarnessProtocolError) as caught:
        parse_from_harness(json.dumps({"type": "x" * 10_000}).encode())
    assert len(caught.value.message) < 200


def _read_or_refuse(parse: Callable[[bytes], object], line: bytes) -> None:
    with contextlib.suppress(HarnessProtocolError):
        parse(line)


@pytest.mark.parametrize("member", ['{"a":1e999}', '{"a":"\\ud800"}', '{"\\udfff":1}', '{"a":[9007199254740992]}'])
def test_a_reported_usage_cannot_carry_what_breaks_whoever_writes_it_down(member: str) -> None:
    report = '{"type":"report","status":"completed","stop_reason":"end_turn","text":"","result":null,'
    line = f'{report}"result_error":null,"usage":{member},"duration_ms":1}}'
    with pytest.raises(HarnessProtocolError, match="not JSON"):
        parse_from_harness(line.encode())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_a_frame_that_cannot_be_written_is_a_protocol_error(value: object) -> None:
    frame = Start("trn_1", 1, "", "", "m", "/run/gateway/gateway.sock", params={"temperature": value})
    with pytest.raises(HarnessProtocolError, match="cannot be written"):
        render_frame(frame)


def test_a_start_that_goes_on_carries_the_call_that_waits() -> None:
    """Both sides read the pending call as the same thing."""
    pending = HistoryItem("tool", "", "tcl_1", "shell", '{"command":"ls"}')
    start = Start("trn_1", 1, "Work.", "hi", "m", "/s", pending=pending, submissions=1, accepted="3")
    assert parse_to_harness(render_frame(start)) == start
