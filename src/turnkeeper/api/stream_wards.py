"""Whether streams may go on: one look once in a while for all streams of a key (contract 11 and 13).

Answers for a stream that ends with its key or its session, soon after either does. Must never let a stream go on whose
key could not be looked up.
"""

import asyncio
from collections.abc import Collection, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain, islice
from typing import Final, Protocol, TypeAlias

from turnkeeper.api.sse import ClosingReason
from turnkeeper.clock import Clock
from turnkeeper.turns.access import Admission
from turnkeeper.turns.ports import deletion_topic
from turnkeeper.turns.wakeups import Watch

SESSIONS_PER_LOOK: Final = 100

Over: TypeAlias = "asyncio.Future[ClosingReason]"
"""Why a stream ends, once it is known; or what kept from knowing."""


class Admissions(Protocol):
    """Where keys and sessions are looked up."""

    async def admit(self, secret_sha256: str, ids: Collection[str]) -> Admission | None: ...


class WardNews(Protocol):
    """Where a ward hears of deletions."""

    def also(self, topic: str, watch: Watch) -> AbstractContextManager[None]: ...


class WardSource(Protocol):
    """What a ward works with."""

    @property
    def access(self) -> Admissions: ...

    @property
    def news(self) -> WardNews: ...

    @property
    def clock(self) -> Clock: ...


class StreamWards:
    """The wards of one event loop: one per key that has streams open."""

    def __init__(self) -> None:
        self._wards: dict[str, _Ward] = {}

    @contextmanager
    def guard(
        self, source: WardSource, secret_sha256: str, session_id: str, over: Over, *, look_ms: int
    ) -> Generator[None]:
        """Sets `over` once the key or the session is no more; a look every `look_ms`, and on news of a deletion."""
        ward = self._wards.get(secret_sha256)
        if ward is None or ward.is_done:
            ward = self._wards[secret_sha256] = _Ward(source, secret_sha256, look_ms)
        ward.add(session_id, over)
        try:
            yield
        finally:
            ward.remove(session_id, over)
            if ward.is_done and self._wards.get(secret_sha256) is ward:
                del self._wards[secret_sha256]


class _Ward:
    def __init__(self, source: WardSource, secret_sha256: str, look_ms: int) -> None:
        self.is_done = False
        self._watch = Watch()
        self._heard: dict[str, ExitStack] = {}
        self._source = source
        self._secret_sha256 = secret_sha256
        self._look_ms = look_ms
        self._streams: dict[str, set[Over]] = {}
        self._looking = asyncio.create_task(self._look_on())
        self._looking.add_done_callback(self._ended)

    def add(self, session_id: str, over: Over) -> None:
        if session_id not in self._streams:
            with ExitStack() as hearing:
                hearing.enter_context(self._source.news.also(deletion_topic(session_id), self._watch))
                self._heard[session_id] = hearing.pop_all()
        self._streams.setdefault(session_id, set()).add(over)

    def remove(self, session_id: str, over: Over) -> None:
        of_session = self._streams[session_id]
        of_session.discard(over)
        if not of_session:
            del self._streams[session_id]
            self._heard.pop(session_id).close()
        if not self._streams:
            self.is_done = True
            self._looking.cancel()

    async def _look_on(self) -> None:
        while True:
            await self._watch.wait(timeout_ms=self._look_ms)
            left = iter(tuple(self._streams))
            while sessions := tuple(islice(left, SESSIONS_PER_LOOK)):
                admission = await self._source.access.admit(self._secret_sha256, sessions)
                for session_id in sessions:
                    self._judge(admission, session_id)

    def _judge(self, admission: Admission | None, session_id: str) -> None:
        if admission is None or not admission.key.is_valid(self._source.clock.now()):
            self._tell(session_id, "unauthorized")
            return
        named = admission.named[session_id]
        if named is not None and named.deleted_at is not None:
            self._tell(session_id, "session_deleted")

    def _tell(self, session_id: str, reason: ClosingReason) -> None:
        for over in self._streams.get(session_id, ()):
            if not over.done():
                over.set_result(reason)

    def _ended(self, looking: asyncio.Task[None]) -> None:
        self.is_done = True
        if looking.cancelled():
            return
        failure = looking.exception()
        for over in chain.from_iterable(self._streams.values()):
            if failure is not None and not over.done():
                over.set_exception(failure)
                # A stream that ends at this very moment for another reason asks no more.
                over.exception()
