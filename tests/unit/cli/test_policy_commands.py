"""`turnkeeper policy`: what it prints and what the shell gets."""

import json
import sys
from pathlib import Path

import pytest

from turnkeeper.acs import build_request
from turnkeeper.cli import main

RULES = """
version: 1
name: house
default: allow
rules:
  - {id: three, hooks: [toolCallRequest], scope: turn, when: scope.tool_calls > 3, decision: deny, reasoning: Three.}
  - {id: shells, hooks: [toolCallRequest], tools: [shell], decision: allow}
  - {id: never, hooks: [turnStart], decision: deny, reasoning: No.}
"""
CASES = "tests:\n  - {name: one, facts: {hook: toolCallRequest, tool: shell}, expect: {decision: allow}}\n"
SESSION = "6b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"


def turnkeeper(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """The exit code of `turnkeeper policy WORDS`, run in this process."""
    monkeypatch.setattr(sys, "argv", ["turnkeeper", "policy", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code if isinstance(caught.value.code, int) else 0


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A policy in a folder."""
    (tmp_path / "house" / "tests").mkdir(parents=True)
    (tmp_path / "house" / "policy.yaml").write_text(RULES)
    (tmp_path / "house" / "tests" / "a.yaml").write_text(CASES)
    return tmp_path / "house"


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    """A tool call as it stands on the wire, unsigned."""
    document = build_request(
        method="steps/toolCallRequest",
        rpc_id=1,
        request_id="a6fd4784-6667-4306-aa90-bd218274ceb6",
        timestamp="2026-10-15T12:00:00Z",
        agent_id="agent",
        session_id=SESSION,
        payload={"tool": {"name": "shell"}, "arguments": {"command": {"value": "ls"}}},
    )
    file = tmp_path / "request.json"
    file.write_text(json.dumps(document))
    return file


def test_check_says_what_a_policy_is(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its version is the one that decisions cite."""
    assert turnkeeper(monkeypatch, "check", bundle, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["name"] == "house"
    assert shown["version"].startswith("sha256:")
    assert (shown["rules"], shown["tests"], shown["rules_in_cel"]) == (3, 1, [])


def test_check_names_the_place_of_what_is_wrong(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1, and nothing on standard output."""
    (bundle / "policy.yaml").write_text(RULES.replace("reasoning: No.", "reason: No."))
    assert turnkeeper(monkeypatch, "check", bundle) == 1
    assert "rules[2].reason" in capsys.readouterr().err


def test_test_passes_and_fails_with_the_policy_and_without_tests(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy without tests has not passed any."""
    assert turnkeeper(monkeypatch, "test", bundle) == 0
    assert capsys.readouterr().out == "house: 1 of 1 tests passed\n"
    (bundle / "policy.yaml").write_text(RULES.replace("> 3", ">= 0"))
    assert turnkeeper(monkeypatch, "test", bundle) == 1
    assert "tests/a.yaml: one: expected allow, got deny by three" in capsys.readouterr().out
    (bundle / "tests" / "a.yaml").unlink()
    assert turnkeeper(monkeypatch, "test", bundle) == 1


def test_eval_tells_the_decision_by_output_and_exit_code(
    bundle: Path, request_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """3 for DENY; the counts can be set to what they are in a session under way."""
    assert turnkeeper(monkeypatch, "eval", bundle, "--request", request_file) == 0
    assert capsys.readouterr().out.startswith("allow")
    facts = request_file.with_name("facts.json")
    facts.write_text('{"turn": {"tool_calls": 4}}')
    assert turnkeeper(monkeypatch, "eval", bundle, "--request", request_file, "--facts", facts, "--json") == 3
    shown = json.loads(capsys.readouterr().out)
    assert shown["decision"] == "deny"
    assert shown["policy_references"][0]["rule_id"] == "three"


def test_explain_names_every_rule_and_what_became_of_it(
    bundle: Path, request_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the policy, with the condition as it was asked."""
    assert turnkeeper(monkeypatch, "explain", bundle, "--request", request_file) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "three (deny): looked at: its condition is false"
    assert lines[1] == "    when turn.tool_calls > 3"
    assert lines[2] == "shells (allow): HOLDS"
    assert lines[3] == "never (deny): not looked at: it speaks about other hooks"
    assert lines[4:] == ["allow", "  by shells"]


@pytest.mark.parametrize("content", ["{}", "[]", '{"jsonrpc": "2.0"}'])
def test_what_is_no_request_is_used_wrongly(
    content: str, bundle: Path, request_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 for a file that cannot be used."""
    request_file.write_text(content)
    assert turnkeeper(monkeypatch, "eval", bundle, "--request", request_file) == 2


def test_a_policy_that_is_not_there_is_used_wrongly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """2 as well."""
    assert turnkeeper(monkeypatch, "check", tmp_path / "none") == 2
