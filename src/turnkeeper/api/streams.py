"""One open event stream, from the store to the wire (contract 11).

Answers for every stored event after the start, each once, in order, with no seam between stored and live: it has a seat
at the session's feed before it reads, and goes on from the last sequence. Must never drop a stored event, wait for a
reader for ever, or cancel anything when a connection is lost.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.session_feeds import BATCH_EVENTS
from turnkeeper.api.sse import CUT_SHORT, FIRST_LINE, ClosingReason, FrameBuffer, Framed, closing_frame, ready_frame
from turnkeeper.api.stream_texts import StreamedTexts, TextScope
from turnkeeper.errors import TurnkeeperError
from turnkeeper.events.catalogue import TERMINAL_TYPES
from turnkeeper.events.envelope import Event
from turnkeeper.turns.model import ApiKey

SLOW_READER_MS: Final = 10_000
CLOSE_GRACE_MS: Final = 5_000
SESSION_ENDING: Final = "session.closed"
T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What to send: the events of a session after a sequence, narrowed to a turn and to types.

    `to_turn_end` ends the stream with the turn; `closed` says that the session already was when the stream began.
    `texts` are those it shows while they are written, where `deltas` is `live`.
    """

    session_id: str
    after: int
    head_sequence: int
    oldest_sequence: int
    turn_id: str | None
    types: frozenset[str]
    to_turn_end: bool
    closed: bool
    deltas: str
    texts: TextScope | None = None


class EventStreamResponse(Response):
    """The answer that is a stream. Raises `TooManyStreams` before anything is sent, unless it was given a place."""

    def __init__(
        self,
        deps: ApiDeps,
        caller: ApiKey,
        plan: StreamPlan,
        *,
        slow_reader_ms: int = SLOW_READER_MS,
        place: ExitStack | None = None,
    ) -> None:
        super().__init__(
            status_code=200,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            media_type="text/event-stream",
        )
        # Its length is not known.
        del self.headers["Content-Length"]
        self._deps = deps
        self._caller = caller
        self._plan = plan
        self._slow_reader_ms = slow_reader_ms
        self._place = place
        self._buffer = FrameBuffer()
        self._position = plan.after
        self._texts = self._streamed(plan.texts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the stream ends, the reader is gone or too slow, or the server stops."""
        with self._admitted():
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with _Tasks() as tasks:
                feeding = tasks.start(self._feed())
                writing = tasks.start(self._write(send))
                gone = tasks.start(_until_gone(receive))
                await asyncio.wait({feeding, writing, gone}, return_when=asyncio.FIRST_COMPLETED)
                if feeding.done() and feeding.exception() is None and not gone.done():
                    await asyncio.wait(
                        {writing, gone}, timeout=CLOSE_GRACE_MS / 1000, return_when=asyncio.FIRST_COMPLETED
                    )

    def _streamed(self, scope: TextScope | None) -> StreamedTexts | None:
        deps = self._deps
        if scope is None:
            return None
        return StreamedTexts(scope, deps.texts, self._buffer, lambda: self._position, clock=deps.clock, ids=deps.ids)

    def _admitted(self) -> AbstractContextManager[object]:
        if self._place is not None:
            return self._place
        return self._deps.streams.admit(self._caller.id, key_limit=self._caller.limits.streams)

    async def _write(self, send: Send) -> None:
        while (frame := await self._buffer.get(timeout_ms=self._deps.settings.sse_heartbeat_ms)) is not None:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _feed(self) -> None:
        try:
            last = closing_frame(await self._until_over(), after=self._position)
        except TurnkeeperError as error:
            # The answer has begun, so there is no other way to say it. The reader comes back, and is told why not then.
            _log.warning("stream_cut_short", session_id=self._plan.session_id, problem=error.message)
            last = CUT_SHORT
        self._buffer.close(last)

    async def _until_over(self) -> ClosingReason:
        deps, settings = self._deps, self._deps.settings
        look_ms = settings.sse_heartbeat_ms
        with deps.streams.ending() as over:
            async with _Tasks() as tasks:
                with deps.wards.guard(deps, self._caller.secret_sha256, self._plan.session_id, over, look_ms=look_ms):
                    following = tasks.start(self._follow())
                    if self._texts is not None:
                        tasks.start(self._texts.follow(deps.news))
                    await asyncio.wait(
                        {following, over}, timeout=settings.sse_max_age_ms / 1000, return_when=asyncio.FIRST_COMPLETED
                    )
                if following.done():
                    return following.result()
                return over.result() if over.done() else "max_age"

    async def _follow(self) -> ClosingReason:
        plan, deps = self._plan, self._deps
        joined = deps.feeds.join(
            deps, plan.session_id, self._take, head=plan.head_sequence, poll_ms=deps.settings.poll_ms
        )
        with joined as seat:
            await self._put(FIRST_LINE + _ready(plan))
            while True:
                seat.read_alone()
                reason = await self._read_on()
                if reason is not None:
                    return reason
                await seat.follow()

    async def _read_on(self) -> ClosingReason | None:
        """Passes on what the store has now; why the stream ends, if it does."""
        plan, closed = self._plan, self._plan.closed
        while True:
            batch = await self._deps.event_reads.after(
                self._deps.store, plan.session_id, self._position, limit=BATCH_EVENTS, turn_id=plan.turn_id
            )
            for one in batch:
                if not await self._pass_on(one):
                    return "slow_consumer"
                if self._ends_turn(one.event):
                    return "turn_ended"
                closed = closed or one.event.type == SESSION_ENDING
            if len(batch) < BATCH_EVENTS:
                return "session_closed" if closed else None

    async def _pass_on(self, one: Framed) -> bool:
        self._end_texts(one.event)
        if self._wants(one.event) and not await self._put(one.frame):
            return False
        self._passed(one.event)
        return True

    def _take(self, one: Framed) -> bool:
        """Passes on what the feed has, unless it ends the stream or does not fit: that needs a reading of its own."""
        event = one.event
        if event.sequence <= self._position or self._plan.turn_id not in {None, event.turn_id}:
            return True
        if event.type == SESSION_ENDING or self._ends_turn(event):
            return False
        self._end_texts(event)
        if self._wants(event) and not self._buffer.offer(one.frame):
            return False
        self._passed(event)
        return True

    def _end_texts(self, event: Event) -> None:
        # Before the event itself, so that no piece of a message follows its end.
        if self._texts is not None:
            self._texts.passed(event)

    def _passed(self, event: Event) -> None:
        self._position = event.sequence
        # What was stored before the stream began waited for the reader, not for us.
        if self._wants(event) and event.sequence > self._plan.head_sequence:
            self._deps.measures.streamed(event.created_at)

    def _wants(self, event: Event) -> bool:
        return not self._plan.types or event.type in self._plan.types

    def _ends_turn(self, event: Event) -> bool:
        return self._plan.to_turn_end and event.type in TERMINAL_TYPES

    async def _put(self, frame: bytes) -> bool:
        return await self._buffer.put(frame, timeout_ms=self._slow_reader_ms)


class _Tasks:
    """Tasks that end with the block: what is unfinished is canceled, what failed is raised."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(coroutine)
        self._tasks.append(task)
        return task

    async def __aenter__(self) -> "_Tasks":
        return self

    async def __aexit__(self, *_exception: object) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


def _ready(plan: StreamPlan) -> bytes:
    return ready_frame(
        after=plan.after,
        head_sequence=plan.head_sequence,
        oldest_sequence=plan.oldest_sequence,
        deltas=plan.deltas,
    )


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
