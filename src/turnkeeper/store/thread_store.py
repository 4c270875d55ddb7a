"""What subagents did, on SQL: the part of the turn store that knows of threads."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from turnkeeper.events.envelope import NewEvent
from turnkeeper.store import ledger
from turnkeeper.store import steps as step_rows
from turnkeeper.store.tx import Tx
from turnkeeper.turns.model import Fence, NewStep, Step, Usage

T = TypeVar("T")


class SqlThreads(Protocol):
    """What `SqlTurnStore` inherits. It brings the two kinds of transaction."""

    async def _read(self, body: Callable[[Connection], T]) -> T: ...
    async def _write(self, body: Callable[[Tx], T]) -> T: ...

    async def owe_steps(self, fence: Fence, steps: Sequence[NewStep], events: Sequence[NewEvent]) -> None:
        await self._write(lambda tx: step_rows.owe_steps(tx, fence, steps, events))

    async def thread_steps(self, session_id: str, *, turn_id: str | None = None) -> tuple[Step, ...]:
        return await self._read(lambda conn: step_rows.thread_steps_of(conn, session_id, turn_id=turn_id))

    async def thread_usage(self, turn_id: str, thread_id: str, *, tool_calls: int, sandbox_ms: int) -> Usage:
        return await self._read(
            lambda conn: ledger.usage_of_thread(conn, turn_id, thread_id, tool_calls=tool_calls, sandbox_ms=sandbox_ms)
        )
