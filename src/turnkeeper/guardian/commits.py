"""Adaptive group commit: one batch is being written while the next one gathers.

Answers for order (records are committed in the order they were submitted) and for failure: when a batch fails, every
record that waits behind it fails too, because it may build on what was lost. Needs no timer: a lone record is
committed at once, and under load the batches grow by themselves. Must run on one event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from turnkeeper.guardian.ports import GuardianStore, Record, StoreFailed
from turnkeeper.records import record


@record
class _Waiting:
    record: Record
    durable: asyncio.Future[None]
    settled: Callable[[], None]


class GroupCommits:
    """Hands batches to the store's one writing thread."""

    def __init__(
        self, store: GuardianStore, writer: Executor, *, max_batch: int, on_failure: Callable[[], None]
    ) -> None:
        self._store = store
        self._writer = writer
        self._max_batch = max_batch
        self._on_failure = on_failure
        self._waiting: deque[_Waiting] = deque()
        self._running: asyncio.Task[None] | None = None

    def submit(self, record: Record, settled: Callable[[], None]) -> asyncio.Future[None]:
        """A future that is done once the record is durable, or fails with `StoreFailed`.

        `settled` is called either way, also when nobody waits for the future any more.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(record, loop.create_future(), settled)
        self._waiting.append(waiting)
        if self._running is None:
            self._running = loop.create_task(self._run())
        return waiting.durable

    async def drained(self) -> None:
        """Returns once everything submitted so far is durable or failed."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(self._max_batch, len(self._waiting)))]
                await self._commit(batch)
        finally:
            self._running = None

    async def _commit(self, batch: Sequence[_Waiting]) -> None:
        records = [waiting.record for waiting in batch]
        commit = asyncio.get_running_loop().run_in_executor(self._writer, self._store.commit, records)
        await asyncio.wait([commit])
        failure = commit.exception()
        if failure is None:
            for waiting in batch:
                waiting.settled()
                if not waiting.durable.done():
                    waiting.durable.set_result(None)
        else:
            self._fail([*batch, *self._waiting], failure)

    def _fail(self, lost: Sequence[_Waiting], cause: BaseException) -> None:
        self._waiting.clear()
        self._on_failure()
        for waiting in lost:
            waiting.settled()
            if not waiting.durable.done():
                failure = StoreFailed(f"the step could not be recorded: {cause}")
                failure.__cause__ = cause
                waiting.durable.set_exception(failure)
                # Whoever asked may have gone: an exception that was read once is no news to the loop.
                waiting.durable.exception()
