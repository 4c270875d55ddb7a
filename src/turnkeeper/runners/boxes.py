"""A loop box whose other side is a runner elsewhere: its HTTP calls are the frames, the answers to them are ours.

Answers for one question at a time, for a lease that ends when nobody beats it, and for the end of everything that is
open once the worker lets go. INVARIANT: who comes after that, or with the word of another lease, reaches no frame.
The runner is not believed to be gone; it is only not heard any more, so what it does elsewhere is no part of the turn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from turnkeeper.clock import Clock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.runners.texts import StreamedTexts
from turnkeeper.runners.tokens import Holder
from turnkeeper.sandbox.protocol import (
    Cancel,
    Canceled,
    FromHarness,
    HarnessProtocolError,
    Report,
    Start,
    Started,
    TextDelta,
    ToHarness,
    ToolAsked,
    ToolRan,
)
from turnkeeper.turns.box_ports import LoopEndReason
from turnkeeper.turns.timing import stop_task

MAX_WAITING_FRAMES: Final = 64
MAX_OPEN_QUESTIONS: Final = 64
MAX_RUNNER_BYTES: Final = 64 << 20
"""How much one lease may send, model calls apart."""
MAX_REFUSALS: Final = 100
"""Calls of one lease that were refused; with the next the runner counts as one that does not know the protocol."""

T = TypeVar("T")


class RunnerLost(TurnkeeperError):
    """The runner does not answer any more, or its lease is over. For the worker."""

    code = "sandbox_lost"


class LeaseOver(TurnkeeperError):
    """The turn is no longer this runner's. For the runner: stop, and report nothing more."""

    code = "stale_attempt"


class AskedToStop(TurnkeeperError):
    """The turn is to stop. For the runner: report now, nothing else is answered."""

    code = "cancel_requested"


class StaleBeat(TurnkeeperError):
    """A heartbeat that is not the one after the last; `detail` has the `beat` that is expected."""

    code = "stale_beat"


class TooManyQuestions(TurnkeeperError):
    """More questions at one time than a lease may have open."""

    code = "too_many_questions"


@dataclass(frozen=True, slots=True)
class Stop:
    """What the runner is told of a cancel."""

    grace_ms: int
    deadline: datetime


@dataclass(slots=True)
class _Open:
    frame: FromHarness
    answer: asyncio.Future[ToHarness]


class RemoteLoopBox:
    """`turns.box_ports.LoopBox` with a runner at the other end.

    `give` hands the start to the runner's waiting call and raises `RunnerLost` when it has left. `on_gone` is called
    once the worker has let go.
    """

    def __init__(
        self,
        holder: Holder,
        give: Callable[["RemoteLoopBox", Start], None],
        on_gone: Callable[["RemoteLoopBox"], None],
        *,
        sandbox_id: str,
        socket_dir: Path,
        clock: Clock,
        ttl_ms: int,
        start_ms: int,
    ) -> None:
        self.holder = holder
        self.sandbox_id = sandbox_id
        self.socket_dir = socket_dir
        self.gateway_socket = ""
        self.warm = True
        self.start_ms = start_ms
        self.end_reason: LoopEndReason | None = None
        self.diagnostics = ""
        self.start: Start | None = None
        self.stop: Stop | None = None
        self.accepted: str | None = None
        self._running = asyncio.Event()
        self._has_started = False
        self.texts = StreamedTexts()
        self.beat = 0
        self.worker_seq = 0
        self._give = give
        self._on_gone = on_gone
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._beaten_ms = clock.monotonic_ms()
        self._frames: asyncio.Queue[FromHarness | TurnkeeperError] = asyncio.Queue()
        self._room = asyncio.Semaphore(MAX_WAITING_FRAMES)
        self._one_at_a_time = asyncio.Lock()
        self._open: _Open | None = None
        self._asked: OrderedDict[tuple[str, str], tuple[FromHarness, asyncio.Task[ToHarness]]] = OrderedDict()
        self._questions: set[asyncio.Task[ToHarness]] = set()
        self._gone = asyncio.Event()
        self._received_bytes = 0
        self._refusals = 0

    @property
    def is_gone(self) -> bool:
        """Whether the worker has let go."""
        return self._gone.is_set()

    async def send(self, frame: ToHarness) -> None:
        """A frame for the runner: the turn itself, word of a cancel, or the answer that it waits for."""
        if self._gone.is_set():
            raise RunnerLost("the lease is over")
        if isinstance(frame, Start):
            self.start, self.accepted = frame, frame.accepted
            self._beaten_ms = self._clock.monotonic_ms()
            self._give(self, frame)
        elif isinstance(frame, Cancel):
            self._tell_to_stop(frame)
        elif self._open is not None and not self._open.answer.done():
            self._open.answer.set_result(frame)

    async def receive(self) -> FromHarness:
        """What the runner asks or tells next. Raises `RunnerLost`, `HarnessProtocolError`; the lease is over then."""
        if self._has_started and self._frames.empty():
            # The worker wants the next frame: it has written down that the turn runs.
            self._running.set()
        while True:
            left_ms = self._beaten_ms + self._ttl_ms - self._clock.monotonic_ms()
            try:
                async with asyncio.timeout(max(left_ms, 0) / 1000):
                    frame = await self._frames.get()
            except TimeoutError:
                if self._clock.monotonic_ms() - self._beaten_ms < self._ttl_ms:
                    continue
                self.end_reason = "lease_expired"
                await self.kill()
                raise RunnerLost(f"no heartbeat within {self._ttl_ms} ms") from None
            self._room.release()
            if isinstance(frame, TurnkeeperError):
                await self.kill()
                raise frame
            return frame

    async def kill(self) -> None:
        """Nothing of this runner is heard any more."""
        if self._gone.is_set():
            return
        self._gone.set()
        self._frames.put_nowait(RunnerLost("the lease is over"))
        if self._open is not None and not self._open.answer.done():
            self._open.answer.set_exception(_over(self.holder))
        self._on_gone(self)

    def pay_for(self, received_bytes: int) -> None:
        """Counts what the runner sent; too much of it ends the lease."""
        self._received_bytes += received_bytes
        if self._received_bytes > MAX_RUNNER_BYTES:
            self._break_off(f"the runner sent more than {MAX_RUNNER_BYTES} bytes in one lease")

    def refused(self, code: str) -> None:
        """Counts a call that was refused; too many of them end the lease."""
        self._refusals += 1
        if self._refusals > MAX_REFUSALS:
            self._break_off(f"{self._refusals} calls of the runner were refused, the last as {code}")

    def beat_again(self, beat: int) -> None:
        """The runner lives. Raises `LeaseOver`, `StaleBeat`."""
        self.check_held()
        if beat != self.beat + 1:
            raise StaleBeat(f"the next beat is {self.beat + 1}, not {beat}", detail={"beat": self.beat + 1})
        self.beat = beat
        self._beaten_ms = self._clock.monotonic_ms()

    def expires_at(self) -> datetime:
        """When the lease ends, if it is not beaten again."""
        left_ms = self._beaten_ms + self._ttl_ms - self._clock.monotonic_ms()
        return self._clock.now() + timedelta(milliseconds=left_ms)

    def check_held(self) -> None:
        """Raises `LeaseOver` once the worker has let go."""
        if self._gone.is_set():
            raise _over(self.holder)

    async def begin(self) -> None:
        """Agent code is about to run; returns once the turn does. Raises `LeaseOver`."""
        if not self._has_started:
            self._has_started = True
            await self._put(Started(self.holder.turn_id))
        await self._unless_gone(self._running.wait())

    async def tell(self, frame: TextDelta) -> None:
        """Something that has no answer. Raises `LeaseOver`."""
        await self._put(frame)

    async def ask(self, frame: FromHarness) -> ToHarness:
        """The worker's answer; the same question about the same call has the same one.

        Raises `LeaseOver`, `AskedToStop`, `TooManyQuestions`.
        """
        key = _key_of(frame)
        earlier = None if key is None else self._asked.get(key)
        if earlier is not None and earlier[0] == frame:
            return await asyncio.shield(earlier[1])
        if len(self._questions) >= MAX_OPEN_QUESTIONS:
            raise TooManyQuestions(f"{len(self._questions)} questions of this lease are open")
        # Whoever asked may hang up; the question is out all the same, and its answer belongs to nobody else.
        asking = asyncio.ensure_future(self._ask(frame))
        self._questions.add(asking)
        asking.add_done_callback(self._answered)
        if key is not None:
            self._remember(key, frame, asking)
        return await asyncio.shield(asking)

    def _remember(self, key: tuple[str, str], frame: FromHarness, asking: asyncio.Task[ToHarness]) -> None:
        self._asked[key] = (frame, asking)
        self._asked.move_to_end(key)
        if len(self._asked) > MAX_OPEN_QUESTIONS:
            self._asked.popitem(last=False)

    def _answered(self, asking: asyncio.Task[ToHarness]) -> None:
        self._questions.discard(asking)
        if not asking.cancelled():
            # Read here, because whoever asked may have hung up.
            asking.exception()

    async def _ask(self, frame: FromHarness) -> ToHarness:
        async with self._one_at_a_time:
            self.check_held()
            is_report = isinstance(frame, Report)
            if self.stop is not None and not is_report:
                raise _to_stop()
            opened = _Open(frame, asyncio.get_running_loop().create_future())
            self._open = opened
            try:
                await self._put(Canceled(frame.text) if self.stop is not None and is_report else frame)
                return await opened.answer
            finally:
                self._open = None

    async def _put(self, frame: FromHarness) -> None:
        await self._unless_gone(self._room.acquire())
        self._frames.put_nowait(frame)

    async def _unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        working, gone = asyncio.ensure_future(work), asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            self.check_held()
            return working.result()
        finally:
            await stop_task(gone)
            await stop_task(working)

    def _tell_to_stop(self, cancel: Cancel) -> None:
        self.stop = Stop(cancel.grace_ms, self._clock.now() + timedelta(milliseconds=cancel.grace_ms))
        if self._open is None or self._open.answer.done():
            return
        if isinstance(self._open.frame, Report):
            # It has finished already: what it says is what it had said so far.
            self._frames.put_nowait(Canceled(self._open.frame.text))
        else:
            self._open.answer.set_exception(_to_stop())

    def _break_off(self, why: str) -> None:
        self._frames.put_nowait(HarnessProtocolError(why))


def _over(holder: Holder) -> LeaseOver:
    return LeaseOver(f"{holder.turn_id} is no longer this runner's", hint="Stop, and ask for another lease.")


def _to_stop() -> AskedToStop:
    return AskedToStop("the turn is to stop", hint="Report what there is before the deadline of the heartbeat.")


def _key_of(frame: FromHarness) -> tuple[str, str] | None:
    if isinstance(frame, ToolAsked | ToolRan):
        return frame.type, frame.call_id
    return None
