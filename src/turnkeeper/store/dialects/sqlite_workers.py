"""Who works on a SQLite file: a lock file per worker beside it, which the kernel frees when the worker ends.

Answers for a worker's end being seen at once, `kill -9` included, and for two processes never being one worker. Must
never take somebody for dead whose lock it could not look at.
"""

import fcntl
import hashlib
import os
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from turnkeeper.turns.takeover import OwnerTaken

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


class WorkerFiles:
    """The lock files of one database's workers. Implements `turns.takeover.Liveness`."""

    def __init__(self, database: Path) -> None:
        # The same file under another name has the same workers.
        resolved = database.resolve()
        self._folder = resolved.with_name(f"{resolved.name}-workers")

    @contextmanager
    def hold(self, owner: str) -> Generator[None]:
        """This process is `owner` until the end of the block or of the process. Raises `OwnerTaken`."""
        self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        path = self._path(owner)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            if not _locked(descriptor):
                raise OwnerTaken(f"another process works as {owner}")
            yield
            # Nobody looks for a lock that was given back; while it is held the name is this process's.
            with suppress(FileNotFoundError):
                path.unlink()
        finally:
            os.close(descriptor)

    async def gone(self, owners: Collection[str]) -> frozenset[str]:
        """Those whose lock nobody holds. Whoever works has had its file before its first turn."""
        return frozenset(owner for owner in owners if not self._is_held(owner))

    def _is_held(self, owner: str) -> bool:
        try:
            descriptor = os.open(self._path(owner), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            return not _locked(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, owner: str) -> Path:
        return self._folder / f"{hashlib.sha256(owner.encode()).hexdigest()[:32]}.lock"


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
