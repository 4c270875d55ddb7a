"""Archives as files in a folder, readable by their owner alone.

Answers for a file that is on the disk, whole, before its name is (`guardian.retention.Archives`). Must never follow a
name out of its folder.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from turnkeeper.guardian.ports import MAX_ARCHIVE_LINE_BYTES, StoreFailed

FOLDER_MODE: Final = 0o700


class FolderArchives:
    """The archives in one folder, which is made when it is first written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, lines: Iterable[bytes]) -> str:
        """Writes an archive, in place of one that a crash left behind. Raises `StoreFailed`."""
        try:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._folder, prefix=".unfinished.")
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    digest = _written(stream, lines)
                Path(temporary).replace(self._folder / Path(name).name)
            except BaseException:
                with suppress(OSError):
                    Path(temporary).unlink()
                raise
            _sync_folder(self._folder)
        except OSError as error:
            raise StoreFailed(f"the archive {name} cannot be written to {self._folder}: {error.strerror}") from error
        return digest

    def lines(self, name: str) -> Iterator[bytes] | None:
        """The lines of an archive; None where it is not there. Raises `OSError` while it is read."""
        path = self._folder / Path(name).name
        return lines_of(path) if path.is_file() else None


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, none longer than an archive's may be and one byte. Raises `OSError`."""
    with path.open("rb") as stream:
        yield from iter(lambda: stream.readline(MAX_ARCHIVE_LINE_BYTES + 1), b"")


def _written(stream: IO[bytes], lines: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        stream.write(line)
        digest.update(line)
    stream.flush()
    os.fsync(stream.fileno())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
