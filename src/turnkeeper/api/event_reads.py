"""One read of the store for all streams that want the same events (contract 11).

Answers for the cost of an event that many watch: those whom one piece of news woke ask together. A read begins after
the last one who shares it has asked, so that nobody is given less than what was committed when he asked.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from turnkeeper.api.sse import Framed, framed
from turnkeeper.events.envelope import Event

_Wanted: TypeAlias = tuple[str, int, int, str | None]


class EventSource(Protocol):
    """Where events are read."""

    async def events(
        self, session_id: str, *, after: int, limit: int, types: Sequence[str] = (), turn_id: str | None = None
    ) -> tuple[Event, ...]: ...


class EventReads:
    """The reads of one event loop."""

    def __init__(self) -> None:
        self._forming: dict[_Wanted, asyncio.Task[tuple[Framed, ...]]] = {}

    async def after(
        self, source: EventSource, session_id: str, after: int, *, limit: int, turn_id: str | None
    ) -> tuple[Framed, ...]:
        """Stored events with `sequence > after`, ascending, at most `limit`; raises what the source raises."""
        wanted = (session_id, after, limit, turn_id)
        read = self._forming.get(wanted)
        if read is None:
            # Its first step comes after those of everybody who is awake already.
            read = self._forming[wanted] = asyncio.create_task(self._read(source, wanted))
            read.add_done_callback(_retrieve)
        # One reader who goes away takes the events from nobody else.
        return await asyncio.shield(read)

    async def _read(self, source: EventSource, wanted: _Wanted) -> tuple[Framed, ...]:
        del self._forming[wanted]
        session_id, after, limit, turn_id = wanted
        events = await source.events(session_id, after=after, limit=limit, turn_id=turn_id)
        return tuple(framed(event) for event in events)


def _retrieve(read: asyncio.Task[tuple[Framed, ...]]) -> None:
    # When everybody has gone meanwhile, nobody is left to be told.
    if not read.cancelled():
        read.exception()
