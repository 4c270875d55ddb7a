"""The text that one stream shows while it is written (contract 11): a snapshot first, then what is new.

Answers for a reader who sees a piece only after the `message.started` that belongs to it and never after its
`message.completed`. Nothing is queued for him: what he has not seen is taken from the open text when there is room, and
one who fell behind gets the whole in one `message.snapshot`. Must never hold up a stored event or wait for a reader.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol, cast

import orjson

from turnkeeper.api.sse import FrameBuffer, passing_frame
from turnkeeper.clock import Clock
from turnkeeper.events.catalogue import TERMINAL_TYPES
from turnkeeper.events.envelope import Event, NewEvent, PassingEvent
from turnkeeper.events.texts import message_delta, message_snapshot, reasoning_delta
from turnkeeper.ids import IdSource
from turnkeeper.turns.model import Agent, Session
from turnkeeper.turns.open_texts import OpenText, OpenTexts, TextKind, text_topic
from turnkeeper.turns.wakeups import Watch

CROWDED_FRAMES: Final = 64
"""A reader who has so many frames before him is behind: he gets no deltas, and a snapshot once he has caught up."""
LOOK_AGAIN_MS: Final = 100
IDLE_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class TextScope:
    """Whose open texts a stream shows: those of the turn that was active when it began, and of later ones."""

    session_id: str
    project_id: str
    turn_id: str | None
    active_turn_id: str | None
    head_sequence: int
    types: frozenset[str]

    def has(self, text: OpenText) -> bool:
        """Whether the text may be shown here. One of a turn that had ended before is a leftover."""
        if self.turn_id is not None and text.turn_id != self.turn_id:
            return False
        return text.turn_id == self.active_turn_id or text.after > self.head_sequence


class Agents(Protocol):
    """Where an agent's version is read."""

    async def agent(self, agent_id: str, version: int | None = None) -> Agent: ...


class TextNews(Protocol):
    """Where it is heard that a text has grown."""

    def watch(self, topic: str) -> AbstractContextManager[Watch]: ...


async def text_scope(
    agents: Agents, session: Session, *, turn_id: str | None, types: frozenset[str]
) -> TextScope | None:
    """What a stream of the session may show before it was decided on: nothing, unless its agent says so."""
    agent = await agents.agent(session.agent_id, session.agent_version)
    if not agent.stream_before_decision:
        return None
    return TextScope(session.id, session.project_id, turn_id, session.active_turn_id, session.last_sequence, types)


def open_messages(texts: OpenTexts, session: Session) -> list[OpenText]:
    """The messages of the active turn that are being written as of the session's last sequence."""
    return [
        text
        for text in texts.of_session(session.id)
        if text.kind == "message" and text.turn_id == session.active_turn_id and text.after <= session.last_sequence
    ]


class StreamedTexts:
    """The texts of one stream. `position` is the last sequence that was passed on."""

    def __init__(
        self,
        scope: TextScope,
        texts: OpenTexts,
        buffer: FrameBuffer,
        position: Callable[[], int],
        *,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._scope = scope
        self._texts = texts
        self._buffer = buffer
        self._position = position
        self._clock = clock
        self._ids = ids
        self._shown: dict[tuple[str, TextKind], int | None] = {}
        self._over: set[str] = set()
        self._moved = asyncio.Event()

    async def follow(self, news: TextNews) -> None:
        """Shows what is written until it is canceled."""
        with news.watch(text_topic(self._scope.session_id)) as watch:
            while True:
                waits = self._show_all()
                await self._more(watch, LOOK_AGAIN_MS if waits else IDLE_MS)

    def passed(self, event: Event) -> None:
        """A stored event is about to be passed on: what it ends is not shown any more, what it begins may be."""
        if event.type == "message.completed":
            self._over.add(cast("str", orjson.loads(event.data)["message_id"]))
        elif event.type in TERMINAL_TYPES:
            self._over.add(str(event.turn_id))
        elif event.type == "message.started":
            self._moved.set()

    async def _more(self, watch: Watch, timeout_ms: int) -> None:
        ringing = asyncio.ensure_future(watch.wait(timeout_ms=timeout_ms))
        moving = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait({ringing, moving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ringing.cancel()
            moving.cancel()
        self._moved.clear()

    def _show_all(self) -> bool:
        """Shows what there is room for; whether there is more."""
        texts = [text for text in self._texts.of_session(self._scope.session_id) if self._scope.has(text)]
        known = {text.key for text in texts}
        self._shown = {key: shown for key, shown in self._shown.items() if key in known}
        open_still = [text for text in texts if not {text.message_id, text.turn_id} & self._over]
        return not all(self._show(text) for text in open_still if text.after <= self._position())

    def _show(self, text: OpenText) -> bool:
        # What was begun before this stream comes whole; of what begins now nothing can have been missed.
        shown = self._shown.setdefault(text.key, None if text.after <= self._scope.head_sequence else 0)
        if text.offset <= (shown or 0):
            return True
        new = _news_of(text, shown)
        wanted = not self._scope.types or new.type in self._scope.types
        if wanted and not self._offer(new):
            self._shown[text.key] = None
            return False
        self._shown[text.key] = text.offset
        return True

    def _offer(self, new: NewEvent) -> bool:
        if self._buffer.waiting >= CROWDED_FRAMES:
            return False
        passing = PassingEvent(
            self._ids.new("evt"), self._clock.now(), self._scope.project_id, self._scope.session_id, new
        )
        return self._buffer.offer(passing_frame(passing))


def _news_of(text: OpenText, shown: int | None) -> NewEvent:
    turn_id, attempt, message_id, offset = text.turn_id, text.attempt, text.message_id, shown or 0
    if text.kind == "reasoning":
        return reasoning_delta(
            turn_id=turn_id, attempt=attempt, message_id=message_id, offset=offset, text=text.text[offset:]
        )
    if shown is None:
        return message_snapshot(turn_id=turn_id, attempt=attempt, message_id=message_id, text=text.text)
    return message_delta(
        turn_id=turn_id, attempt=attempt, message_id=message_id, offset=offset, text=text.text[offset:]
    )
