"""`ContentStore` in a folder of the data dir: one file per content, named by its SHA-256 and by nothing else.

Answers for a file that is whole, on the disk and readable by its owner alone before its name appears. A name and its
removal are decided under one lock of the file system, so that two processes on a data dir cannot remove what the
other one has just put. Must never use a path that anybody sent.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from turnkeeper.clock import Clock, epoch_ms
from turnkeeper.turns.contents import Content, ContentMissing, ContentStore, bounded
from turnkeeper.turns.ports import StoreUnavailable

PRIVATE_DIR: Final = 0o700
PIECE_BYTES: Final = 256 * 1024
BUFFER_BYTES: Final = 1024 * 1024
"""How much is gathered before a thread writes it."""

T = TypeVar("T")

_NAME: Final = re.compile(r"[0-9a-f]{64}\Z")


class FolderContents(ContentStore):
    """The contents of one data dir. Made where it is missing, at the first put."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock

    async def put(self, pieces: AsyncIterable[bytes], *, max_bytes: int) -> Content:
        incoming = await _guarded(lambda: _Incoming(self._root))
        try:
            async for piece in bounded(pieces, max_bytes):
                incoming.take(piece)
                if incoming.is_full:
                    await _guarded(incoming.write)
            now_ms = epoch_ms(self._clock.now())
            return await _guarded(lambda: incoming.keep(now_ms))
        finally:
            incoming.discard()

    async def read(self, sha256: str) -> AsyncIterator[bytes]:
        descriptor = await _guarded(lambda: _open(self._path(sha256)))
        try:
            while piece := await _guarded(lambda: os.read(descriptor, PIECE_BYTES)):
                yield piece
        finally:
            os.close(descriptor)

    async def older_than(self, before: datetime, *, after: str, limit: int) -> Sequence[str]:
        return await _guarded(lambda: list(islice(_old_names(self._root, epoch_ms(before), after), limit)))

    async def remove(self, sha256: str, *, before: datetime) -> bool:
        return await _guarded(lambda: self._remove(sha256, epoch_ms(before)))

    async def tidy(self, before: datetime) -> None:
        await _guarded(lambda: _tidy(self._root, epoch_ms(before)))

    def _path(self, sha256: str) -> Path:
        if _NAME.match(sha256) is None:
            raise ContentMissing("this is not the name of a content")
        return _place(self._root, sha256)

    def _remove(self, sha256: str, before_ms: int) -> bool:
        path = self._path(sha256)
        with _locked(self._root), contextlib.suppress(FileNotFoundError):
            if _time_ms(path.stat()) < before_ms:
                path.unlink()
                return True
        return False


class _Incoming:
    """A content on its way: a file without a name that anybody knows."""

    def __init__(self, root: Path) -> None:
        folder = root / "incoming"
        folder.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
        self._root = root
        # Made with mode 0600, like all of them.
        self._descriptor, name = tempfile.mkstemp(dir=folder)
        self._path: Path | None = Path(name)
        self._hash = hashlib.sha256()
        self._buffer = bytearray()
        self._size = 0

    @property
    def is_full(self) -> bool:
        return len(self._buffer) >= BUFFER_BYTES

    def take(self, piece: bytes) -> None:
        self._buffer += piece
        self._size += len(piece)

    def write(self) -> None:
        self._hash.update(self._buffer)
        view = memoryview(bytes(self._buffer))
        self._buffer.clear()
        while view:
            view = view[os.write(self._descriptor, view) :]

    def keep(self, now_ms: int) -> Content:
        self.write()
        os.fsync(self._descriptor)
        made = Content(self._hash.hexdigest(), self._size)
        place = _place(self._root, made.sha256)
        place.parent.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        assert self._path is not None  # noqa: S101 - it is kept or discarded once
        with _locked(self._root):
            os.utime(self._path, ns=(now_ms * 1_000_000, now_ms * 1_000_000))
            os.replace(self._path, place)
            self._path = None
            _sync(place.parent)
            _sync(self._root)
        return made

    def discard(self) -> None:
        os.close(self._descriptor)
        if self._path is not None:
            self._path.unlink(missing_ok=True)


async def _guarded(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise StoreUnavailable(f"the content folder cannot be used: {error.strerror}") from error


@contextmanager
def _locked(root: Path) -> Generator[None]:
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _place(root: Path, sha256: str) -> Path:
    return root / sha256[:2] / sha256


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise ContentMissing("the content is not there any more") from error


def _old_names(root: Path, before_ms: int, after: str) -> Generator[str]:
    for folder in sorted(root.glob("[0-9a-f][0-9a-f]")):
        if folder.name < after[:2]:
            continue
        for name in sorted(os.listdir(folder)):
            if name > after and _NAME.match(name) and _time_ms((folder / name).stat()) < before_ms:
                yield name


def _tidy(root: Path, before_ms: int) -> None:
    for path in (root / "incoming").glob("*"):
        # Whoever puts it may be about to rename it.
        with contextlib.suppress(FileNotFoundError):
            if _time_ms(path.stat()) < before_ms:
                path.unlink()


def _time_ms(found: os.stat_result) -> int:
    return found.st_mtime_ns // 1_000_000


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
