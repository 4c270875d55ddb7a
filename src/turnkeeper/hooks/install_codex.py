"""Our entries in a file of Codex: `/etc/codex/requirements.toml`, which binds every user, or a `config.toml`.

Answers for saying what the second is worth: Codex silently skips hooks of a `config.toml` until the user has trusted
them, so only the managed file governs a headless run.
"""

import json
from pathlib import Path
from typing import Any, Final, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.toml_document import TOMLDocument

from turnkeeper.hooks.codex import EVENTS, RECORDED
from turnkeeper.hooks.install import MODULE, HookFileUnusable, Installation, Presence, read_text, write_text

CLIENT: Final = "codex"
MANAGED_FILE: Final = Path("/etc/codex/requirements.toml")

_MATCHED: Final = ("PreToolUse", "PostToolUse")
_WITHHELD: Final = json.dumps({"decision": "block", "reason": "withheld: the hook failed"})


class CodexFile:
    """A `config.toml`, or with `managed` a `requirements.toml`."""

    def __init__(self, path: Path, *, managed: bool) -> None:
        self._path = path
        self._managed = managed

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def install(self, installation: Installation) -> None:
        """As `ClientFiles.install`."""
        document = self._load()
        self._without_ours(document)
        hooks: Any = document.setdefault("hooks", tomlkit.table(is_super_table=True))
        for event in EVENTS:
            hooks.setdefault(event, tomlkit.aot()).append(tomlkit.item(_entry(event, installation)))
        if self._managed:
            hooks["managed_dir"] = str(installation.settings_file.parent)
            document["allow_managed_hooks_only"] = True
            features: Any = document.setdefault("features", tomlkit.table())
            features["hooks"] = True
        self._save(document)

    def uninstall(self) -> bool:
        """As `ClientFiles.uninstall`."""
        document = self._load()
        if not self._without_ours(document):
            return False
        self._save(document)
        return True

    def presence(self, installation: Installation) -> Presence:
        """As `ClientFiles.presence`."""
        document = self._load()
        plain: dict[str, Any] = document.unwrap()
        hooks = plain.get("hooks", {})
        if self._enabled(plain) and all(_entry(event, installation) in hooks.get(event, []) for event in EVENTS):
            return "installed"
        return "changed" if self._without_ours(document) else "absent"

    def _enabled(self, plain: dict[str, Any]) -> bool:
        wanted = plain.get("features", {}).get("hooks", not self._managed)
        return bool(wanted) and (not self._managed or plain.get("allow_managed_hooks_only") is True)

    def _load(self) -> TOMLDocument:
        try:
            document = tomlkit.parse(read_text(self._path))
        except TOMLKitError as error:
            raise HookFileUnusable(f"{self._path} is no TOML: {error}") from error
        hooks = document.unwrap().get("hooks", {})
        if not isinstance(hooks, dict):
            raise HookFileUnusable(f"{self._path}: 'hooks' is no table")
        return document

    def _save(self, document: TOMLDocument) -> None:
        write_text(self._path, tomlkit.dumps(document))

    def _without_ours(self, document: TOMLDocument) -> bool:
        """Takes every entry of ours out; whether there was one."""
        found = False
        members = cast("dict[str, Any]", document)
        hooks: dict[str, Any] = members.get("hooks", {})
        for event in list(hooks):
            if not isinstance(hooks[event], list):
                continue
            groups = cast("list[Any]", hooks[event])
            kept = [group for group in groups if not _is_ours(group)]
            found = found or len(kept) != len(groups)
            if len(kept) != len(groups):
                hooks[event] = kept
            if not kept:
                del hooks[event]
        if found and self._managed:
            hooks.pop("managed_dir", None)
            members.pop("allow_managed_hooks_only", None)
        return found


def _entry(event: str, installation: Installation) -> dict[str, Any]:
    # A broken hook after a tool must not show the output: there a fixed answer takes the place of exit code 2.
    otherwise = f"printf %s '{_WITHHELD}'" if event == "PostToolUse" else "exit 2"
    if event in RECORDED:
        otherwise = "exit 0"
    hook = {
        "type": "command",
        "command": installation.command(CLIENT, otherwise=otherwise),
        "timeout": installation.settings.client_timeout_s,
    }
    matcher = {"matcher": ".*"} if event in _MATCHED else {}
    return {**matcher, "hooks": [hook]}


def _is_ours(group: object) -> bool:
    return f"-m {MODULE} {CLIENT} " in json.dumps(group, default=str)
