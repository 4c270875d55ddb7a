"""The worker (contract 7, architecture): takes turns from the fronts of their queues and brings each to its ending.

Answers for slots, for leases that are kept while turns run, for taking over what a dead worker left, and for the chores
around them: outbox, closing sessions. Must never write without a fence, never keep a box of a turn it has lost, and
never die of a turn: whatever goes wrong in one ends that one as `internal_error`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import structlog

from turnkeeper.clock import epoch_ms
from turnkeeper.turns import endings
from turnkeeper.turns.approval_desk import ApprovalDesk
from turnkeeper.turns.attempts import is_tried_again, retry_delay_ms, retrying
from turnkeeper.turns.compaction import close_left_open
from turnkeeper.turns.containment import contained
from turnkeeper.turns.continuation import ask_to_continue
from turnkeeper.turns.execution import Execution, Finish
from turnkeeper.turns.front import Front
from turnkeeper.turns.lease import Lease
from turnkeeper.turns.lifecycle import MAX_START_TRIES, Happening
from turnkeeper.turns.measures import overshoot_ratio
from turnkeeper.turns.model import Claim, Ending, Fence, Hold, StopReason, Turn, TurnStatus
from turnkeeper.turns.outbox import Outbox
from turnkeeper.turns.ports import StaleFence, StoreUnavailable
from turnkeeper.turns.recovery import finish_fault, finish_orphan, has_lost_its_workspace, has_open_window, ran_of
from turnkeeper.turns.resuming import resumed_turn
from turnkeeper.turns.takeover import LeaseWatch
from turnkeeper.turns.threads import NOTHING_OPEN, closing_of_threads, fate_of
from turnkeeper.turns.timing import news_of, stop_task
from turnkeeper.turns.withdrawals import Withdrawals
from turnkeeper.turns.workbench import Workbench

QUEUE_TOPIC: Final = "queue"
MAX_EXPIRED: Final = 100
"""How many turns that did not start in time are ended in one go."""

_BEFORE_IT_RAN: Final = frozenset({Happening.CANCELED_WHILE_STARTING, Happening.TRIES_USED})

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Chore:
    """Something done again and again; `due` has it done sooner."""

    name: str
    work: Callable[[], Coroutine[Any, Any, None]]
    pause_ms: int
    due: asyncio.Event = field(default_factory=asyncio.Event)


class Worker:
    """One worker process's loop. `run` it once."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._front = Front(bench.store, bench.governor, bench.ids, clock=bench.clock, sandbox_kind=bench.boxes.kind)
        self._outbox = Outbox(bench)
        self._desk = ApprovalDesk(bench.store, bench.clock, bench.questions)
        self._turns: set[asyncio.Task[None]] = set()
        self._unpaid: set[asyncio.Task[None]] = set()
        self._elsewhere: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()
        self._stirred = asyncio.Event()
        settings = bench.settings
        self._dropped: set[Fence] = set()
        self._leases = LeaseWatch(settings.lease_ttl_ms)
        self._lost_since_ms: dict[str, int] = {}
        self._chores = (
            _Chore("end_sessions", self._outbox.end_sessions, settings.poll_ms),
            _Chore("deliver", self._outbox.deliver, settings.poll_ms),
            _Chore("expire_pauses", self._expire_pauses, settings.poll_ms),
            _Chore("adopt_answers", self._desk.adopt, settings.poll_ms),
            _Chore("withdraw_questions", Withdrawals(bench.store, bench.questions).settle, settings.poll_ms),
            _Chore("reap", self._take_over, settings.reap_ms),
            _Chore("expire_starts", self._expire_starts, settings.poll_ms),
        )

    @property
    def owner(self) -> str:
        """What it is called in leases."""
        return self._bench.owner

    @property
    def active(self) -> int:
        """How many turns this worker holds."""
        return len(self._tasks)

    @property
    def _tasks(self) -> set[asyncio.Task[None]]:
        return self._turns | self._unpaid | self._elsewhere

    async def run(self) -> None:
        """Works until `drain` is called or it is canceled; either way no turn of it has a box afterwards."""
        await contained("take_over", self._take_over())
        chores = [asyncio.create_task(self._repeat(chore)) for chore in self._chores]
        try:
            await self._claims()
            await self._finished()
            await contained("end_sessions", self._outbox.end_sessions())
            await contained("deliver", self._outbox.deliver())
        finally:
            for task in (*chores, *self._tasks):
                await stop_task(task)

    def drain(self) -> None:
        """Takes no more turns; `run` returns when the ones it has are over, or their time to finish is."""
        self._draining.set()
        self._stirred.set()

    async def _claims(self) -> None:
        while not self._draining.is_set():
            self._stirred.clear()
            async with news_of(self._bench.wakeups, QUEUE_TOPIC, timeout_ms=self._bench.settings.poll_ms) as news:
                if not await contained("claim", self._claim_one()):
                    stirred = asyncio.create_task(self._stirred.wait())
                    await asyncio.wait({news, stirred}, return_when=asyncio.FIRST_COMPLETED)
                    await stop_task(stirred)

    async def _claim_one(self) -> bool:
        return await self._claim_here() or await self._claim_for_runner()

    async def _claim_here(self) -> bool:
        settings = self._bench.settings
        slot = len(self._turns) < settings.slots
        if not slot and len(self._unpaid) >= settings.unpaid_slots:
            return False
        claim = await self._bench.store.claim(self._bench.owner, slot=slot)
        if claim is None:
            return False
        self._spawn(claim, self._turns if slot else self._unpaid)
        return True

    async def _claim_for_runner(self) -> bool:
        """A turn for a runner that waits: it takes no slot, since it is run elsewhere."""
        for pool in self._bench.runners.free():
            claim = await self._bench.store.claim(self._bench.owner, slot=True, pool=pool)
            if claim is not None:
                self._spawn(claim, self._elsewhere)
                return True
        return False

    async def _take_over(self) -> None:
        if self._draining.is_set():
            return
        bench = self._bench
        others = await bench.store.held_by_others(bench.owner, bench.runners.pools)
        gone = await bench.liveness.gone({hold.fence.owner for hold in others})
        noticed_ms = bench.clock.monotonic_ms()
        # Nobody works on what was dropped here, so there is no lease to be watched.
        lapsed = (*self._leases.lapsed(others, gone, noticed_ms), *await self._left_behind())
        if not lapsed:
            return
        for claim in await bench.store.take_over(bench.owner, lapsed):
            _log.warning("turn_taken_over", turn_id=claim.turn.id, status=claim.turn.status)
            self._lost_since_ms[claim.turn.id] = noticed_ms
            self._spawn(claim, self._turns if claim.agent.pool is None else self._elsewhere)

    async def _left_behind(self) -> tuple[Hold, ...]:
        """Turns that are still ours in the store although we dropped their work: there may be nobody else for them."""
        if not self._dropped:
            return ()
        holds = await self._bench.store.held_by(self._bench.owner)
        self._dropped &= {hold.fence for hold in holds}
        return tuple(hold for hold in holds if hold.fence in self._dropped)

    async def _expire_pauses(self) -> None:
        await self._bench.store.expire_pauses(self._bench.settings.outbox_sessions)

    async def _expire_starts(self) -> None:
        await self._bench.store.expire_starts(MAX_EXPIRED)

    def _spawn(self, claim: Claim, among: set[asyncio.Task[None]]) -> None:
        runners, turn_id = self._bench.runners, claim.turn.id
        if claim.agent.pool is not None and among is self._elsewhere:
            runners.expect(turn_id, claim.agent.pool)
        task = asyncio.create_task(self._held(claim, paid=among is not self._unpaid))
        among.add(task)

        def over(task: asyncio.Task[None]) -> None:
            among.discard(task)
            runners.forget(turn_id)
            self._stirred.set()
            for chore in self._chores[:2]:
                chore.due.set()

        task.add_done_callback(over)

    async def _finished(self) -> None:
        tasks = self._tasks
        if not tasks:
            return
        timer = asyncio.create_task(self._bench.waiter.sleep(self._bench.settings.drain_ms))
        over = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait({timer, over}, return_when=asyncio.FIRST_COMPLETED)
        await stop_task(timer)

    async def _held(self, claim: Claim, *, paid: bool) -> None:
        """One turn under its lease. A lease that is lost takes the turn's work down with it, boxes first."""
        bench = self._bench
        lease = Lease(
            bench.store,
            bench.wakeups,
            claim,
            clock=bench.clock,
            waiter=bench.waiter,
            ttl_ms=bench.settings.lease_ttl_ms,
            poll_ms=bench.settings.poll_ms,
        )
        keeping = asyncio.create_task(lease.keep())
        living = asyncio.create_task(self._live(claim, lease, paid=paid))
        try:
            await asyncio.wait({keeping, living}, return_when=asyncio.FIRST_COMPLETED)
            if not living.done():
                _log.error("lease_lost", turn_id=claim.turn.id, reason=repr(keeping.exception()))
        finally:
            await stop_task(living)
            await stop_task(keeping)
            self._lost_since_ms.pop(claim.turn.id, None)
            if living.cancelled() or living.exception() is not None or not living.result():
                self._dropped.add(lease.fence)

    async def _live(self, claim: Claim, lease: Lease, *, paid: bool) -> bool:
        """Whether the turn was brought to where it needs this worker no more."""
        try:
            done = await contained("turn", self._tried(claim, lease, paid=paid), claim.turn.id)
            if done is None:
                done = await contained("fault", self._end_as_fault(claim, lease), claim.turn.id)
            return bool(done)
        except StaleFence as error:
            _log.warning("turn_lost", turn_id=claim.turn.id, error=str(error))
            return True

    async def _tried(self, claim: Claim, lease: Lease, *, paid: bool) -> bool:
        """Whether it could be done at all. What is not written down is as if a worker had gone away: row 20 or 21."""
        try:
            await self._work(claim, lease, paid=paid)
        except StoreUnavailable as error:
            _log.warning("turn_dropped", turn_id=claim.turn.id, error=error.message)
            return False
        return True

    async def _work(self, claim: Claim, lease: Lease, *, paid: bool) -> None:
        finish = await self._finish(claim, lease, paid=paid)
        if finish is None:
            await self._bench.store.release(lease.fence)
        else:
            await self._conclude(finish, claim, lease)

    async def _conclude(self, finish: Finish, claim: Claim, lease: Lease) -> None:
        """The end of the turn, or of this attempt where it has another one; a turn that waits is let go of."""
        if finish.ending is None:
            await self._bench.store.park(lease.fence, finish.before)
            return
        store, turn = self._bench.store, await self._bench.store.turn(lease.fence.turn_id)
        has_threads = claim.agent.subagents and turn.attempt > 0
        left = await closing_of_threads(self._bench, turn, fate_of(finish.ending)) if has_threads else NOTHING_OPEN
        if is_tried_again(turn, finish.ending):
            delay_ms, told = retry_delay_ms(turn.attempt), [*left.events, *finish.before, retrying(turn)]
            active_ms = finish.ending.duration_ms
            await store.retry(lease.fence, delay_ms=delay_ms, active_ms=active_ms, events=told, steps=left.steps)
        else:
            before = (*left.events, *finish.before)
            await store.end(lease.fence, finish.ending, before=before, steps=left.steps)
            self._measure_end(turn, finish.ending)
        self._measure_recovery(turn.id)

    def _measure_end(self, turn: Turn, ending: Ending) -> None:
        if turn.cancel_requested_at is not None and turn.attempt:
            now_ms = epoch_ms(self._bench.clock.now())
            self._bench.measures.stopped(max(0, now_ms - epoch_ms(turn.cancel_requested_at)))
        ratio = overshoot_ratio(turn, ending.duration_ms)
        if ratio is not None and ending.stop_reason is StopReason.BUDGET_REACHED:
            self._bench.measures.overshot(ratio)

    def _measure_recovery(self, turn_id: str) -> None:
        since_ms = self._lost_since_ms.pop(turn_id, None)
        if since_ms is not None:
            self._bench.measures.recovered(self._bench.clock.monotonic_ms() - since_ms)

    async def _end_as_fault(self, claim: Claim, lease: Lease) -> bool:
        turn = await self._bench.store.turn(claim.turn.id)
        if not turn.status.terminal:
            await contained("compaction", close_left_open(self._bench, turn, lease.fence), turn.id)
            await self._conclude(await finish_fault(self._bench, turn, turn.id), claim, lease)
        return True

    async def _finish(self, claim: Claim, lease: Lease, *, paid: bool) -> Finish | None:
        status = claim.turn.status
        if status is TurnStatus.RUNNING:
            await contained("compaction", close_left_open(self._bench, claim.turn, lease.fence), claim.turn.id)
            return await finish_orphan(self._bench, claim.turn, claim.last_beat_at)
        if status is TurnStatus.STARTING:
            return await self._start_again(claim, lease)
        if status is TurnStatus.PAUSED:
            return await self._left_waiting(claim.turn)
        ending = await self._front.walk(claim)
        if ending is not None:
            return Finish(ending, ())
        if not paid:
            # It was given out without a slot because it needed none; it does after all, so it waits for one.
            return None
        return await Execution(self._bench, claim, lease).run()

    async def _left_waiting(self, turn: Turn) -> Finish:
        """A turn that waits needs no worker; one that was asked to stop ends (row 27)."""
        if turn.cancel_mode is None:
            return Finish(None, ())
        outcome = "interrupted" if await has_open_window(self._bench, turn) else None
        ran = await ran_of(self._bench, turn)
        return Finish(endings.canceled(turn, Happening.CANCELED_WHILE_PAUSED, outcome, ran), ())

    async def _start_again(self, claim: Claim, lease: Lease) -> Finish:
        bench, turn = self._bench, claim.turn
        ran = await ran_of(bench, turn)
        if turn.cancel_mode is not None:
            outcome = "interrupted" if await has_open_window(bench, turn) else None
            return Finish(endings.canceled(turn, Happening.CANCELED_WHILE_STARTING, outcome, ran), ())
        if turn.tries >= MAX_START_TRIES:
            return Finish(endings.having_run(endings.no_sandbox(turn), turn, ran), ())
        resumed = await resumed_turn(bench, turn)
        if resumed is not None and resumed.pause is not None and await has_lost_its_workspace(bench, turn):
            turn_started = await has_open_window(bench, turn)
            return Finish(endings.workspace_lost(turn, ran, turn_started=turn_started), ())
        ending = await ask_to_continue(bench, turn, lease.fence, ran)
        if ending is not None:
            return Finish(ending, ())
        again = replace(claim, turn=await lease.renumber())
        finish = await Execution(bench, again, lease, resumed).run()
        if finish.ending is not None and finish.ending.happening in _BEFORE_IT_RAN:
            return replace(finish, ending=endings.having_run(finish.ending, turn, ran))
        return finish

    async def _repeat(self, chore: "_Chore") -> None:
        while True:
            chore.due.clear()
            await contained(chore.name, chore.work())
            due = asyncio.create_task(chore.due.wait())
            pause = asyncio.create_task(self._bench.waiter.sleep(chore.pause_ms))
            try:
                await asyncio.wait({due, pause}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await stop_task(due)
                await stop_task(pause)
