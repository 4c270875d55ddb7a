"""The folder in which a tool box finds the skills that were loaded, and nothing else (contract 2.13).

Answers for files that appear whole and only once their skill was let through, under names that were looked at when the
archive was read. The box has the folder read-only; where there is no box, the files' modes are all that protects them.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from turnkeeper import trees
from turnkeeper.errors import TurnkeeperError

FOLDER_MODE: Final = 0o755
FILE_MODE: Final = 0o444


class SkillsUnusable(TurnkeeperError):
    """The folder of a session's skills cannot be made or written."""

    code = "skills_unusable"


class SkillFolder:
    """The folder of one session, whose turn alone is at work in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self) -> None:
        """Makes it, empty. Raises `SkillsUnusable`."""
        await self._done(self._make)

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        """Puts a skill's files there, in the place of what was there. Raises `SkillsUnusable`."""
        await self._done(lambda: self._put(name, files))

    async def close(self) -> None:
        """Removes it. Raises `SkillsUnusable`."""
        await self._done(lambda: trees.remove(self.path))

    def _make(self) -> None:
        self.path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        trees.remove(self.path)
        self.path.mkdir(mode=FOLDER_MODE)
        self.path.chmod(FOLDER_MODE)

    def _put(self, name: str, files: Mapping[str, bytes]) -> None:
        made = self.path / f".{secrets.token_hex(8)}"
        for path, content in files.items():
            _write(made, path, content)
        trees.remove(self.path / name)
        made.rename(self.path / name)

    async def _done(self, work: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(work)
        except OSError as error:
            raise SkillsUnusable(f"the folder of the session's skills cannot be used: {error.strerror}") from error


def _write(root: Path, path: str, content: bytes) -> None:
    folder = root
    # Whatever the umask is, the box's user is another one.
    for part in ("", *path.split("/")[:-1]):
        folder /= part
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        folder.chmod(FOLDER_MODE)
    target = root / path
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), FILE_MODE)
