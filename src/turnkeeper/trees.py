"""Folders that somebody hostile may have filled: walked, measured, opened in and removed from outside their box.

Never follows a symbolic link, never opens anything but regular files and folders, and never needs a stack or a
descriptor per level: a tree thousands of folders deep costs time and nothing else. Whoever runs in the box may
rename things while we look; what is found then may be old, and is still inside the folder.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnkeeper.errors import TurnkeeperError

MAX_DEPTH: Final = 128
BLOCK_BYTES: Final = 512
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TreeTooLarge(TurnkeeperError):
    """The folder has more entries, or is deeper, than whoever asked looks at, or hides something."""

    code = "tree_too_large"


class NotInTree(TurnkeeperError):
    """The path names no regular file of the folder: it leads out, through a link, or to something else."""

    code = "not_in_tree"


@dataclass(frozen=True, slots=True)
class Found:
    """One entry. `folder` is an open descriptor of where it is, good until the next one is asked for."""

    folder: int
    parents: tuple[str, ...]
    name: str
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder itself, and no link to one."""
        return stat.S_ISDIR(self.status.st_mode)


@dataclass(frozen=True, slots=True)
class TreeSize:
    """What a folder takes on its disk, holes left out, each file once however many names it has."""

    size_bytes: int
    entries: int


def walk(root: Path, *, max_entries: int, max_depth: int = MAX_DEPTH) -> Iterator[Found]:
    """Every entry below `root`, a folder before what is in it. Raises `TreeTooLarge`, `OSError` for `root` itself."""
    top = os.open(root, _FOLDER_FLAGS)
    seen = 0
    todo: list[tuple[str, ...]] = [()]
    try:
        while todo:
            parents = todo.pop()
            for found in _entries(top, parents, max_entries - seen):
                seen += 1
                if found.is_folder:
                    if len(parents) >= max_depth:
                        raise TreeTooLarge(f"{root} is more than {max_depth} folders deep")
                    todo.append((*parents, found.name))
                yield found
    finally:
        os.close(top)


def measure(root: Path, *, max_entries: int) -> TreeSize:
    """How large a folder is. Raises `TreeTooLarge`, `OSError`."""
    size_bytes = entries = 0
    linked: set[int] = set()
    for found in walk(root, max_entries=max_entries):
        entries += 1
        if found.status.st_nlink > 1 and not found.is_folder:
            if found.status.st_ino in linked:
                continue
            linked.add(found.status.st_ino)
        size_bytes += found.status.st_blocks * BLOCK_BYTES
    return TreeSize(size_bytes, entries)


def open_beneath(root: Path, path: str) -> int:
    """A descriptor for reading a regular file below `root`, reached without any link.

    Raises `NotInTree` for every other path, `OSError` where the disk says no.
    """
    parts = path.split("/")
    if not path or "\0" in path or len(parts) > MAX_DEPTH or any(part in {"", ".", ".."} for part in parts):
        raise NotInTree(f"{path[:200]!r} is not a plain path below the folder")
    try:
        folder = _descend(os.open(root, _FOLDER_FLAGS), parts[:-1])
        try:
            return _open_regular(folder, parts[-1])
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.EINVAL, errno.ENXIO, errno.ENAMETOOLONG}:
            raise NotInTree(f"{path[:200]!r} is no regular file of the folder") from error
        raise


def remove(root: Path) -> None:
    """Remove a folder with all that is in it, however deep; one that is not there is fine. Raises `OSError`.

    Nobody may be writing to it any more.
    """
    parent = os.open(root.parent, _FOLDER_FLAGS)
    try:
        if root.name in _drop_files(parent, only=root.name):
            _empty(parent, root.name)
            os.rmdir(root.name, dir_fd=parent)
    finally:
        os.close(parent)


def _entries(top: int, parents: tuple[str, ...], left: int) -> Iterator[Found]:
    try:
        folder = _descend(os.dup(top), parents)
    except PermissionError as error:
        raise TreeTooLarge("a folder cannot be looked into, so it counts as too large") from error
    except OSError:
        # Renamed or removed since it was seen.
        return
    try:
        # The names first: a folder that grows while it is read must not keep us here.
        with os.scandir(folder) as listed:
            names = [entry.name for entry, _ in zip(listed, range(left + 1), strict=False)]
        if len(names) > left:
            raise TreeTooLarge("the folder has more entries than are looked at")
        for name in names:
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            yield Found(folder, parents, name, status)
    finally:
        os.close(folder)


def _descend(folder: int, parts: tuple[str, ...] | list[str]) -> int:
    """The folder at the end of `parts`; the descriptor that was given is closed, also when it fails."""
    for part in parts:
        try:
            below = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def _open_regular(folder: int, name: str) -> int:
    fd = os.open(name, _FILE_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


@dataclass(frozen=True, slots=True)
class _Level:
    name: str
    identity: tuple[int, int]
    folders: list[str]


def _empty(parent: int, name: str) -> None:
    """Take away what is in a folder: down to where no folder is left, and up by `..`, one descriptor at a time."""
    here = _entered(parent, name)
    levels = [_level(here, name)]
    try:
        while levels:
            if levels[-1].folders:
                inner = levels[-1].folders.pop()
                above, here = here, _entered(here, inner)
                os.close(above)
                levels.append(_level(here, inner))
                continue
            emptied = levels.pop()
            if levels:
                here = _left(here, levels[-1].identity)
                os.rmdir(emptied.name, dir_fd=here)
    finally:
        os.close(here)


def _entered(folder: int, name: str) -> int:
    handle = os.open(name, _FOLDER_FLAGS | os.O_PATH, dir_fd=folder)
    try:
        # A folder without the right to read and write keeps what is in it from everybody but root, its owner included.
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(".", _FOLDER_FLAGS, dir_fd=handle)
    finally:
        os.close(handle)


def _left(folder: int, identity: tuple[int, int]) -> int:
    above = os.open("..", _FOLDER_FLAGS, dir_fd=folder)
    os.close(folder)
    if _identity(above) != identity:
        os.close(above)
        raise OSError(errno.ESTALE, "the folder was moved while it was removed")
    return above


def _level(folder: int, name: str) -> _Level:
    return _Level(name, _identity(folder), _drop_files(folder))


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _drop_files(folder: int, only: str | None = None) -> list[str]:
    """Take a folder's files away, or the one of that name, and give the names of its folders."""
    with os.scandir(folder) as listed:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed]
    chosen = entries if only is None else [entry for entry in entries if entry[0] == only]
    for name, is_folder in chosen:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in chosen if is_folder]
