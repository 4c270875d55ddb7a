"""One open event stream, from the store to the wire (contract 11).

Answers for every stored event after the start, each once, in order, with no seam between stored and live: it watches
before it reads and goes on from the last sequence. Must never drop a stored event, wait for a reader for ever, or
cancel anything when a connection is lost.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.sse import FIRST_LINE, ClosingReason, FrameBuffer, closing_frame, event_frame, ready_frame
from turnkeeper.api.stream_texts import StreamedTexts, TextScope
from turnkeeper.events.catalogue import TERMINAL_TYPES
from turnkeeper.events.envelope import Event
from turnkeeper.turns.model import ApiKey
from turnkeeper.turns.ports import deletion_topic

BATCH_EVENTS: Final = 32
SLOW_READER_MS: Final = 10_000
CLOSE_GRACE_MS: Final = 5_000
SESSION_ENDING: Final = "session.closed"
STREAMS_PER_POLL: Final = 100
"""Up to this many open streams look for lost news every `poll_ms`; more of them look less often."""

T = TypeVar("T")


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
        reason = await self._until_over()
        self._buffer.close(closing_frame(reason, after=self._position))

    async def _until_over(self) -> ClosingReason:
        async with _Tasks() as tasks:
            following = tasks.start(self._follow())
            stopping = tasks.start(self._deps.streams.draining.wait())
            shut = tasks.start(self._until_shut())
            if self._texts is not None:
                tasks.start(self._texts.follow(self._deps.news))
            await asyncio.wait(
                {following, stopping, shut},
                timeout=self._deps.settings.sse_max_age_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if following.done():
                return following.result()
            if stopping.done():
                return "deploy"
            return shut.result() if shut.done() else "max_age"

    async def _follow(self) -> ClosingReason:
        plan = self._plan
        closed = plan.closed
        with self._deps.news.watch(plan.session_id) as watch:
            await self._put(FIRST_LINE + _ready(plan))
            while True:
                events = await self._deps.event_reads.after(
                    self._deps.store, plan.session_id, self._position, limit=BATCH_EVENTS, turn_id=plan.turn_id
                )
                for event in events:
                    if not await self._pass_on(event):
                        return "slow_consumer"
                    if plan.to_turn_end and event.type in TERMINAL_TYPES:
                        return "turn_ended"
                    closed = closed or event.type == SESSION_ENDING
                if len(events) < BATCH_EVENTS:
                    if closed:
                        return "session_closed"
                    await watch.wait(timeout_ms=self._poll_ms())

    def _poll_ms(self) -> int:
        # The look for news that got lost, by all streams together no more than so often.
        return self._deps.settings.poll_ms * max(1, self._deps.streams.open_count // STREAMS_PER_POLL)

    async def _pass_on(self, event: Event) -> bool:
        if self._texts is not None:
            self._texts.passed(event)
        wanted = not self._plan.types or event.type in self._plan.types
        if wanted and not await self._put(event_frame(event)):
            return False
        self._position = event.sequence
        return True

    async def _put(self, frame: bytes) -> bool:
        return await self._buffer.put(frame, timeout_ms=self._slow_reader_ms)

    async def _until_shut(self) -> ClosingReason:
        deps, session_id = self._deps, self._plan.session_id
        with deps.news.watch(deletion_topic(session_id)) as watch:
            while True:
                await watch.wait(timeout_ms=deps.settings.sse_heartbeat_ms)
                admission = await deps.access.admit(self._caller.secret_sha256, [session_id])
                if admission is None or not admission.key.is_valid(deps.clock.now()):
                    return "unauthorized"
                named = admission.named[session_id]
                if named is not None and named.deleted_at is not None:
                    return "session_deleted"


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
