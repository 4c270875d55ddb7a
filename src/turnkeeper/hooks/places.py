"""Which file each client reads its hooks from, and where ours keep what they need by default."""

from pathlib import Path
from typing import Final

from turnkeeper.hooks.install import ClientFiles, HookFileUnusable
from turnkeeper.hooks.install_claude_code import ClaudeCodeFile
from turnkeeper.hooks.install_codex import MANAGED_FILE, CodexFile
from turnkeeper.hooks.install_opencode import OpencodeFile

CLIENTS: Final = ("claude-code", "codex", "opencode")


def default_settings_file(home: Path) -> Path:
    """Where the hooks' own settings are, for one user."""
    return home / ".config" / "turnkeeper" / "hook.toml"


def default_state_dir(home: Path) -> Path:
    """Where the hooks keep their sessions, for one user."""
    return home / ".local" / "state" / "turnkeeper" / "hooks"


def client_files(client: str, home: Path, *, project: Path | None = None, file: Path | None = None) -> ClientFiles:
    """The file of a client: the one that was named, a project's, or the user's; for Codex the managed one.

    Raises `HookFileUnusable` for a client or a place that there is not.
    """
    match client:
        case "claude-code":
            return ClaudeCodeFile(file or (project or home) / ".claude" / "settings.json")
        case "codex" if project is None:
            return CodexFile(file or MANAGED_FILE, managed=file is None or file.name == MANAGED_FILE.name)
        case "codex":
            raise HookFileUnusable("Codex skips a project's hooks silently unless each user trusts them; leave it out")
        case "opencode":
            folder = project / ".opencode" if project is not None else home / ".config" / "opencode"
            return OpencodeFile(file or folder / "plugin" / "turnkeeper.js")
        case _:
            raise HookFileUnusable(f"no client {client!r} is known; known are {', '.join(CLIENTS)}")
