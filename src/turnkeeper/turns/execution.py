"""A turn from the front of its queue to its ending (contract 6, rows 8 to 22).

Answers for an ending that is returned only after the turn's boxes are gone, and for the events that belong into its
transaction. A turn whose lease is lost leaves no box behind either.
"""

from dataclasses import dataclass
from typing import Final

from turnkeeper.events.catalogue import ToolEnd
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns import endings
from turnkeeper.turns.equipment import Equipment
from turnkeeper.turns.interrupts import Interrupt, Interrupted, Interrupts
from turnkeeper.turns.lease import Lease
from turnkeeper.turns.lifecycle import Happening
from turnkeeper.turns.meter import LedgerMeter
from turnkeeper.turns.model import Claim, Ending, Turn, TurnStatus
from turnkeeper.turns.resuming import Resumed
from turnkeeper.turns.running import End, Running
from turnkeeper.turns.starting import Starter
from turnkeeper.turns.workbench import Workbench

_OPEN_TOOL_ENDS: Final[dict[str, ToolEnd]] = {
    Happening.CANCEL_ACKNOWLEDGED: "canceled",
    Happening.CANCEL_GRACE_OVER: "canceled",
    Happening.TIME_OVER: "canceled",
}


@dataclass(frozen=True, slots=True)
class Finish:
    """How a turn ends, and the events that go before its terminal one in the same transaction.

    Without an ending it waits for somebody, and is to be let go of.
    """

    ending: Ending | None
    before: tuple[NewEvent, ...]


class Execution:
    """One turn in its sandbox."""

    def __init__(self, bench: Workbench, claim: Claim, lease: Lease, resumed: Resumed | None = None) -> None:
        self._bench = bench
        self._resumed = resumed
        self._claim = claim
        self._lease = lease
        self._interrupts = Interrupts(bench.waiter)
        self._meter = LedgerMeter(bench.store, lambda: lease.fence)
        self._equipment = Equipment(bench, claim, lambda: lease.fence)
        self._starter = Starter(bench, claim, lease, self._meter, equipment=self._equipment, resumed=resumed)
        self._running: Running | None = None

    async def run(self) -> Finish:
        """The ending of a turn that is `queued` and allowed, or `starting`. Raises `StaleFence`."""
        try:
            end = await self._life()
            if self._running is not None and end.ending is not None:
                await self._running.compactions.close()
        finally:
            await self._let_go()
        return Finish(end.ending, (*self._closing_events(end.ending), *end.news, *self._starter.released))

    def _closing_events(self, ending: Ending | None) -> list[NewEvent]:
        if self._running is None:
            return list(self._equipment.runs.released)
        happening = "" if ending is None else ending.happening
        status = _OPEN_TOOL_ENDS.get(happening, "unknown")
        return [*self._running.client_steps.closing_events(status), *self._running.tools.closing_events(status)]

    async def _life(self) -> End:
        self._interrupts.when(self._lease.canceled, Interrupt.CANCEL)
        turn = self._claim.turn
        if turn.status is TurnStatus.QUEUED:
            turn = await self._starter.dispatch()
            if turn.status is TurnStatus.QUEUED:
                return End(endings.canceled(turn, Happening.CANCELED_IN_QUEUE, "interrupted"))
        try:
            ready = await self._interrupts.give_way(self._starter.start(turn))
        except Interrupted:
            return End(endings.canceled(self._lease.turn, Happening.CANCELED_WHILE_STARTING, "interrupted"))
        if ready is None:
            return End(endings.no_sandbox(turn))
        self._running = self._run_of(await self._starter.begin(ready))
        return await self._running.converse()

    def _run_of(self, turn: Turn) -> Running:
        box, handle = self._starter.attached
        self._meter.attempt = turn.attempt
        return Running(
            self._bench,
            self._claim,
            turn,
            self._lease,
            box=box,
            handle=handle,
            meter=self._meter,
            interrupts=self._interrupts,
            equipment=self._equipment,
            resumed=self._resumed,
        )

    async def _let_go(self) -> None:
        # Each part goes whatever becomes of the one before it: a fault in one must not leave a box behind.
        try:
            await self._interrupts.close()
            if self._running is not None:
                self._running.fall_silent()
            await self._equipment.close()
        finally:
            await self._starter.detach()
