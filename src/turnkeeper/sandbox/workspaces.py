"""Workspaces handed to tool boxes, and the user ids that boxes run under when we are root."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from turnkeeper import trees
from turnkeeper.sandbox.boxes import SandboxUnavailable, WorkspaceRefused

MAX_GIVEN_ENTRIES: Final = 1_000_000


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
    """Make `uid` the owner of the directory and what is in it. Raises `WorkspaceRefused`, `OSError`.

    Links are changed themselves, never followed. A file with a second name keeps its owner: the other name may be
    somewhere else on the host.
    """
    if workspace.stat().st_uid == uid:
        return
    try:
        for found in trees.walk(workspace, max_entries=MAX_GIVEN_ENTRIES):
            if found.is_folder or found.status.st_nlink == 1:
                with contextlib.suppress(FileNotFoundError):
                    os.chown(found.name, uid, uid, dir_fd=found.folder, follow_symlinks=False)
    except trees.TreeTooLarge as error:
        raise WorkspaceRefused(f"the workspace {workspace} cannot be given away: {error.message}") from error
    os.chown(workspace, uid, uid)
