"""An agent's subagents: names that nothing else has, and no tool that the agent has not."""

import pytest

from turnkeeper.acs.strictjson import JsonObject, JsonValue
from turnkeeper.api.agent_subagents import MAX_SUBAGENTS, parse_subagents, subagent_document
from turnkeeper.api.fields import Fields
from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.model import Subagent

READER: JsonObject = {"name": "reader", "description": "Reads.", "instructions": "Read.", "tools": ["shell"]}
TAKEN = frozenset({"shell", "write_file", "mine"})


def parsed(subagents: JsonValue, *, brings_tools: bool = False) -> tuple[Subagent, ...]:
    fields = Fields({"subagents": subagents})
    found = parse_subagents(fields, ("shell",), TAKEN, brings_tools=brings_tools)
    fields.finish()
    return found


def test_an_agent_that_says_nothing_has_none() -> None:
    assert parsed(None) == parsed([]) == ()


def test_what_is_shown_can_be_sent_again() -> None:
    found = parsed([READER, {**READER, "name": "other", "tools": None}])
    assert [one.tools for one in found] == [("shell",), ()]
    assert parsed([subagent_document(one) for one in found]) == found


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"name": "shell"}, "/subagents/0/name", "invalid_field"),
        ({"name": "mine"}, "/subagents/0/name", "invalid_field"),
        ({"name": "submit_result"}, "/subagents/0/name", "invalid_field"),
        ({"name": "two words"}, "/subagents/0/name", "invalid_field"),
        ({"name": "a" * 65}, "/subagents/0/name", "invalid_field"),
        ({"description": ""}, "/subagents/0/description", "invalid_field"),
        ({"instructions": None}, "/subagents/0/instructions", "invalid_field"),
        ({"tools": ["write_file"]}, "/subagents/0/tools", "invalid_field"),
        ({"tools": ["shell", "shell"]}, "/subagents/0/tools", "invalid_field"),
        ({"tools": [1]}, "/subagents/0/tools", "invalid_field"),
        ({"tools": "shell"}, "/subagents/0/tools", "invalid_field"),
        ({"model": {"id": "m"}}, "/subagents/0/model", "not_supported_yet"),
        ({"subagents": []}, "/subagents/0/subagents", "unknown_field"),
    ],
)
def test_what_a_subagent_cannot_be_is_refused_by_name(change: JsonObject, param: str, code: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parsed([{**READER, **change}])
    assert [(issue.pointer, issue.code) for issue in refused.value.issues] == [(param, code)]


@pytest.mark.parametrize("subagents", ["reader", [READER, READER], [READER] * (MAX_SUBAGENTS + 1), ["reader"]])
def test_what_is_no_list_of_subagents_is_refused(subagents: JsonValue) -> None:
    with pytest.raises(RequestRefused):
        parsed(subagents)


def test_what_brings_its_own_tools_hands_out_no_tasks_of_ours() -> None:
    with pytest.raises(RequestRefused, match="brings its own tools"):
        parsed([READER], brings_tools=True)
