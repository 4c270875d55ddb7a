"""Prompted tool calling: the built-in harness with a model that only writes text. The model is scripted."""

import json
from pathlib import Path
from typing import cast

from tests.contract.harness_rig import SHELL, Worker, play

from turnkeeper.harness.prompted import MAX_REPAIRS
from turnkeeper.harness.spoken import REPAIR
from turnkeeper.sandbox.protocol import HistoryItem, Report, TextDelta, ToolRequest
from turnkeeper.testing.scripted_model import Script, ScriptedAnswer

CALL = '{"tool": "shell", "arguments": {"command":  "ls"}}'
BROKEN = '{"tool": "shell", "arguments": {"command": "l'
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


def says(*texts: str) -> Script:
    return [ScriptedAnswer(text=text) for text in texts]


def test_tools_are_told_in_words_and_a_written_call_is_asked_for(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, says(CALL, "all done"), tools=[SHELL], tool_calling="prompted")

    assert [(request.name, request.arguments) for request in worker.requests] == [("shell", '{"command":  "ls"}')]
    assert (worker.report.status, worker.report.text) == ("completed", "all done")
    first, second = rig.model.requests
    assert "tools" not in first.body
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert str(first.messages[0]["content"]).startswith("Be brief.\n\nYou have these tools:\n- shell: Runs a command.")
    told = [(message["role"], message["content"]) for message in second.messages[2:]]
    assert told == [("assistant", CALL), ("user", 'shell returned:\nran {"command":  "ls"}')]


def test_several_calls_of_one_answer_are_asked_in_their_order(tmp_path: Path) -> None:
    one, two = (f'{{"tool": "shell", "arguments": {{"n": {number}}}}}' for number in (1, 2))
    both = f"I look twice.\n```json\n{one}\n```\n{two}"

    worker, _ = play(tmp_path, says(both, "done"), tools=[SHELL], tool_calling="prompted")

    assert [request.arguments for request in worker.requests] == ['{"n": 1}', '{"n": 2}']


def test_an_unreadable_call_is_said_so_and_may_be_written_again(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, says(BROKEN, CALL, "done"), tools=[SHELL], tool_calling="prompted")

    assert len(worker.requests) == 1
    assert [message["content"] for message in rig.model.requests[1].messages[-2:]] == [BROKEN, REPAIR]


def test_unreadable_calls_are_answered_a_bounded_number_of_times(tmp_path: Path) -> None:
    script = says(*[BROKEN] * (MAX_REPAIRS + 1))

    worker, rig = play(tmp_path, script, tools=[SHELL], tool_calling="prompted")

    assert (worker.requests, worker.report.status, worker.report.text) == ([], "completed", BROKEN)
    assert len(rig.model.requests) == MAX_REPAIRS + 1


def test_a_tool_that_nobody_has_is_named_to_the_model(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, says('{"tool": "fly"}', "done"), tools=[SHELL], tool_calling="prompted")

    assert worker.requests == []
    assert "Unknown tool name: 'fly'" in str(rig.model.requests[1].messages[-1]["content"])


def test_a_server_that_can_is_made_to_write_a_call_or_an_answer(tmp_path: Path) -> None:
    script = says(CALL, '{"answer": "three files"}', '{"n": 3}')

    worker, rig = play(
        tmp_path, script, tools=[SHELL], tool_calling="prompted", output_mode="native", output_schema=SCHEMA
    )

    assert (len(worker.requests), worker.submitted) == (1, ['{"n": 3}'])
    form = cast("dict[str, dict[str, object]]", rig.model.requests[0].body["response_format"])["json_schema"]
    call, answer = cast("dict[str, list[dict[str, dict[str, object]]]]", form["schema"])["anyOf"]
    assert call["properties"] == {"tool": {"const": "shell"}, "arguments": SHELL.parameters}
    assert list(answer["properties"]) == ["answer"]
    assert {"role": "assistant", "content": "three files"} in rig.model.requests[2].messages
    assert "You have these tools" not in json.dumps(rig.model.requests[2].messages)


def test_a_model_that_makes_the_same_call_twice_in_a_row_is_made_to_answer(tmp_path: Path) -> None:
    script = says(CALL, CALL, '{"answer": "done"}')

    worker, rig = play(tmp_path, script, tools=[SHELL], tool_calling="prompted", output_mode="native")

    assert (len(worker.requests), worker.report.text) == (2, "done")
    steps = [len(json.dumps(seen.body["response_format"]).split('"const"')) - 1 for seen in rig.model.requests]
    assert steps == [1, 1, 0]


def test_an_answer_that_was_cut_at_its_cap_is_still_one(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, says('{"answer": "it rai'), tools=[SHELL], tool_calling="prompted", output_mode="native")

    assert (worker.report.status, len(worker.requests)) == ("completed", 0)


def test_a_form_that_the_server_refuses_is_left_out(tmp_path: Path) -> None:
    script = [ScriptedAnswer(status=400), ScriptedAnswer(text=CALL), ScriptedAnswer(text="done")]

    worker, rig = play(tmp_path, script, tools=[SHELL], tool_calling="prompted", output_mode="native")

    assert (len(worker.requests), worker.report.status) == (1, "completed")
    assert ["response_format" in seen.body for seen in rig.model.requests] == [True, False, False]


def test_a_result_is_submitted_by_a_written_call_where_no_form_can_be_forced(tmp_path: Path) -> None:
    script = says('{"tool": "submit_result", "arguments": {"n":  3}}', "done")

    worker, _ = play(tmp_path, script, tool_calling="prompted", output_schema=SCHEMA)

    assert (worker.submitted, worker.report.result) == (['{"n":  3}'], '{"n":  3}')


def test_earlier_calls_come_back_in_words(tmp_path: Path) -> None:
    history = [
        HistoryItem("user", "look"),
        HistoryItem("tool", "a.txt", "c1", "shell", '{"command":"ls"}'),
        HistoryItem("agent", "one file"),
    ]

    _, rig = play(tmp_path, says("again: one"), history=history, tool_calling="prompted")

    assert [(message["role"], message["content"]) for message in rig.model.requests[0].messages[1:]] == [
        ("user", "look"),
        ("assistant", '{"tool": "shell", "arguments": {"command":"ls"}}'),
        ("user", "shell returned:\na.txt"),
        ("assistant", "one file"),
        ("user", "hello"),
    ]


def test_written_calls_are_not_told_while_they_are_written_but_words_without_tools_are(tmp_path: Path) -> None:
    with_tools, _ = play(tmp_path, says(CALL, "done"), tools=[SHELL], tool_calling="prompted", stream=True)
    without, _ = play(tmp_path, says("some words"), tool_calling="prompted", stream=True)

    assert not heard(with_tools)
    assert "".join(heard(without)) == "some words"
    assert [type(frame) for frame in with_tools.frames[2:]] == [ToolRequest, Report]


def heard(worker: Worker) -> list[str]:
    """What was told while it was written."""
    return [frame.text for frame in worker.frames if isinstance(frame, TextDelta)]
