"""The end of bytes that nothing names any more (contract 14): deleted, erased, or never named after a crash.

Answers for contents that are looked at in turn, a bounded piece at a time, and for leaving alone what was put within
`UNNAMED_AGE_MS`: its row may be on its way.
"""

from datetime import timedelta
from typing import Final

import structlog

from turnkeeper.clock import Clock
from turnkeeper.turns.contents import UNNAMED_AGE_MS, ContentStore
from turnkeeper.turns.files import FileStore

CONTENTS_PER_SWEEP: Final = 500

_log = structlog.get_logger(__name__)


class ContentSweep:
    """The sweep of one process; several may sweep at the same time."""

    def __init__(self, files: FileStore, contents: ContentStore, clock: Clock) -> None:
        self._files = files
        self._contents = contents
        self._clock = clock
        self._after = ""

    async def sweep(self) -> None:
        """One piece of the work; the next sweep goes on where this one ends."""
        before = self._clock.now() - timedelta(milliseconds=UNNAMED_AGE_MS)
        await self._contents.tidy(before)
        old = await self._contents.older_than(before, after=self._after, limit=CONTENTS_PER_SWEEP)
        self._after = old[-1] if len(old) == CONTENTS_PER_SWEEP else ""
        removed = 0
        for sha256 in await self._files.unnamed(old):
            removed += await self._contents.remove(sha256, before=before)
        if removed:
            _log.info("contents_removed", count=removed)
