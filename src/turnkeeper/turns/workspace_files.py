"""Files on their way into a workspace and out of it, on this side of the wall (contract 2.3 and 2.6).

The tree belongs to whoever ran in the box: every name in it may be a link, a pipe or somebody else's file. Answers for
following none: each folder is opened from the one above it, without links, and what is not a regular file with one name
is not read. The root itself is ours, and may be a link of the operator's.
"""

import asyncio
import contextlib
import hashlib
import os
import secrets
import stat
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from turnkeeper import trees
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.contents import ContentMissing, ContentStore, ContentTooLarge
from turnkeeper.turns.turn_files import INPUT_FOLDER, OUTPUT_FOLDER, TurnFile

PIECE_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 16
MAX_ENTRIES: Final = 10_000
MAX_PATH_CHARACTERS: Final = 1_024

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_NOT_PLAIN: Final = "no regular files with one name"

T = TypeVar("T")


class _PassedOver(Exception):
    """Why something that was left is not taken, as what there may be several of."""


class WorkspaceUnusable(TurnkeeperError):
    """A file cannot be put into the workspace; what is there is in the way, or the disk is full."""

    code = "workspace_unusable"


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How much a turn may leave: files, bytes of each, bytes of all."""

    files: int
    file_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Output:
    """A file that was left, its bytes in the content store. `path` is relative to the workspace."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(slots=True)
class Collected:
    """What was left, and why how many other things were not taken."""

    outputs: list[Output] = field(default_factory=list[Output])
    skipped: Counter[str] = field(default_factory=Counter[str])


async def deliver(workspace: Path, files: Sequence[TurnFile], contents: ContentStore) -> None:
    """Puts a turn's files where it was told they are, in the place of whatever is there. Raises `WorkspaceUnusable`."""
    if not files:
        return
    folder = await _threaded(lambda: _open_inputs(workspace))
    try:
        for file in files:
            await _deliver_one(folder, file, contents)
    finally:
        os.close(folder)


async def collect(
    workspace: Path, contents: ContentStore, limits: OutputLimits, known: Callable[[str, str], bool]
) -> Collected:
    """Keeps what lies in the output folder, apart from what is `known` by path and SHA-256."""
    found, total = Collected(), 0
    for path in await asyncio.to_thread(lambda: _paths(workspace, found.skipped)):
        if len(found.outputs) >= limits.files:
            found.skipped["too many files"] += 1
            continue
        try:
            output = await _kept(workspace, path, contents, min(limits.file_bytes, limits.total_bytes - total), known)
        except _PassedOver as passed_over:
            found.skipped[str(passed_over)] += 1
        except OSError:
            found.skipped["unreadable files"] += 1
        else:
            found.outputs += [] if output is None else [output]
            total += 0 if output is None else output.size_bytes
    return found


async def _kept(
    workspace: Path, path: tuple[str, ...], contents: ContentStore, max_bytes: int, known: Callable[[str, str], bool]
) -> Output | None:
    """The output; None for one that is known already. Raises `_PassedOver`, `OSError`."""
    descriptor = await asyncio.to_thread(lambda: _open_output(workspace, path))
    try:
        shown = shown_path((OUTPUT_FOLDER, *path))
        if os.fstat(descriptor).st_size > max_bytes:
            raise _PassedOver("too large files")
        if known(shown, await asyncio.to_thread(lambda: _hash(descriptor))):
            return None
        content = await contents.put(_pieces(descriptor), max_bytes=max_bytes)
    except ContentTooLarge as error:
        raise _PassedOver("too large files") from error
    finally:
        os.close(descriptor)
    return Output(shown, content.size_bytes, content.sha256)


def shown_path(path: Sequence[str]) -> str:
    """A path as people see it: what is no text, or would not be seen, is replaced."""
    text = "/".join(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "\ufffd" for character in text)[:MAX_PATH_CHARACTERS]


async def _deliver_one(folder: int, file: TurnFile, contents: ContentStore) -> None:
    name = file.path.rpartition("/")[2]
    temporary = f".{secrets.token_hex(8)}"
    descriptor = await _threaded(lambda: os.open(temporary, _WRITE, 0o600, dir_fd=folder))
    try:
        await _copy(file, contents, descriptor)
        await _threaded(lambda: _publish(folder, descriptor, temporary, name))
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


async def _copy(file: TurnFile, contents: ContentStore, descriptor: int) -> None:
    digest = hashlib.sha256()
    async for piece in contents.read(file.sha256):
        digest.update(piece)
        await _threaded(_writer(descriptor, piece))
    if digest.hexdigest() != file.sha256:
        raise ContentMissing("the content is not what its name says")


def _publish(folder: int, descriptor: int, temporary: str, name: str) -> None:
    os.fchmod(descriptor, 0o444)
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rename(name, f"{name}.{temporary[1:]}", src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _open_inputs(workspace: Path) -> int:
    with _root(workspace) as root:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(INPUT_FOLDER, dir_fd=root, follow_symlinks=False).st_mode):
                os.unlink(INPUT_FOLDER, dir_fd=root)
        with contextlib.suppress(FileExistsError):
            os.mkdir(INPUT_FOLDER, 0o755, dir_fd=root)
        folder = os.open(INPUT_FOLDER, _FOLDER, dir_fd=root)
    os.fchmod(folder, 0o755)
    return folder


def _paths(workspace: Path, skipped: Counter[str]) -> list[tuple[str, ...]]:
    """The paths below the output folder, in order; none where it is no folder."""
    paths: list[tuple[str, ...]] = []
    try:
        walked = trees.walk(workspace / OUTPUT_FOLDER, max_entries=MAX_ENTRIES, max_depth=MAX_DEPTH)
        paths.extend((*found.parents, found.name) for found in walked if not found.is_folder)
    except trees.TreeTooLarge:
        skipped["folder trees beyond what is looked at"] += 1
    except OSError:
        return []
    return sorted(paths)


def _open_output(workspace: Path, path: tuple[str, ...]) -> int:
    """The file, reached without any link. Raises `_PassedOver` for what is no plain file."""
    try:
        descriptor = trees.open_beneath(workspace / OUTPUT_FOLDER, "/".join(path))
    except trees.NotInTree as error:
        raise _PassedOver(_NOT_PLAIN) from error
    # A second name may be somewhere else on the host.
    if os.fstat(descriptor).st_nlink != 1:
        os.close(descriptor)
        raise _PassedOver(_NOT_PLAIN)
    return descriptor


@contextmanager
def _root(workspace: Path) -> Generator[int]:
    descriptor = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _hash(descriptor: int) -> str:
    with open(descriptor, "rb", closefd=False) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    os.lseek(descriptor, 0, os.SEEK_SET)
    return digest


async def _pieces(descriptor: int) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(os.read, descriptor, PIECE_BYTES):
        yield piece


def _writer(descriptor: int, piece: bytes) -> Callable[[], None]:
    def write() -> None:
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]

    return write


async def _threaded(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise WorkspaceUnusable(f"the workspace cannot be used: {error.strerror}") from error
