"""Stores that misbehave on request, over a real one."""

import asyncio
import threading
from collections.abc import Callable, Sequence

from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.ports import GuardianStore, Record, StoredSession, StoreFailed, UsedBefore


class FailingStore:
    """A store whose commits and loads can be made to fail or to wait."""

    def __init__(self, inner: GuardianStore) -> None:
        self._inner = inner
        self.failing_commits = 0
        self.failing_loads = 0
        self.fails_after_commit = False
        self.loads = 0
        self.batches: list[int] = []
        self.waiting = False
        self.gate = threading.Event()
        self.gate.set()

    def open(self) -> None:
        """As the store does."""
        self._inner.open()

    def close(self) -> None:
        """As the store does."""
        self._inner.close()

    def commit(self, batch: Sequence[Record]) -> None:
        """Waits for the gate, then commits or fails; with `fails_after_commit` it does both."""
        self.waiting = not self.gate.is_set()
        self.gate.wait(timeout=30)
        self.waiting = False
        self.batches.append(len(batch))
        if self.failing_commits == 0:
            self._inner.commit(batch)
            return
        self.failing_commits -= 1
        if self.fails_after_commit:
            self._inner.commit(batch)
        raise StoreFailed("the disk is gone")

    def load_session(self, session_id: str, max_ids: int) -> StoredSession | None:
        """As the store does, or fails."""
        self.loads += 1
        if self.failing_loads > 0:
            self.failing_loads -= 1
            raise StoreFailed("the disk is gone")
        return self._inner.load_session(session_id, max_ids)

    def find_used(
        self, session_id: str, request_id: str, nonce: str | None, reference: str | None = None
    ) -> UsedBefore:
        """As the store does."""
        return self._inner.find_used(session_id, request_id, nonce, reference)

    def find_approval(self, session_id: str, request_id: str) -> Approval | None:
        """As the store does."""
        return self._inner.find_approval(session_id, request_id)


class Failing:
    """Wraps a Guardian's store and hands out the wrapper."""

    store: FailingStore

    def __call__(self, inner: GuardianStore) -> GuardianStore:
        self.store = FailingStore(inner)
        return self.store


async def until(condition: Callable[[], bool]) -> None:
    """Waits until something becomes true, ten seconds at most."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)
