"""A worker's hand on one turn, moved one legal step at a time, for tests that decide who does what when.

Does with the store what the worker does, in the worker's order, without boxes and without a Guardian.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from tests.contract.pause_samples import a_pause
from tests.contract.store_rig import ANSWER, LOST, has_started, is_starting

from turnkeeper.clock import Clock
from turnkeeper.events.catalogue import turn_retrying
from turnkeeper.ids import IdSource
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns import endings
from turnkeeper.turns.lifecycle import MAX_START_TRIES, Happening
from turnkeeper.turns.model import Fence, NewStep, StepAnswer, Turn, TurnStatus
from turnkeeper.turns.payloads import TURN_END, TURN_START

Move: TypeAlias = Literal["answer", "ask", "client", "lose"]
MOVES: Final[tuple[Move, ...]] = ("ask", "client", "answer", "lose")
"""What a running turn may do next: end, wait for a person, wait for its app, or lose its box."""

PAUSE_MS: Final = 3_600_000
RETRY_MS: Final = 5_000
_CANCELED: Final = {
    TurnStatus.QUEUED: Happening.CANCELED_IN_QUEUE,
    TurnStatus.STARTING: Happening.CANCELED_WHILE_STARTING,
    TurnStatus.RUNNING: Happening.CANCEL_GRACE_OVER,
    TurnStatus.PAUSED: Happening.CANCELED_WHILE_PAUSED,
}


@dataclass
class Hand:
    """One worker on one turn. `inherited`: it took the turn over from a worker that was gone."""

    store: SqlTurnStore
    clock: Clock
    ids: IdSource
    fence: Fence
    inherited: bool = False

    @property
    def turn_id(self) -> str:
        return self.fence.turn_id

    async def move(self, wanted: Move) -> bool:
        """Does the next thing; returns whether the turn is still in this hand."""
        turn = await self.store.turn(self.turn_id)
        if turn.cancel_mode is not None:
            return await self._cancel(turn)
        if turn.status in {TurnStatus.QUEUED, TurnStatus.STARTING} and not await self._has_window():
            await self._open_window()
        if turn.status is TurnStatus.QUEUED:
            await self.store.starting(self.fence, [is_starting(turn.id)])
            return True
        if turn.status is TurnStatus.STARTING:
            return await self._start(turn)
        if turn.status is TurnStatus.PAUSED:
            return await self._go_on()
        return await self._run(turn, "lose" if self.inherited else wanted)

    async def end(self) -> None:
        """Ends the turn with an answer, whoever holds it. Raises `StaleFence`."""
        await self.store.end(self.fence, ANSWER)

    async def _has_window(self) -> bool:
        steps = await self.store.steps(self.fence.session_id, turn_id=self.turn_id)
        methods = [step.method for step in steps]
        return methods.count(TURN_START) > methods.count(TURN_END)

    async def _open_window(self) -> None:
        new = NewStep(self.ids.uuid(), TURN_START, "{}", in_window=True, turn_id=self.turn_id)
        step = await self.store.ask_step(self.fence.session_id, new, self.fence, [])
        said = StepAnswer("answered", "allow", "head")
        await self.store.answer_step(self.fence.session_id, step.request_id, said, self.fence, [])

    async def _cancel(self, turn: Turn) -> bool:
        outcome = "interrupted" if await self._has_window() else None
        await self.store.end(self.fence, endings.canceled(turn, _CANCELED[turn.status], outcome))
        return False

    async def _start(self, turn: Turn) -> bool:
        if self.inherited and turn.tries >= MAX_START_TRIES:
            await self.store.end(self.fence, endings.no_sandbox(turn))
            return False
        if self.inherited:
            again = await self.store.retry_start(self.fence)
            self.fence, self.inherited = replace(self.fence, number=again.fence), False
            return True
        resumed = await self.store.open_pause(turn.id) is not None
        await self.store.started(self.fence, [has_started(turn.id)], resumed=resumed)
        return True

    async def _go_on(self) -> bool:
        pause = await self.store.open_pause(self.turn_id)
        if pause is not None and pause.state == "resolved" and not self.inherited:
            await self.store.resume(self.fence)
            return True
        await self.store.park(self.fence, ())
        return False

    async def _run(self, turn: Turn, wanted: Move) -> bool:
        if wanted in {"ask", "client"}:
            pause = a_pause(self.clock, self.ids, self.fence, kind=wanted, wait_ms=PAUSE_MS)
            await self.store.pause(self.fence, pause, ())
            return True
        if wanted == "answer":
            await self.end()
        elif turn.attempt < turn.max_attempts:
            told = turn_retrying(turn_id=turn.id, failed_attempt=turn.attempt, delay_ms=RETRY_MS)
            await self.store.retry(self.fence, delay_ms=RETRY_MS, active_ms=0, events=[told])
        else:
            await self.store.end(self.fence, LOST)
        return False
