"""Workspaces handed to tool boxes, and the user ids that boxes run under when we are root."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from turnkeeper.sandbox.boxes import SandboxUnavailable, WorkspaceRefused


class UidPool:
    """User ids, each for one living box: process limits and file owners then are the box's own."""

    def __init__(self, first: int, count: int) -> None:
        self._all = range(first, first + count)
        self._taken: set[int] = set()

    def take(self, preferred: int | None = None) -> int:
        """A free id, the preferred one if it is one of ours and free. Raises `SandboxUnavailable`."""
        first = [preferred] if preferred is not None and preferred in self._all else []
        for uid in (*first, *self._all):
            if uid not in self._taken:
                self._taken.add(uid)
                return uid
        raise SandboxUnavailable(f"all {len(self._all)} user ids for boxes are in use")

    def release(self, uid: int) -> None:
        """The box is gone."""
        self._taken.discard(uid)


def check_workspace(workspace: Path, forbidden: Iterable[Path]) -> Path:
    """The real path of a directory that may be handed to a box. Raises `WorkspaceRefused`."""
    real = workspace.resolve()
    if not real.is_dir():
        raise WorkspaceRefused(f"the workspace {workspace} is not a directory")
    for path in forbidden:
        if path.resolve().is_relative_to(real):
            raise WorkspaceRefused(f"the workspace {workspace} contains {path}, which a box must not see")
    return real


def give_workspace(workspace: Path, uid: int) -> None:
    """Make `uid` the owner of the directory and what is in it.

    Links are changed themselves, never followed. A file with a second name keeps its owner: the other name may be
    somewhere else on the host.
    """
    if workspace.stat().st_uid == uid:
        return
    for _, folders, files, descriptor in os.fwalk(workspace, follow_symlinks=False):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                _give(name, descriptor, uid)
    os.chown(workspace, uid, uid)


def _give(name: str, folder: int, uid: int) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
        os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
