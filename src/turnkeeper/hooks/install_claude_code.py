"""Our entries in a settings file of Claude Code (`hooks.EVENT[].hooks[]`, JSON)."""

import json
from pathlib import Path
from typing import Any, Final, cast

from turnkeeper.hooks.claude_code import EVENTS, RECORDED
from turnkeeper.hooks.install import MODULE, HookFileUnusable, Installation, Presence, read_text, write_text

CLIENT: Final = "claude-code"

_MATCHED: Final = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
_WITHHELD: Final = json.dumps(
    {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": "withheld: the hook failed"}}
)


class ClaudeCodeFile:
    """A `settings.json`: the user's, a project's or the managed one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def install(self, installation: Installation) -> None:
        """As `ClientFiles.install`."""
        document = self._load()
        _without_ours(document)
        hooks = document.setdefault("hooks", {})
        for event in EVENTS:
            hooks.setdefault(event, []).append(_entry(event, installation))
        self._save(document)

    def uninstall(self) -> bool:
        """As `ClientFiles.uninstall`."""
        document = self._load()
        if not _without_ours(document):
            return False
        self._save(document)
        return True

    def presence(self, installation: Installation) -> Presence:
        """As `ClientFiles.presence`."""
        document = self._load()
        hooks = document.get("hooks", {})
        if not document.get("disableAllHooks") and all(
            _entry(event, installation) in hooks.get(event, []) for event in EVENTS
        ):
            return "installed"
        return "changed" if _without_ours(document) else "absent"

    def _load(self) -> dict[str, Any]:
        text = read_text(self._path)
        try:
            document: object = json.loads(text) if text.strip() else {}
        except ValueError as error:
            raise HookFileUnusable(f"{self._path} is no JSON: {error}") from error
        if not isinstance(document, dict):
            raise HookFileUnusable(f"{self._path} holds no object")
        members = cast("dict[str, Any]", document)
        hooks = members.get("hooks", {})
        if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in cast("Any", hooks).values()):
            raise HookFileUnusable(f"{self._path}: 'hooks' is not an object of lists")
        return members

    def _save(self, document: dict[str, Any]) -> None:
        write_text(self._path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _entry(event: str, installation: Installation) -> dict[str, Any]:
    # A broken hook after a tool must not show the output: there a fixed answer takes the place of exit code 2.
    otherwise = f"printf %s '{_WITHHELD}'" if event == "PostToolUse" else "exit 2"
    if event in RECORDED:
        otherwise = "exit 0"
    hook = {
        "type": "command",
        "command": installation.command(CLIENT, otherwise=otherwise),
        "timeout": installation.settings.client_timeout_s,
    } | ({} if event in RECORDED else {"onFailure": "block"})
    matcher = {"matcher": "*"} if event in _MATCHED else {}
    return {**matcher, "hooks": [hook]}


def _without_ours(document: dict[str, Any]) -> bool:
    """Takes every entry of ours out; whether there was one."""
    found = False
    hooks: dict[str, list[Any]] = document.get("hooks", {})
    for event in list(hooks):
        kept = [group for group in hooks[event] if not _is_ours(group)]
        found = found or len(kept) != len(hooks[event])
        hooks[event] = kept
        if not kept:
            del hooks[event]
    if found and not hooks:
        del document["hooks"]
    return found


def _is_ours(group: object) -> bool:
    return f"-m {MODULE} {CLIENT} " in json.dumps(group)
