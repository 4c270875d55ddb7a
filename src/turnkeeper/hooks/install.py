"""Where each client looks for its hooks, and what stands there for ours to be run.

Answers for entries that fail closed by the client's own rules, for touching nothing else in a file that is the user's,
and for telling installed, changed and absent apart. Each client's part is in a module of its own.
"""

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from turnkeeper.errors import TurnkeeperError
from turnkeeper.hooks.settings import MARGIN_S, HookSettings

Presence: TypeAlias = Literal["installed", "changed", "absent"]

MODULE: Final = "turnkeeper.hooks"
_KILL_AFTER_S: Final = 2


class HookFileUnusable(TurnkeeperError):
    """A client's settings file cannot be read, written or understood; it was left as it was."""

    code = "hook_file_unusable"


@dataclass(frozen=True, slots=True)
class Installation:
    """What the entries need: the settings file that they name, and its settings."""

    settings_file: Path
    settings: HookSettings

    def argv(self, client: str) -> list[str]:
        """The hook's own process. `-I` keeps the folder the agent works in out of Python's path."""
        return [sys.executable, "-I", "-m", MODULE, client, str(self.settings_file)]

    def command(self, client: str, *, otherwise: str = "exit 2") -> str:
        """The shell's line. Whatever ends the process but its own word, a kill included, ends in `otherwise`."""
        limit_s = self.settings.deadline_s + MARGIN_S // 2
        bounded = ["timeout", f"--kill-after={_KILL_AFTER_S}", str(limit_s), *self.argv(client)]
        return f"{shlex.join(bounded)} || {otherwise}"


class ClientFiles(Protocol):
    """One client's file. Every method raises `HookFileUnusable`."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    def install(self, installation: Installation) -> None:
        """Puts the entries in, in place of older ones of ours."""
        ...

    def uninstall(self) -> bool:
        """Takes them out; whether there were any."""
        ...

    def presence(self, installation: Installation) -> Presence:
        """Whether all of them stand there as they would be put in."""
        ...


def read_text(path: Path) -> str:
    """A client's file; empty where there is none. Raises `HookFileUnusable`."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise HookFileUnusable(f"{path} cannot be read: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Replaces a client's file in one step, keeping its mode. Raises `HookFileUnusable`."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o644
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
            os.fchmod(stream.fileno(), mode)
        Path(name).replace(target)
    except OSError as error:
        raise HookFileUnusable(f"{path} cannot be written: {error.strerror}") from error
