"""Our entries in the clients' files: put in, found, taken out, and nothing else of the user's touched."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from turnkeeper.hooks.install import ClientFiles, HookFileUnusable, Installation
from turnkeeper.hooks.install_claude_code import ClaudeCodeFile
from turnkeeper.hooks.install_codex import CodexFile
from turnkeeper.hooks.install_opencode import OpencodeFile
from turnkeeper.hooks.places import client_files
from turnkeeper.hooks.settings import HookSettings

INSTALLATION = Installation(Path("/etc/hook.toml"), HookSettings("http://g/acs", Path("/k"), Path("/s"), "a"))
OTHER = Installation(Path("/other.toml"), INSTALLATION.settings)

THEIRS = {
    "theme": "dark",
    "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "x"}]}]},
}
THEIR_TOML = """\
# mine
model = "m" # keep

[[hooks.PreToolUse]]
matcher = "x"
[[hooks.PreToolUse.hooks]]
type = "command"
command = "x"
"""


def _places(folder: Path) -> list[ClientFiles]:
    return [
        ClaudeCodeFile(folder / "settings.json"),
        CodexFile(folder / "config.toml", managed=False),
        CodexFile(folder / "requirements.toml", managed=True),
        OpencodeFile(folder / "plugin" / "turnkeeper.js"),
    ]


@pytest.mark.parametrize("which", range(4))
def test_hooks_are_absent_then_installed_then_changed_then_absent_again(tmp_path: Path, which: int) -> None:
    place = _places(tmp_path)[which]
    seen = [place.presence(INSTALLATION)]
    place.install(INSTALLATION)
    seen += [place.presence(INSTALLATION), place.presence(OTHER)]
    assert place.uninstall()
    seen.append(place.presence(INSTALLATION))
    assert seen == ["absent", "installed", "changed", "absent"]
    assert not place.uninstall()


@pytest.mark.parametrize("which", range(4))
def test_hooks_that_are_installed_twice_stand_there_once(tmp_path: Path, which: int) -> None:
    place = _places(tmp_path)[which]
    place.install(OTHER)
    place.install(INSTALLATION)
    once = place.path.read_text()
    place.install(INSTALLATION)
    assert place.path.read_text() == once
    assert "/other.toml" not in once


def test_what_else_stands_in_the_file_of_claude_code_stays(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(THEIRS))
    ClaudeCodeFile(path).install(INSTALLATION)
    assert THEIRS["hooks"]["PreToolUse"][0] in json.loads(path.read_text())["hooks"]["PreToolUse"]  # pyright: ignore[reportIndexIssue, reportArgumentType, reportUnknownMemberType]
    ClaudeCodeFile(path).uninstall()
    assert json.loads(path.read_text()) == THEIRS


def test_what_else_stands_in_the_file_of_codex_stays_with_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(THEIR_TOML)
    place = CodexFile(path, managed=False)
    place.install(INSTALLATION)
    assert len(tomllib.loads(path.read_text())["hooks"]["PreToolUse"]) == 2
    place.uninstall()
    assert tomllib.loads(path.read_text()) == tomllib.loads(THEIR_TOML)
    assert "# mine" in path.read_text()


def test_the_managed_file_of_codex_lets_only_managed_hooks_run(tmp_path: Path) -> None:
    place = CodexFile(tmp_path / "requirements.toml", managed=True)
    place.install(INSTALLATION)
    document = tomllib.loads(place.path.read_text())
    assert document["allow_managed_hooks_only"] is True
    assert document["features"]["hooks"] is True
    place.path.write_text(place.path.read_text().replace("only = true", "only = false"))
    assert place.presence(INSTALLATION) == "changed"


def test_hooks_that_were_switched_off_do_not_count_as_installed(tmp_path: Path) -> None:
    place = ClaudeCodeFile(tmp_path / "settings.json")
    place.install(INSTALLATION)
    place.path.write_text(json.dumps(json.loads(place.path.read_text()) | {"disableAllHooks": True}))
    assert place.presence(INSTALLATION) == "changed"


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": 1}}'])
def test_a_file_that_is_not_understood_is_left_as_it_was(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(HookFileUnusable, match=r"settings\.json"):
        ClaudeCodeFile(path).install(INSTALLATION)
    assert path.read_text() == text


def test_a_plugin_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "turnkeeper.js"
    path.write_text("export const Mine = 1\n")
    with pytest.raises(HookFileUnusable, match="somebody else"):
        OpencodeFile(path).install(INSTALLATION)
    assert path.read_text() == "export const Mine = 1\n"


def test_every_entry_of_claude_code_blocks_where_its_hook_fails(tmp_path: Path) -> None:
    place = ClaudeCodeFile(tmp_path / "settings.json")
    place.install(INSTALLATION)
    for event, groups in json.loads(place.path.read_text())["hooks"].items():
        (hook,) = [hook for entry in groups for hook in entry["hooks"]]
        # To block a stop would keep the client going for as long as the hook fails.
        recorded = event in {"SessionStart", "Stop", "SessionEnd"}
        assert hook.get("onFailure") == (None if recorded else "block"), event
        assert hook["command"].endswith("|| exit 0") == recorded, event
        assert hook["timeout"] == INSTALLATION.settings.client_timeout_s


def test_the_shells_line_ends_in_two_whatever_ends_the_hook() -> None:
    for ending in ("exit 1", "exit 7", "kill -9 $$"):
        line = INSTALLATION.command("codex").replace(" -I -m turnkeeper.hooks codex /etc/hook.toml", f" -c '{ending}'")
        line = line.replace(line.split()[3], "/bin/sh")
        assert subprocess.run(line, shell=True, check=False, stdin=subprocess.DEVNULL).returncode == 2


def test_a_projects_hooks_for_codex_are_refused_since_it_would_skip_them() -> None:
    with pytest.raises(HookFileUnusable, match="silently"):
        client_files("codex", Path("/home/u"), project=Path("/p"))
