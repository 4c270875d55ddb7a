"""The runners that wait for turns, by pool, and the boxes that runners have.

Answers for one runner per box and for giving none to a runner that has left. Implements `turns.box_ports.Runners`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from turnkeeper.clock import Clock
from turnkeeper.errors import LocalProtocolError, TurnkeeperError
from turnkeeper.ids import IdSource
from turnkeeper.runners.boxes import RemoteLoopBox, RunnerLost
from turnkeeper.runners.tokens import Holder
from turnkeeper.sandbox.protocol import Start
from turnkeeper.turns.box_ports import LoopOrder
from turnkeeper.turns.timing import Waiter, stop_task


class PoolNotServed(TurnkeeperError):
    """The settings name no such pool any more."""

    code = "sandbox_unavailable"


@dataclass(frozen=True, slots=True)
class Leased:
    """A turn that a runner was given."""

    box: RemoteLoopBox
    start: Start


class Offer:
    """One runner's waiting call."""

    def __init__(self) -> None:
        self.lease: asyncio.Future[Leased | None] = asyncio.get_running_loop().create_future()
        self.taken = False

    def give(self, box: RemoteLoopBox, start: Start) -> None:
        """Answers the call. Raises `RunnerLost` when nobody waits for the answer any more."""
        if self.lease.done():
            raise RunnerLost("the runner has left before its turn came")
        self.lease.set_result(Leased(box, start))

    def withdraw(self) -> None:
        """Nothing came of the turn that was on its way to it."""
        if not self.lease.done():
            self.lease.set_result(None)


@dataclass(slots=True)
class _Pool:
    idle: deque[Offer] = field(default_factory=deque[Offer])
    takers: deque[asyncio.Future[Offer]] = field(default_factory=deque[asyncio.Future[Offer]])
    expected: set[str] = field(default_factory=set[str])


class RunnerPools:
    """The pools of this process.

    `socket_dir` makes a folder for one turn's model socket and `remove` takes it away; `stir` has the queue looked at.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        socket_dir: Callable[[], Path],
        remove: Callable[[Path], None],
        stir: Callable[[], None],
        clock: Clock,
        waiter: Waiter,
        ids: IdSource,
        ttl_ms: int,
    ) -> None:
        self._pools = {name: _Pool() for name in names}
        self._socket_dir = socket_dir
        self._remove = remove
        self._stir = stir
        self._clock = clock
        self._waiter = waiter
        self._ids = ids
        self.ttl_ms = ttl_ms
        self._boxes: dict[Holder, RemoteLoopBox] = {}

    @property
    def pools(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._pools)

    def free(self) -> tuple[str, ...]:
        """Those with more runners waiting than turns on their way."""
        return tuple(name for name, pool in self._pools.items() if len(pool.idle) > len(pool.expected))

    def expect(self, turn_id: str, pool: str) -> None:
        """A turn is on its way to a runner of the pool."""
        if pool in self._pools:
            self._pools[pool].expected.add(turn_id)

    def forget(self, turn_id: str) -> None:
        """It is so no more."""
        for pool in self._pools.values():
            pool.expected.discard(turn_id)

    def box_of(self, holder: Holder) -> RemoteLoopBox | None:
        """The box of a lease, if the lease is not over."""
        return self._boxes.get(holder)

    async def loop_box(self, order: LoopOrder) -> RemoteLoopBox:
        """The next runner of the pool, waited for if need be. Raises `PoolNotServed`."""
        if order.fence is None:
            raise LocalProtocolError("a runner's box is for a turn that somebody holds")
        pool, asked_ms = self._pools.get(order.pool or ""), self._clock.monotonic_ms()
        if pool is None:
            raise PoolNotServed(f"no pool {order.pool!r} is served here")
        offer = await self._next(pool)
        self.forget(order.fence.turn_id)
        box = RemoteLoopBox(
            Holder(order.fence.turn_id, order.fence.number),
            offer.give,
            lambda box: self._gone(box, offer),
            sandbox_id=self._ids.new("sbx"),
            socket_dir=self._socket_dir(),
            clock=self._clock,
            ttl_ms=self.ttl_ms,
            start_ms=self._clock.monotonic_ms() - asked_ms,
        )
        self._boxes[box.holder] = box
        return box

    async def close(self) -> None:
        """Ends every lease: nobody listens to runners any more."""
        for box in list(self._boxes.values()):
            await box.kill()

    async def lease(self, name: str, *, wait_ms: int, draining: asyncio.Event) -> Leased | None:
        """A turn for a runner of the pool; None where none came in time, or none will. Canceled when it leaves."""
        offer, pool = Offer(), self._pools[name]
        self._enter(pool, offer)
        pause = asyncio.ensure_future(self._waiter.sleep(wait_ms))
        closing = asyncio.ensure_future(draining.wait())
        try:
            await asyncio.wait({pause, closing, offer.lease}, return_when=asyncio.FIRST_COMPLETED)
            # A turn that is on its way to this very call is waited for: its box is this runner's already.
            return await offer.lease if offer.lease.done() or offer.taken else None
        finally:
            await stop_task(pause)
            await stop_task(closing)
            offer.lease.cancel()
            if offer in pool.idle:
                pool.idle.remove(offer)

    def _enter(self, pool: _Pool, offer: Offer) -> None:
        offer.taken = False
        while pool.takers:
            taker = pool.takers.popleft()
            if not taker.done():
                offer.taken = True
                taker.set_result(offer)
                return
        pool.idle.append(offer)
        self._stir()

    async def _next(self, pool: _Pool) -> Offer:
        if pool.idle:
            offer = pool.idle.popleft()
            offer.taken = True
            return offer
        taker: asyncio.Future[Offer] = asyncio.get_running_loop().create_future()
        pool.takers.append(taker)
        try:
            return await taker
        except asyncio.CancelledError:
            if not taker.cancelled():
                # It came in the moment in which nobody wanted it any more.
                self._enter(pool, taker.result())
            raise

    def _gone(self, box: RemoteLoopBox, offer: Offer) -> None:
        offer.withdraw()
        if self._boxes.get(box.holder) is box:
            del self._boxes[box.holder]
        self._remove(box.socket_dir)
