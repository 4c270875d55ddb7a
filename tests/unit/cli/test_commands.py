"""Commands that start nothing: what they print and what the shell gets."""

import json
import sys
from pathlib import Path

import pytest

from turnkeeper import __version__
from turnkeeper.cli import COMMANDS, build_app, main

TURN_END = {"turn_id": "t", "outcome": "completed", "step_count": 1, "tool_call_count": 0}


def turnkeeper(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """The exit code of `turnkeeper WORDS`, run in this process."""
    monkeypatch.setattr(sys, "argv", ["turnkeeper", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code if isinstance(caught.value.code, int) else 0


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without settings, and a home without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is installed."""
    assert turnkeeper(monkeypatch, "version") == 0
    assert capsys.readouterr().out == f"turnkeeper {__version__}\n"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in {"hook", "runners"}])
def test_every_command_takes_a_settings_file_and_a_data_dir(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody has to remember which ones do; `hook` and `runners` are for machines that have no data dir."""
    below = {"keys": "create", "config": "show", "policy": "check", "events": "tail", "usage": "sum", "admin": "queue"}
    below |= dict.fromkeys(
        ("agents", "artifacts", "files", "approvals", "budgets", "prices", "secrets", "sessions", "turns", "webhooks"),
        "list",
    )
    below["skills"] = "list"
    words = [name, below[name]] if name in below else [name]
    assert turnkeeper(monkeypatch, *words, "--help") == 0
    shown = capsys.readouterr().out
    assert "--config" in shown
    assert "--data-dir" in shown


def test_the_help_lists_every_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with a line saying what it does."""
    assert turnkeeper(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name} " not in shown] == []
    assert build_app("version").registered_commands[0].name is None


def test_an_unknown_command_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """2, as shells expect."""
    assert turnkeeper(monkeypatch, "serv") == 2


def test_config_show_names_the_origin_of_every_value(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Default, file, variable, flag."""
    (elsewhere / "turnkeeper.toml").write_text(
        '[server]\nport = 9\n[providers.stub]\nkind = "openai"\nbase_url = "http://h/v1"\napi_key_env = "STUB_KEY"\n'
    )
    monkeypatch.setenv("STUB_KEY", "hunter2")
    monkeypatch.setenv("TURNKEEPER_WORKER__SLOTS", "3")
    assert turnkeeper(monkeypatch, "config", "show", "--data-dir", "d") == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()}
    assert lines["server.port"] == "9 file turnkeeper.toml"
    assert lines["worker.slots"] == "3 env TURNKEEPER_WORKER__SLOTS"
    assert lines["data_dir"] == f"{elsewhere / 'd'} flag --data-dir"
    assert lines["server.host"] == "127.0.0.1 default"
    assert lines["providers.stub.api_key"] == "******** env STUB_KEY"


def test_config_show_as_json_has_the_same_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For programs."""
    assert turnkeeper(monkeypatch, "config", "show", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["server.port"] == {"value": 8080, "origin": "default"}
    assert shown["store.url"]["value"] in (None, "unset")


def test_wrong_settings_are_a_usage_error_that_names_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error; standard output stays empty."""
    monkeypatch.setenv("TURNKEEPER_SERVER__PROT", "1")
    assert turnkeeper(monkeypatch, "config", "show") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "did you mean server.port?" in shown.err


def test_a_valid_founding_document_is_said_to_be_one(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever wrote it."""
    (elsewhere / "d.json").write_text(json.dumps(TURN_END))
    assert turnkeeper(monkeypatch, "validate", "d.json") == 0
    assert capsys.readouterr().out == "d.json: a valid turnEnd\n"


def test_an_invalid_founding_document_is_named_with_the_place_and_the_rule(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1; as JSON for programs too."""
    (elsewhere / "d.json").write_text(json.dumps(TURN_END | {"outcome": "won", "steps": 1}))
    assert turnkeeper(monkeypatch, "validate", "d.json") == 1
    assert "d.json: /outcome: " in capsys.readouterr().out
    assert turnkeeper(monkeypatch, "validate", "d.json", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["kind"], report["valid"]) == ("turnEnd", False)
    assert "/outcome" in {finding["pointer"] for finding in report["findings"]}


@pytest.mark.parametrize("body", ["{", '{"a": 1, "a": 2}', "[]", '{"a": NaN}'])
def test_what_is_no_founding_document_fails_with_a_sentence(
    body: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, whatever the file holds."""
    (elsewhere / "d.json").write_text(body)
    assert turnkeeper(monkeypatch, "validate", "d.json") == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_a_missing_file_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told from a bad document."""
    assert turnkeeper(monkeypatch, "validate", "nowhere.json") == 2
