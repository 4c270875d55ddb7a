"""How long what was said is kept (contract 14): sessions past their time are deleted, deleted ones erased.

Answers for content that goes within the pause between two sweeps of a worker, and within a bounded piece of work each.
Must never touch a session with a turn that is queued, active or paused, unless somebody deleted it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from turnkeeper import trees
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.containment import all_of, contained
from turnkeeper.turns.model import CanceledBy, Session
from turnkeeper.turns.wakeups import Watch

MAX_RETENTION_DAYS: Final = 3_650
SWEEP_MS: Final = 60_000
SESSIONS_PER_SWEEP: Final = 100
RETENTION_TOPIC: Final = "retention"


class IdempotencyTurnDeleted(TurnkeeperError):
    """The turn that the key stands for was deleted with its session; it is not run again."""

    code = "idempotency_turn_deleted"


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What an app says about a session now; `None` leaves a member as it is."""

    title: str | None = None
    metadata_json: str | None = None
    retention_days: int | None = None


class RetentionStore(Protocol):
    """What the API and the sweep need. Every method is one transaction, or a few bounded ones."""

    async def change_session(self, session_id: str, change: SessionChange) -> Session:
        """The session, with its `session.updated` where something changed. Raises `NotFound`."""
        ...

    async def delete_session(self, session_id: str, *, by: CanceledBy) -> Session:
        """Closes the session, cancels its turns, and has its content erased once it is closed. Raises `NotFound`."""
        ...

    async def expired(self, limit: int, *, after: str | None = None) -> tuple[Sequence[str], str | None]:
        """Those among the next `limit` sessions whose time is over, and the last looked at if there is more."""
        ...

    async def delete_if_expired(self, session_id: str) -> None:
        """Deletes the session if its time is over."""
        ...

    async def erase(self, limit: int) -> int:
        """Erases the content of deleted sessions that are closed; how many are done."""
        ...

    async def without_workspace(self, session_ids: Collection[str]) -> frozenset[str]:
        """Those of the sessions that need none any more: erased, or opened for one turn and closed."""
        ...


class Retention:
    """The sweep of one worker process. `run` it once. `also` is done after each: the bytes that nothing names go."""

    def __init__(
        self,
        store: RetentionStore,
        workspaces: Path,
        bell: Watch,
        *,
        sweep_ms: int = SWEEP_MS,
        also: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._workspaces = workspaces
        self._bell = bell
        self._sweep_ms = sweep_ms
        self._also = also
        self._expired_after: str | None = None

    async def run(self) -> None:
        """Sweeps until it is canceled: when a session is deleted, and once in a while."""
        while True:
            # Each part for itself, and the next sweep finds the same work.
            await contained("delete_expired", self._delete_expired())
            await contained("erase", self._erase())
            await contained("remove_workspaces", self._remove_workspaces())
            await contained("remove_contents", self._remove_contents())
            await self._bell.wait(timeout_ms=self._sweep_ms)

    async def sweep(self) -> None:
        """One bounded piece of the work, on sessions and on this host's workspaces."""
        await self._delete_expired()
        await self._erase()
        await self._remove_workspaces()
        await self._remove_contents()

    async def _delete_expired(self) -> None:
        over, self._expired_after = await self._store.expired(SESSIONS_PER_SWEEP, after=self._expired_after)
        await all_of(self._store.delete_if_expired(session_id) for session_id in over)

    async def _erase(self) -> None:
        await self._store.erase(SESSIONS_PER_SWEEP)

    async def _remove_workspaces(self) -> None:
        folders = await asyncio.to_thread(_folders, self._workspaces)
        for start in range(0, len(folders), SESSIONS_PER_SWEEP):
            for session_id in await self._store.without_workspace(folders[start : start + SESSIONS_PER_SWEEP]):
                await asyncio.to_thread(trees.remove, self._workspaces / session_id)

    async def _remove_contents(self) -> None:
        if self._also is not None:
            await self._also()


def expires_at(session: Session) -> datetime | None:
    """When a session that nobody uses will be deleted; `None` for one that is kept, or has a turn that is not over."""
    if session.retention_days is None or session.active_turn_id is not None or session.queue_depth:
        return None
    return session.last_active_at + timedelta(days=session.retention_days)


def _folders(workspaces: Path) -> list[str]:
    return sorted(folder.name for folder in workspaces.iterdir() if folder.is_dir() and not folder.is_symlink())
