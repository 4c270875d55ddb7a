"""The form a result is written in, and taken out of again."""

import json

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.harness.json_text import member_text
from turnkeeper.harness.submit import CLOSED, ResultForm, words_for
from turnkeeper.sandbox.protocol import SubmissionResult

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)

TREE = """{"$id": "https://example.com/tree", "$schema": "https://json-schema.org/draft/2020-12/schema",
  "anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}, {"$ref": "#/$defs/leaf"}],
  "$defs": {"leaf": {"enum": ["leaf", {"$ref": "#/nowhere"}]}}}"""
SCHEMAS = [
    "true",
    '{"type": "array", "items": {"type": "integer"}}',
    '{"type": ["object", "null"], "required": ["a"]}',
    '{"const": {"$ref": "#"}}',
    '{"$ref": "#/definitions/a/properties/$ref", "definitions": {"a": {"properties": {"$ref": {"type": "string"}}}}}',
    TREE,
]
VALUES = ["1", "null", '"leaf"', "[1, [2, []]]", '[1, "x"]', '{"$ref": "#/nowhere"}', '{"$ref": "#"}', '{"a": 1}', "{}"]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("value", VALUES)
def test_a_wrapped_value_is_valid_exactly_when_the_value_is(schema: str, value: str) -> None:
    form = ResultForm.of(schema)

    bare = jsonschema_rs.validator_for(json.loads(schema)).is_valid(json.loads(value))
    wrapped = jsonschema_rs.validator_for(form.parameters).is_valid({"value": json.loads(value)})

    assert form.wrapped
    assert wrapped == bare


def test_an_object_schema_is_the_form_itself() -> None:
    schema = '{"type": "object", "properties": {"value": {"$ref": "#/$defs/a"}}, "$defs": {"a": true}}'

    form = ResultForm.of(schema)

    assert form == ResultForm(json.loads(schema), wrapped=False)
    assert form.unwrap('{"value": 1}') == '{"value": 1}'


@given(json_values, st.dictionaries(st.text(), json_values, max_size=3), st.sampled_from([None, 0, 2]))
def test_a_members_text_is_found_wherever_it_stands(
    value: object, others: dict[str, object], indent: int | None
) -> None:
    document = {**others, "value": value}
    text = json.dumps(document, indent=indent, ensure_ascii=False)

    found = member_text(f" \n{text}\t", "value")

    assert found is not None
    assert json.loads(found) == value
    assert found in text


@pytest.mark.parametrize("spelling", ["1.0", "1e2", '"\\u00e9"', "[ 1,2 ]", '{"b":1, "a":2}', "12345678901234567890"])
def test_unwrapping_keeps_the_spelling(spelling: str) -> None:
    assert ResultForm.of('{"type": "integer"}').unwrap(f'{{ "value" : {spelling} }}') == spelling


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", '"value"', '{"value"}', '{"value":}', '{"value": 1', '{"other": 1}', '{"value": 1} x', "{]"],
)
def test_what_is_no_wrapper_is_left_for_the_worker_to_judge(text: str) -> None:
    assert ResultForm.of('{"type": "integer"}').unwrap(text) == text


@given(st.text())
def test_any_text_can_be_looked_into(text: str) -> None:
    member_text(text, "value")
    member_text("{" + text, "value")


def test_nesting_without_end_is_no_wrapper() -> None:
    assert member_text('{"value":' + "[" * 200_000, "value") is None


def test_the_last_of_two_members_counts_as_it_does_for_every_reader() -> None:
    assert member_text('{"value": 1, "value": 2}', "value") == "2"


def test_the_agent_is_told_what_became_of_its_value() -> None:
    accepted = SubmissionResult(1, accepted=True, closed=False, attempts_left=1)
    refused = SubmissionResult(1, accepted=False, closed=False, attempts_left=1, errors=["/n: missing"])
    closed = SubmissionResult(1, accepted=False, closed=True, attempts_left=0)

    assert words_for(accepted).startswith("accepted")
    assert "/n: missing" in words_for(refused)
    assert "1 attempts left" in words_for(refused)
    assert words_for(closed) == CLOSED
