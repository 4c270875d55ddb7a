"""How much a workspace may hold: measured from outside while its box lives, and enforced by ending the box.

A measured quota works on every file system and as every user. What it costs is the overshoot: between two looks a box
may write as fast as the disk takes it. No single file gets longer than RLIMIT_FSIZE lets it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from turnkeeper import trees
from turnkeeper.sandbox.boxes import BoxLimits

LOOK_EVERY_MS: Final = 500
# Looking takes at most this share of the time: one part in so many.
IDLE_PARTS: Final = 5
# A look as short as this is also taken after each call, so that the call itself is told.
SHORT_LOOK_MS: Final = 20


class WorkspaceQuota:
    """The quota of one box's workspace. `on_exceeded` ends the box; it is called once.

    A workspace that is over its quota before the box is there may be made smaller, and may not grow.
    """

    def __init__(self, workspace: Path, limits: BoxLimits, on_exceeded: Callable[[], None]) -> None:
        self._workspace = workspace
        self._limits = limits
        self._on_exceeded = on_exceeded
        self._task: asyncio.Task[None] | None = None
        self._most = trees.TreeSize(limits.disk_bytes, limits.disk_files)
        self._allowed: trees.TreeSize | None = None
        self._ended = False
        self._look_ms = 0.0
        self.is_full = False

    @property
    def notice(self) -> str:
        """What an agent is told about a full workspace."""
        return (
            f"the workspace is full: it may hold {self._limits.disk_bytes >> 20} MiB in "
            f"{self._limits.disk_files} files; remove something"
        )

    async def begin(self) -> None:
        """Look for the first time, and go on looking."""
        await self._look()
        self._task = asyncio.create_task(self._watch())

    def stop(self) -> None:
        """The box is gone."""
        if self._task is not None:
            self._task.cancel()

    async def look_again(self) -> None:
        """Look now, if looking is quick."""
        if self._task is not None and self._look_ms <= SHORT_LOOK_MS:
            await self._look()

    async def _watch(self) -> None:
        # Nothing tells when somebody else's folder has grown.
        while not self._ended:
            await asyncio.sleep(max(LOOK_EVERY_MS, self._look_ms * (IDLE_PARTS - 1)) / 1000)
            await self._look()

    async def _look(self) -> None:
        """Measure and draw the consequence."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        size = await asyncio.to_thread(_measured, self._workspace, self._limits)
        self._look_ms = (loop.time() - since) * 1000
        self.is_full = _is_larger(size, self._most)
        if not self.is_full:
            self._allowed = self._most
        elif self._allowed is not None and _is_larger(size, self._allowed):
            self._ended = True
            self._on_exceeded()
        else:
            self._allowed = size


def _is_larger(size: trees.TreeSize, than: trees.TreeSize) -> bool:
    return size.size_bytes > than.size_bytes or size.entries > than.entries


def _measured(workspace: Path, limits: BoxLimits) -> trees.TreeSize:
    most = 2 * limits.disk_files
    try:
        return trees.measure(workspace, max_entries=most)
    except (trees.TreeTooLarge, OSError):
        # What cannot be measured is over every quota.
        return trees.TreeSize(limits.disk_bytes + 1, most + 1)
