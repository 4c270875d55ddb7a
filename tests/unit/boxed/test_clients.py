"""What is written for each client, and what is read of it."""

import json
import tomllib
from collections.abc import Sequence

import pytest

from turnkeeper.boxed.clients import Output, Task
from turnkeeper.boxed.kinds import KINDS
from turnkeeper.boxed.opencode import CONFIG_FILE, PLUGIN_FILE
from turnkeeper.boxed.orders import box_needs
from turnkeeper.boxed.prompts import denial_prompt, first_prompt, repair_prompt
from turnkeeper.hooks import claude_code, codex
from turnkeeper.sandbox.protocol import HistoryItem, ResponseDenied, Start, SubmissionResult

TASK = Task("m1")
FORMED = Task("m1", output_schema='{"type":"object"}', session="s1")
HOOK = ["/opt/my python", "-I", "hook.py"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def read(kind: str, *lines: object, task: Task = TASK) -> Output:
    """The output of a run that printed these lines."""
    output = KINDS[kind].output(task)
    for line in lines:
        output.take(json.loads(json.dumps(line)))
    return output


def finished(kind: str, call: str, content: str = "x", *, is_error: bool = False) -> Sequence[object]:
    """The lines that show that a call of the shell was carried out."""
    use: dict[str, object] = {"type": "tool_use", "id": call, "name": "Bash", "input": {}}
    result: dict[str, object] = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": is_error}
    lines: dict[str, list[object]] = {
        "claude-code": [
            {"type": "assistant", "message": {"content": [use]}},
            {"type": "user", "message": {"content": [result]}},
        ],
        "codex": [{"type": "item.completed", "item": {"id": call, "type": "command_execution"}}],
        "opencode": [{"type": "tool_use", "part": {"callID": call, "tool": "bash", "state": {"status": "error"}}}],
    }
    return lines[kind]


@each_kind
def test_a_call_is_governed_if_a_hook_asked_about_it(kind: str) -> None:
    output = read(kind, *finished(kind, "t1"))
    assert output.ungoverned({"t1"}, 0) is None
    assert output.ungoverned(set(), 0) is not None


def test_calls_of_an_earlier_run_do_not_count_for_those_of_this_one() -> None:
    output = read("codex", *finished("codex", "item_1"))
    assert output.ungoverned({"call_1"}, 1) == "command_execution"
    assert output.ungoverned({"call_1", "call_2"}, 1) is None


@each_kind
@pytest.mark.parametrize(
    "line", [{}, {"type": 3}, {"type": "assistant"}, {"type": "user", "message": {"content": "x"}}]
)
def test_lines_of_any_other_form_say_nothing(kind: str, line: object) -> None:
    output = read(kind, line, {"type": "item.completed", "item": []}, {"type": "tool_use", "part": None})
    assert (output.heard.text, output.heard.failure, output.heard.done) == ("", None, False)


@each_kind
def test_settings_hold_the_hook_and_the_command_line_the_model_and_the_session(kind: str) -> None:
    client = KINDS[kind]
    assert all("/opt/my python" in text for path, text in client.files(HOOK, "m1").items() if path != CONFIG_FILE)
    words = " ".join(client.words(FORMED))
    assert "m1" in words
    assert "s1" in words


def test_claude_code_hooks_fail_closed_and_are_the_only_ones() -> None:
    (text,) = KINDS["claude-code"].files(HOOK, "m1").values()
    settings = json.loads(text)
    hooks = {event: group["hooks"][0] for event, (group,) in settings["hooks"].items()}
    assert settings["allowManagedHooksOnly"] is True
    assert set(hooks) == set(claude_code.EVENTS)
    assert {hook["onFailure"] for hook in hooks.values()} == {"block"}
    assert hooks["PreToolUse"]["command"] == "'/opt/my python' -I hook.py || exit 2"


def test_codex_hooks_are_managed_and_the_only_ones() -> None:
    (text,) = KINDS["codex"].files(HOOK, "m1").values()
    settings = tomllib.loads(text)
    assert (settings["allow_managed_hooks_only"], settings["features"]["hooks"]) == (True, True)
    assert {event for event in settings["hooks"] if event != "managed_dir"} == set(codex.EVENTS)
    (command,) = settings["hooks"]["PreToolUse"][0]["hooks"]
    assert command["command"] == "'/opt/my python' -I hook.py || exit 2"


def test_opencode_has_our_plugin_whole() -> None:
    files = KINDS["opencode"].files(HOOK, "m1")
    assert json.loads(files[CONFIG_FILE])["plugin"] == [f"file://{PLUGIN_FILE}"]
    assert "__" not in files[PLUGIN_FILE].replace("__proto__", "")


def test_claude_codes_answer_result_and_session_are_read() -> None:
    last = {"type": "result", "subtype": "success", "result": "done", "session_id": "s", "structured_output": {"n": 1}}
    heard = read("claude-code", last).heard
    assert (heard.text, heard.value_json, heard.session, heard.done) == ("done", '{"n": 1}', "s", True)


def test_what_claude_code_says_for_its_agent_is_not_the_agents() -> None:
    said = [{"type": "text", "text": "API Error: 402"}]
    own = {"type": "assistant", "message": {"model": "m1", "content": [{"type": "text", "text": "so far"}]}}
    synthetic = {"type": "assistant", "message": {"model": "<synthetic>", "content": said}}
    assert read("claude-code", own, synthetic).heard.text == "so far"


def test_claude_codes_failure_is_read() -> None:
    heard = read("claude-code", {"type": "result", "subtype": "error_max_turns", "is_error": True}).heard
    assert (heard.failure, heard.done) == ("error_max_turns", True)


def test_codex_last_message_is_the_result_where_one_is_wanted() -> None:
    lines = [
        {"type": "thread.started", "thread_id": "s"},
        {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": '{"n":1}'}},
        {"type": "turn.completed"},
    ]
    assert read("codex", *lines).heard.value_json is None
    heard = read("codex", *lines, task=FORMED).heard
    assert (heard.text, heard.value_json, heard.session, heard.done) == ('{"n":1}', '{"n":1}', "s", True)


def test_codex_failure_is_read() -> None:
    assert read("codex", {"type": "turn.failed", "error": {"message": "no model"}}).heard.failure == "no model"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('Here:\n```json\n{"n": 1}\n```\n', '{"n": 1}'),
        ("```\n1\n```\nthen\n```json\n2\n```", "2"),
        ('{"n":1}', '{"n":1}'),
        ("no result", None),
        ("```json\nnot json\n```", None),
    ],
)
def test_opencodes_result_is_the_end_of_its_answer(text: str, value: str | None) -> None:
    heard = read("opencode", {"type": "text", "sessionID": "s", "part": {"text": text}}, task=FORMED).heard
    assert (heard.value_json, heard.session, heard.done) == (value, "s", True)


@each_kind
def test_a_box_has_the_runner_as_its_command_and_no_key(kind: str) -> None:
    needs = box_needs(kind, KINDS[kind], python="/opt/python", model="m1")
    assert needs.command == ("/opt/python", "-I", "-m", "turnkeeper.boxed", kind)
    assert {value for name, value in needs.environment.items() if name.endswith("_KEY")} <= {"none"}


def test_a_prompt_tells_what_was_before() -> None:
    history = [HistoryItem("user", "hi"), HistoryItem("tool", "a.txt", "c", "Bash", "{}"), HistoryItem("agent", "one")]
    start = Start("t", 1, "", "And now?", "m1", "/s", history=history)
    prompt = first_prompt(start)
    places = [prompt.index(text) for text in ("[the user]\nhi", "a.txt", "[you]\none", "And now?")]
    assert places == sorted(places)
    assert first_prompt(Start("t", 1, "", "And now?", "m1", "/s")) == "And now?"


def test_a_turn_that_waited_is_told_which_call_to_make_again() -> None:
    pending = HistoryItem("tool", "", "c", "Bash", '{"command":"ls"}')
    prompt = first_prompt(
        Start("t", 1, "", "Do it.", "m1", "/s", history=[HistoryItem("user", "Do it.")], pending=pending)
    )
    assert 'Bash with {"command":"ls"}' in prompt
    assert prompt.count("Do it.") == 1


def test_a_client_hears_what_was_wrong() -> None:
    refused = SubmissionResult(1, accepted=False, closed=False, attempts_left=1, errors=["/n is missing"])
    assert "- /n is missing" in repair_prompt(refused)
    assert "- no reason was given" in denial_prompt(ResponseDenied([], 1))
