"""Hooks of coding agents against a real Guardian: what they let through, and that everything else ends in a block."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.hooked import POLICY, Hooks
from tests.acceptance.server import Json, run_command


@pytest.fixture(scope="module")
def guardian(tmp_path_factory: pytest.TempPathFactory) -> Generator[GuardianAlone]:
    with GuardianAlone(tmp_path_factory.mktemp("guardian"), policy=POLICY) as alone:
        yield alone


@pytest.fixture
def hooks(guardian: GuardianAlone, tmp_path: Path) -> Hooks:
    return Hooks.under(guardian, tmp_path)


def _exported(hooks: Hooks) -> list[Json]:
    """The session's steps, as the Guardian recorded them."""
    audit = hooks.installation.settings.state_dir / "claude-code" / "audit.jsonl"
    return hooks.guardian.exported(json.loads(audit.read_text().splitlines()[-1])["session_id"])


def _methods(hooks: Hooks) -> list[str]:
    return [line["request"]["method"].removeprefix("steps/") for line in _exported(hooks)]


def test_a_session_of_hooks_leaves_a_whole_session_in_the_chain(hooks: Hooks) -> None:
    hooks.run("SessionStart")
    hooks.run("UserPromptSubmit", prompt="hello")
    assert hooks.before("ls").out == ""
    assert hooks.after("a b").out == ""
    hooks.run("Stop")
    hooks.run("SessionEnd")
    steps = ["sessionStart", "turnStart", "userMessage", "toolCallRequest", "toolCallResult", "turnEnd", "sessionEnd"]
    assert _methods(hooks)[-len(steps) :] == steps
    assert {row["severity"] for row in hooks.guardian.verified()["findings"]} <= {"notice"}


def test_a_denied_call_is_denied_in_the_guardians_words(hooks: Hooks) -> None:
    told = hooks.before("echo forbidden").specific
    assert (told["permissionDecision"], told["permissionDecisionReason"]) == ("deny", "That is forbidden here.")


def test_a_changed_call_has_the_guardians_arguments(hooks: Hooks) -> None:
    assert hooks.before("echo changeme").specific["updatedInput"] == {"command": "touch changed"}


def test_a_changed_output_takes_the_place_of_the_one_that_was_put_out(hooks: Hooks) -> None:
    hooks.before("cat x")
    assert hooks.after("the secretword").specific["updatedToolOutput"]["stdout"] == "[REDACTED]"


def test_a_denied_prompt_is_not_read(hooks: Hooks) -> None:
    ended = hooks.run("UserPromptSubmit", prompt="a badprompt")
    assert (ended.code, ended.err) == (2, "Such prompts are not answered.")


def test_a_call_is_held_until_a_person_approves_it(hooks: Hooks) -> None:
    held: list[str] = []
    thread = threading.Thread(target=lambda: held.append(hooks.before("echo askme").out))
    thread.start()
    try:
        hooks.approve()
    finally:
        thread.join(timeout=100)
    assert held == [""]


def test_a_call_that_was_blocked_while_a_person_thinks_passes_when_it_is_tried_again(
    guardian: GuardianAlone, tmp_path: Path
) -> None:
    hooks = Hooks.under(guardian, tmp_path, ask_wait_s=1)
    first = hooks.before("echo askme later", "c1").specific
    assert "Try the same call again" in first["permissionDecisionReason"]
    hooks.approve()
    assert hooks.before("echo askme later", "c2").out == ""


def test_hooks_of_one_session_that_run_at_once_are_one_session(hooks: Hooks) -> None:
    hooks.run("UserPromptSubmit", prompt="hello")
    threads = [threading.Thread(target=hooks.before, args=("ls", f"c{n}")) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    hooks.run("Stop")
    assert _methods(hooks)[-5:] == ["userMessage", *["toolCallRequest"] * 3, "turnEnd"]
    end = _exported(hooks)[-1]["request"]["params"]["payload"]
    assert (end["step_count"], end["tool_call_count"]) == (4, 3)


@pytest.mark.parametrize(
    ("client", "report"),
    [
        *(("claude-code", report) for report in (b"", b"[]", b'{"a":1,"a":2}', b"\xff", b'{"session_id":"s"}')),
        *((client, b"{") for client in ("codex", "opencode", "emacs")),
    ],
    ids=repr,
)
def test_a_report_that_is_none_ends_in_a_block(hooks: Hooks, client: str, report: bytes) -> None:
    ended = hooks.ran(client, report)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("turnkeeper hook: ")


@pytest.mark.parametrize("missing", ["hook.toml", "secret", "state"])
def test_settings_that_cannot_be_used_end_in_a_block(hooks: Hooks, tmp_path: Path, missing: str) -> None:
    settings = tmp_path / "hook.toml"
    if missing == "hook.toml":
        settings.unlink()
    elif missing == "secret":
        settings.write_text(settings.read_text().replace(str(hooks.guardian.secret), str(tmp_path / "none")))
    else:
        (tmp_path / "state").write_text("a file where the folder would be")
    assert hooks.before("ls").code == 2


def test_a_guardian_that_is_gone_is_a_block_for_every_hook_that_can_block(tmp_path: Path) -> None:
    with GuardianAlone(tmp_path, policy=POLICY) as alone:
        hooks = Hooks.under(alone, tmp_path)
        hooks.run("UserPromptSubmit", prompt="hello")
        hooks.before("ls")
        alone.kill()
        assert hooks.before("ls").specific["permissionDecision"] == "deny"
        assert hooks.after("a b").specific["updatedToolOutput"]["stdout"].startswith("withheld by the Guardian: ")
        assert hooks.run("UserPromptSubmit", prompt="hello").code == 2
        alone.start()
        assert hooks.before("ls").out == ""


def test_a_hook_that_is_killed_is_a_block(hooks: Hooks) -> None:
    child = subprocess.Popen(
        hooks.line("codex"), shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    # It reads until the end of its input, which does not come.
    os.kill(_interpreter_below(child.pid), signal.SIGKILL)
    said, _ = child.communicate(timeout=60)
    assert (child.returncode, said) == (2, b"")


def test_the_command_installs_tests_shows_and_removes_hooks(guardian: GuardianAlone, tmp_path: Path) -> None:
    def hook(*words: str) -> subprocess.CompletedProcess[str]:
        return run_command("hook", *words, home=tmp_path)

    options = ["--guardian", guardian.url, "--secret-file", str(guardian.secret)]
    assert hook("install", "claude-code", *options).returncode == 0
    shown = json.loads(hook("status", "claude-code", "--json").stdout)
    assert [(row["hooks"], row["guardian"]) for row in shown] == [("installed", "answers")]
    settings = tmp_path / ".config" / "turnkeeper" / "hook.toml"
    settings.write_text(settings.read_text().replace(guardian.url, "http://127.0.0.1:9/acs"))
    broken = hook("status", "claude-code")
    assert broken.returncode == 1
    assert hook("uninstall", "claude-code").returncode == 0
    assert json.loads((tmp_path / ".claude" / "settings.json").read_text()) == {}


def test_hooks_that_would_block_everything_are_not_installed(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("s" * 32)
    options = ["--guardian", "http://127.0.0.1:9/acs", "--secret-file", str(secret)]
    refused = run_command("hook", "install", "claude-code", *options, home=tmp_path)
    assert refused.returncode == 2
    assert "every call would be blocked" in refused.stderr
    assert not (tmp_path / ".claude").exists()


def _interpreter_below(shell_pid: int) -> int:
    """The hook's interpreter below the shell and `timeout`, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        below = _children(shell_pid)
        while below and (further := _children(below[0])):
            below = further
        if below and b"timeout" not in Path(f"/proc/{below[0]}/cmdline").read_bytes().split(b"\0")[0]:
            return below[0]
    raise AssertionError("the hook did not start")


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
