"""One Guardian per file: a lock beside guardian.db, held for as long as its store is open.

The lock is the kernel's and ends with the process that holds it, however that ends. It lies in a file of its own,
because closing any descriptor of the database would end the locks that SQLite itself holds on it.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from turnkeeper.store.guardian_refusals import StoreInUse

LOCK_SUFFIX: Final = ".lock"
PRIVATE_FILE: Final = 0o600


class FileHold:
    """A hold on one file's place."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + LOCK_SUFFIX)
        self._held: int | None = None

    def take(self) -> None:
        """Takes the hold. Raises `StoreInUse` where somebody has it, `OSError`."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreInUse(
                f"another Guardian works on this file: {self._path} is held",
                hint="One Guardian has a file to itself. Stop the other one, or give this one a file of its own.",
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        self._held = descriptor

    def let_go(self) -> None:
        """Gives the hold back; idempotent. The file stays: to remove it could take it from under the next holder."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)
