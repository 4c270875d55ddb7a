"""The pauses and approvals of the turn store, each method one transaction (`PauseStore`, `ApprovalStore`)."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from turnkeeper.clock import Clock
from turnkeeper.events.envelope import NewEvent
from turnkeeper.store import expiring, pause_reads, pauses, withdrawals
from turnkeeper.store.tx import Tx
from turnkeeper.turns.approvals import Approval, ApprovalAnswer, ApprovalRule, ApprovalStatus, AskedStep
from turnkeeper.turns.containment import all_of
from turnkeeper.turns.model import Fence, Reach, Turn
from turnkeeper.turns.pause_ports import PauseStore
from turnkeeper.turns.pausing import NewPause, Pause, ToolAnswer
from turnkeeper.turns.ports import ApprovalStore, Page, PageRequest

T = TypeVar("T")


class SqlPauses(PauseStore, ApprovalStore, Protocol):
    """What `SqlTurnStore` inherits. It brings the two kinds of transaction and the clock."""

    _clock: Clock

    async def _read(self, body: Callable[[Connection], T]) -> T: ...
    async def _write(self, body: Callable[[Tx], T]) -> T: ...

    async def pause(self, fence: Fence, pause: NewPause, events: Sequence[NewEvent]) -> None:
        await self._write(lambda tx: pauses.pause(tx, fence, pause, events))

    async def open_pause(self, turn_id: str) -> Pause | None:
        return await self._read(lambda conn: pauses.open_pause(conn, turn_id))

    async def resume(self, fence: Fence) -> Turn:
        return await self._write(lambda tx: pauses.resume(tx, fence))

    async def park(self, fence: Fence, events: Sequence[NewEvent]) -> None:
        await self._write(lambda tx: pauses.park(tx, fence, events))

    async def expire_pauses(self, limit: int) -> int:
        now = self._clock.now()
        due = await self._read(lambda conn: expiring.due_pauses(conn, now, limit))
        return sum(await all_of(self._write(_expiry(turn_id, session_id)) for turn_id, session_id in due))

    async def withdrawals(self, limit: int) -> tuple[AskedStep, ...]:
        return await self._read(lambda conn: withdrawals.oldest(conn, limit))

    async def forget_withdrawal(self, asked: AskedStep) -> None:
        await self._write(lambda tx: withdrawals.forget(tx, asked))

    async def approval(self, approval_id: str) -> Approval:
        return await self._read(lambda conn: pauses.load_approval(conn, approval_id))

    async def approvals(
        self,
        page: PageRequest,
        *,
        status: ApprovalStatus | None = None,
        session_id: str | None = None,
        reach: Reach | None = None,
    ) -> Page[Approval]:
        return await self._read(
            lambda conn: pause_reads.list_approvals(conn, page, status=status, session_id=session_id, reach=reach)
        )

    async def decide_approval(self, approval_id: str, answer: ApprovalAnswer) -> Approval:
        return await self._write(lambda tx: pauses.decide_approval(tx, approval_id, answer))

    async def answer_tool(self, turn_id: str, tool_call_id: str, answer: ToolAnswer) -> Turn:
        return await self._write(lambda tx: pauses.answer_tool(tx, turn_id, tool_call_id, answer))

    async def approval_rules(self, session_id: str) -> tuple[ApprovalRule, ...]:
        return await self._read(lambda conn: pause_reads.list_rules(conn, session_id))

    async def remove_approval_rule(self, session_id: str, approval_id: str) -> None:
        await self._write(lambda tx: pause_reads.remove_rule(tx, session_id, approval_id))


def _expiry(turn_id: str, session_id: str) -> Callable[[Tx], bool]:
    return lambda tx: expiring.expire_pause(tx, turn_id, session_id)
