"""What each client says and is told, in its own words. The answers are those the real clients were seen to obey."""

import json
from typing import Any

import pytest

from turnkeeper.hooks import claude_code, codex, opencode
from turnkeeper.hooks.events import (
    Block,
    Dialect,
    HookEvent,
    HookInputInvalid,
    Proceed,
    PromptSubmitted,
    Replace,
    Reply,
    SessionBegan,
    SessionOver,
    ToolFinished,
    ToolRequested,
    TurnStopped,
)

CALL = ToolRequested("c1", "Bash", {"command": "ls"})
OUTPUT = ToolFinished("c1", "Bash", "a\nb", {"stdout": "a", "stderr": "b", "interrupted": False})


def _said(name: str, **members: object) -> dict[str, object]:
    return {"session_id": "s1", "hook_event_name": name, **members}


def _told(reply: Reply) -> Any:
    assert (reply.stderr, reply.exit_code) == ("", 0)
    return json.loads(reply.stdout)


@pytest.mark.parametrize("dialect", [claude_code, codex])
@pytest.mark.parametrize(
    ("document", "event"),
    [
        (_said("SessionStart", source="startup"), SessionBegan()),
        (_said("UserPromptSubmit", prompt="hi"), PromptSubmitted("hi")),
        (_said("PreToolUse", tool_name="Bash", tool_use_id="c1", tool_input={"command": "ls"}), CALL),
        (
            _said("PreToolUse", tool_name="mcp__files__read", tool_use_id="c2", tool_input={}),
            ToolRequested("c2", "mcp__files__read", {}, "files"),
        ),
        (_said("PostToolUse", tool_name="Bash", tool_use_id="c1", tool_response=OUTPUT.output), OUTPUT),
        (_said("Stop"), TurnStopped()),
        (_said("SessionEnd"), SessionOver()),
    ],
    ids=str,
)
def test_a_report_is_read(dialect: Dialect, document: dict[str, object], event: object) -> None:
    report = dialect.read_report(document)
    assert (report.session, report.event) == ("s1", event)


@pytest.mark.parametrize(
    "document",
    [
        {},
        _said(""),
        _said("Notification"),
        {"hook_event_name": "Stop"},
        _said("PreToolUse", tool_name="Bash", tool_use_id="c1"),
        _said("PreToolUse", tool_name="Bash", tool_use_id="c1", tool_input="ls"),
        _said("PreToolUse", tool_name="Bash", tool_input={}),
        _said("UserPromptSubmit", prompt=7),
    ],
)
@pytest.mark.parametrize("dialect", [claude_code, codex, opencode])
def test_what_no_hook_is_known_to_send_is_refused(dialect: Dialect, document: dict[str, object]) -> None:
    with pytest.raises(HookInputInvalid):
        dialect.read_report(document)


@pytest.mark.parametrize("dialect", [claude_code, codex])
def test_an_allowed_call_is_left_to_the_clients_own_rules(dialect: Dialect) -> None:
    assert dialect.render_reply(CALL, Proceed()) == Reply()


@pytest.mark.parametrize("dialect", [claude_code, codex])
@pytest.mark.parametrize("event", [SessionBegan(), TurnStopped(), SessionOver()], ids=repr)
def test_what_has_happened_is_never_blocked_which_would_keep_the_client_going(
    dialect: Dialect, event: HookEvent
) -> None:
    reply = dialect.render_reply(event, Block("the Guardian is gone"))
    assert (reply.stdout, reply.exit_code, reply.stderr) == (b"", 0, "the Guardian is gone")


@pytest.mark.parametrize("dialect", [claude_code, codex])
def test_a_denied_call_names_its_reason_and_a_changed_one_its_arguments(dialect: Dialect) -> None:
    denied = _told(dialect.render_reply(CALL, Block("no")))["hookSpecificOutput"]
    changed = _told(dialect.render_reply(CALL, Replace({"command": "pwd"})))["hookSpecificOutput"]
    assert (denied["permissionDecision"], denied["permissionDecisionReason"]) == ("deny", "no")
    assert (changed["permissionDecision"], changed["updatedInput"]) == ("allow", {"command": "pwd"})


def test_codex_is_never_asked_and_never_given_an_empty_reason() -> None:
    for ruling in (Block(""), Block("x"), Replace({})):
        said = codex.render_reply(CALL, ruling).stdout
        assert b'"ask"' not in said
        assert b'Reason": ""' not in said


def test_claude_code_shows_a_withheld_output_in_the_shells_own_form() -> None:
    shown = _told(claude_code.render_reply(OUTPUT, Block("secret")))["hookSpecificOutput"]["updatedToolOutput"]
    assert shown["stdout"] == "withheld by the Guardian: secret"
    assert shown["stderr"] == ""


def test_claude_code_shows_a_changed_output_in_the_tools_own_form() -> None:
    event = ToolFinished("c1", "Read", '{"file": "a"}', {"file": "a"})
    shown = _told(claude_code.render_reply(event, Replace('{"file": "b"}')))["hookSpecificOutput"]["updatedToolOutput"]
    assert shown == {"file": "b"}


def test_codex_shows_the_changed_output_in_the_place_of_what_was_put_out() -> None:
    assert _told(codex.render_reply(OUTPUT, Replace("clean"))) == {"decision": "block", "reason": "clean"}


def test_a_prompt_that_is_not_allowed_ends_the_hook_of_claude_code_with_two() -> None:
    reply = claude_code.render_reply(PromptSubmitted("hi"), Block("not today"))
    assert (reply.exit_code, reply.stderr) == (2, "not today")


@pytest.mark.parametrize(
    ("document", "event"),
    [
        ({"hook": "session.created", "session": "s1"}, SessionBegan()),
        ({"hook": "chat.message", "session": "s1", "text": "hi"}, PromptSubmitted("hi")),
        (
            {
                "hook": "tool.execute.before",
                "session": "s1",
                "call": "c1",
                "tool": "bash",
                "arguments": {"command": "ls"},
            },
            ToolRequested("c1", "bash", {"command": "ls"}),
        ),
        (
            {"hook": "tool.execute.after", "session": "s1", "call": "c1", "tool": "bash", "output": "x"},
            ToolFinished("c1", "bash", "x", "x"),
        ),
        ({"hook": "session.idle", "session": "s1"}, TurnStopped()),
    ],
    ids=str,
)
def test_the_plugin_of_opencode_is_understood(document: dict[str, object], event: object) -> None:
    assert opencode.read_report(document).event == event


def test_the_plugin_of_opencode_is_told_a_verdict() -> None:
    assert _told(opencode.render_reply(CALL, Proceed())) == {"verdict": "proceed"}
    assert _told(opencode.render_reply(CALL, Replace({"a": 1}))) == {"verdict": "replace", "value": {"a": 1}}
    assert _told(opencode.render_reply(CALL, Block("no"))) == {"verdict": "block", "reason": "no"}
