"""Calls that a model writes into its text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.harness.written_calls import MAX_CALLS, WrittenCall, read_calls, render_call

SHELL = WrittenCall("shell", '{"command":  "ls"}')
WRITTEN = '{"tool": "shell", "arguments": {"command":  "ls"}}'

names = st.text(min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.text(max_size=8), values, max_size=4)
prose = st.text(st.characters(exclude_characters="{}<>`"), max_size=60)


@given(names, arguments, prose, prose)
def test_what_is_rendered_is_read_back_whatever_stands_around_it(
    name: str, given_arguments: dict[str, object], before: str, after: str
) -> None:
    text = json.dumps(given_arguments)
    written = read_calls(f"{before}{render_call(name, text)}{after}")
    assert written.calls == (WrittenCall(name, text),)
    assert not written.broken


@given(names, arguments, st.data())
def test_no_part_of_a_call_is_a_call(name: str, given_arguments: dict[str, object], data: st.DataObject) -> None:
    whole = render_call(name, json.dumps(given_arguments))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert read_calls(cut).calls == ()


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    written = read_calls(text)
    assert not (written.calls and written.broken)


@pytest.mark.parametrize(
    "text",
    [
        WRITTEN,
        f"```json\n{WRITTEN}\n```",
        f"```tool_call\n{WRITTEN}\n```\n",
        f"<tool_call>\n{WRITTEN}\n</tool_call>",
        f"[{WRITTEN}]",
        '{"name": "shell", "arguments": {"command":  "ls"}}',
        '{"name": "shell", "parameters": {"command":  "ls"}}',
        '{"tool": "shell", "arguments": "{\\"command\\":  \\"ls\\"}"}',
    ],
)
def test_a_call_is_read_in_the_shapes_that_models_write_it(text: str) -> None:
    written = read_calls(text)
    assert (written.calls, written.text) == ((SHELL,), "")


def test_what_is_said_beside_a_call_is_kept() -> None:
    written = read_calls(f"Let me look.\n```json\n{WRITTEN}\n```\nThat is all.")
    assert written.calls == (SHELL,)
    assert " ".join(written.text.split()) == "Let me look. That is all."


def test_several_calls_keep_their_order() -> None:
    written = read_calls('{"tool": "a"}\n{"tool": "b", "arguments": {"n": 1.0}} [{"tool": "c"}]')
    assert written.calls == (WrittenCall("a", "{}"), WrittenCall("b", '{"n": 1.0}'), WrittenCall("c", "{}"))


def test_more_calls_than_an_answer_may_hold_are_left_out() -> None:
    assert len(read_calls('{"tool": "a"}' * (MAX_CALLS + 1)).calls) == MAX_CALLS


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "shell", "arguments": {"tool": "other", "arguments": {}}',
        f'{WRITTEN} {{"tool": "shell", "arguments": {{"command": "l',
        '{"tool": "shell", "arguments": {command: "ls"}}',
        '{"name": "shell", "arguments": {"command": }}',
        '{"tool": 7}',
        "<tool_call>shell ls</tool_call>",
    ],
)
def test_a_call_that_was_begun_and_is_none_calls_nothing(text: str) -> None:
    written = read_calls(text)
    assert (written.broken, written.calls, written.text) == (True, (), text)


@pytest.mark.parametrize(
    "text", ["It rains.", '{"rain": true}', 'The name is {"name": "Paris"}.', "f() { return 1; }", ""]
)
def test_an_answer_without_a_call_is_an_answer(text: str) -> None:
    written = read_calls(text)
    assert (written.text, written.calls, written.broken) == (text, (), False)


def test_arguments_that_are_no_object_are_handed_on_to_be_refused() -> None:
    assert read_calls('{"tool": "shell", "arguments": [1]}').calls == (WrittenCall("shell", "[1]"),)


def test_a_flood_of_braces_ends() -> None:
    assert read_calls('{"a":' * 100_000).calls == ()
    assert read_calls("[" * 100_000 + "{").calls == ()
