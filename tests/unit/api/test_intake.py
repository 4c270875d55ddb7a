"""Bodies become typed values, or a refusal that names every wrong member."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs.strictjson import member_slices, parse_object
from turnkeeper.api.bodies import EMPTY_BODY, JsonBody, element_slices
from turnkeeper.api.deps import ApiSettings
from turnkeeper.api.intake import TurnBody, parse_cancel, parse_close, parse_session, parse_turn
from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.model import Budget

AGENT_ID = "agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
SETTINGS = ApiSettings()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def body(text: str) -> JsonBody:
    return JsonBody(parse_object(text.encode()), member_slices(text))


def turn(text: str) -> TurnBody:
    return parse_turn(body(text), SETTINGS)


def refusal(text: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        turn(text)
    return refused.value


def test_a_prompt_alone_is_a_turn() -> None:
    assert turn('{"input":"hi"}') == TurnBody("hi", '"hi"', None, "{}", None, None)


def test_metadata_and_schema_keep_their_tokens() -> None:
    parsed = turn('{ "output_schema": {"b": 1.0, "a": 1e2}, "metadata": {"z": 0.10, "a": "\\u0000"}, "input": "hi" }')
    assert parsed.output_schema_json == '{"b":1.0,"a":1e2}'
    assert parsed.metadata_json == '{"z":0.10,"a":"\\u0000"}'


def test_parts_are_joined_and_json_parts_keep_their_spelling() -> None:
    parsed = turn('{"input": [{"type": "text", "text": "Sum:"}, {"type": "json", "value": {"n": 1.50}}]}')
    assert parsed.input_text == 'Sum:\n{"n":1.50}'
    assert parsed.input_json == '[{"type":"text","text":"Sum:"},{"type":"json","value":{"n":1.50}}]'


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        ("{}", "invalid_field", "/input"),
        ('{"input":""}', "invalid_field", "/input"),
        ('{"input":" \\n"}', "invalid_field", "/input"),
        ('{"input":[]}', "invalid_field", "/input"),
        ('{"input":7}', "invalid_field", "/input"),
        ('{"input":[7]}', "invalid_field", "/input/0"),
        ('{"input":[{"type":"text"}]}', "invalid_field", "/input/0/text"),
        ('{"input":[{"type":"json"}]}', "invalid_field", "/input/0/value"),
        ('{"input":[{"type":"file","file_id":"fil_1"}]}', "file_not_ready", "/input/0/file_id"),
        ('{"input":[{"type":"file"}]}', "invalid_field", "/input/0/file_id"),
        ('{"input":[{"type":"file","file_id":"fil_1","x":1}]}', "unknown_field", "/input/0/x"),
        ('{"input":[{"type":"image"}]}', "invalid_field", "/input/0/type"),
        ('{"input":[{"type":"text","text":"a","x":1}]}', "unknown_field", "/input/0/x"),
        ('{"input":"hi","metdata":{}}', "unknown_field", "/metdata"),
        ('{"input":"hi","a/b":1}', "unknown_field", "/a~1b"),
        ('{"input":"hi","metadata":[]}', "invalid_field", "/metadata"),
        ('{"input":"hi","on_busy":"steer"}', "invalid_field", "/on_busy"),
        ('{"input":"hi","start_by":"2027-01-01"}', "invalid_field", "/start_by"),
        ('{"input":"hi","start_by":"2027-02-30T00:00:00Z"}', "invalid_field", "/start_by"),
        ('{"input":"hi","start_by":"0001-01-01T00:00:00+14:00"}', "invalid_field", "/start_by"),
        ('{"input":"hi","start_by":5}', "invalid_field", "/start_by"),
        ('{"input":"hi","priority":"batch"}', "not_supported_yet", "/priority"),
        ('{"input":"hi","max_attempts":0}', "invalid_field", "/max_attempts"),
        ('{"input":"hi","max_attempts":6}', "invalid_field", "/max_attempts"),
        ('{"input":"hi","max_attempts":true}', "invalid_field", "/max_attempts"),
        (
            '{"input":"hi","budget":{"max_cost":{"amount":"x","currency":"USD"}}}',
            "budget_invalid",
            "/budget/max_cost/amount",
        ),
        ('{"input":"hi","budget":{"max_model_calls":0}}', "budget_invalid", "/budget/max_model_calls"),
        ('{"input":"hi","budget":{"max_total_tokens":"9"}}', "budget_invalid", "/budget/max_total_tokens"),
        ('{"input":"hi","budget":{"max_output_tokens":1.5}}', "budget_invalid", "/budget/max_output_tokens"),
        ('{"input":"hi","budget":7}', "invalid_field", "/budget"),
        ('{"input":"hi","max_repair_attempts":11}', "invalid_field", "/max_repair_attempts"),
        ('{"input":"hi","max_repair_attempts":true}', "invalid_field", "/max_repair_attempts"),
    ],
)
def test_what_cannot_be_taken_is_named_by_code_and_pointer(text: str, code: str, param: str) -> None:
    refused = refusal(text)
    assert (refused.error_code, refused.param) == (code, param)


def test_values_that_mean_what_happens_anyway_are_taken() -> None:
    assert turn('{"input":"hi","on_busy":"enqueue","priority":"interactive","max_attempts":1,"start_by":null}')


def test_every_wrong_member_is_listed() -> None:
    refused = refusal('{"input":7,"metadata":1,"zz":2}')
    assert [issue.pointer for issue in refused.issues] == ["/zz", "/input", "/metadata"]


def test_the_list_of_wrong_members_is_bounded() -> None:
    many = json.dumps({"input": "hi", **{f"k{number}": 1 for number in range(20_000)}})
    assert len(refusal(many).issues) == 20


def test_input_and_metadata_over_their_limits_are_refused() -> None:
    assert refusal(json.dumps({"input": "x" * 262_145})).param == "/input"
    assert refusal(json.dumps({"input": "x", "metadata": {"a": "x" * 16_384}})).param == "/metadata"


def test_a_whole_float_counts_as_an_integer() -> None:
    assert turn('{"input":"hi","budget":{"max_model_calls":2.0}}').budget == Budget(max_model_calls=2)


def test_a_session_needs_the_id_of_an_agent_and_a_title_of_one_line() -> None:
    assert parse_session(body(f'{{"agent_id":"{AGENT_ID}","title":"T"}}'), SETTINGS).title == "T"
    for wrong in ('{"agent_id":"agt_1"}', "{}", f'{{"agent_id":"{AGENT_ID}","title":"a\\u0000b"}}'):
        with pytest.raises(RequestRefused):
            parse_session(body(wrong), SETTINGS)


def test_commands_have_defaults_and_closed_words() -> None:
    assert parse_cancel(EMPTY_BODY) == ("graceful", None)
    assert parse_cancel(body('{"mode":"immediate","reason":"late"}')) == ("immediate", "late")
    assert parse_close(EMPTY_BODY) == "drain"
    with pytest.raises(RequestRefused):
        parse_close(body('{"mode":"now"}'))


@given(st.lists(JSON, max_size=6))
def test_the_slices_of_an_array_are_its_elements(elements: list[Any]) -> None:
    text = json.dumps(elements, separators=(",", ":"))
    assert [json.loads(part) for part in element_slices(text)] == elements


@given(st.dictionaries(st.sampled_from(["input", "metadata", "budget", "output_schema", "on_busy", "x"]), JSON))
def test_any_object_is_a_turn_or_a_refusal(members: dict[str, Any]) -> None:
    text = json.dumps(members)
    try:
        parsed = turn(text)
    except RequestRefused as refused:
        assert refused.issues  # noqa: PT017 (either outcome is right, each has its law)
    else:
        assert orjson.loads(parsed.metadata_json) == (members.get("metadata") or {})
