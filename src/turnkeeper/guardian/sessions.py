"""Sessions in memory: a bounded cache over the store, with each session's replay memory (ACS 10.3).

Answers for which request_ids and nonces were used and for where each session stands, durable steps and those in
flight together. Must never forget a session that has a step in flight, nor say "new" of an id it cannot know: beyond
its memory it asks the store.
"""

import asyncio
from collections import OrderedDict
from concurrent.futures import Executor

from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.ports import (
    GuardianStore,
    SessionProgress,
    SessionTerms,
    StoredSession,
    UsedBefore,
)
from turnkeeper.guardian.provenance import Lineage


class ReplayMemory:
    """The newest ids of one session. `complete` says that no older one exists."""

    def __init__(
        self,
        *,
        max_ids: int,
        request_ids: tuple[str, ...],
        nonces: tuple[str, ...],
        complete: bool,
        methods: tuple[str, ...] = (),
    ) -> None:
        self._max_ids = max_ids
        self._request_ids = dict.fromkeys(request_ids, "") | dict(zip(request_ids, methods, strict=False))
        self._nonces = dict.fromkeys(nonces, "")
        self.complete = complete

    def has_request_id(self, request_id: str) -> bool:
        """Whether the id is among those remembered."""
        return request_id in self._request_ids

    def has_nonce(self, nonce: str) -> bool:
        """Whether the nonce is among those remembered."""
        return nonce in self._nonces

    def method_of(self, request_id: str) -> str | None:
        """The method of the entry that a remembered request has; None where it has none or is not remembered."""
        return self._request_ids.get(request_id) or None

    def add_request_id(self, request_id: str, method: str = "") -> None:
        """Remembers an id and the method of its entry, forgetting the oldest one above the limit."""
        self._add(self._request_ids, request_id, method)

    def add_nonce(self, nonce: str) -> None:
        """Remembers a nonce, forgetting the oldest one above the limit."""
        self._add(self._nonces, nonce, "")

    def _add(self, known: dict[str, str], value: str, method: str) -> None:
        known[value] = method
        if len(known) > self._max_ids:
            del known[next(iter(known))]
            self.complete = False


class LiveSession:
    """A session that is being worked with. `in_flight` counts its records that are not durable yet."""

    def __init__(
        self, terms: SessionTerms, progress: SessionProgress, memory: ReplayMemory, lineage: Lineage | None = None
    ) -> None:
        self.terms = terms
        self.progress = progress
        self.memory = memory
        self.lineage = Lineage() if lineage is None else lineage
        self.in_flight = 0

    def pin(self) -> None:
        """Keeps the session in memory until `unpin`."""
        self.in_flight += 1

    def unpin(self) -> None:
        """Takes one `pin` back."""
        self.in_flight -= 1


class Sessions:
    """Finds sessions, in memory or in the store. Must run on one event loop."""

    def __init__(self, store: GuardianStore, reader: Executor, *, max_sessions: int, max_ids: int) -> None:
        self._store = store
        self._reader = reader
        self._max_sessions = max_sessions
        self._max_ids = max_ids
        self._live: OrderedDict[str, LiveSession] = OrderedDict()
        self._loading: dict[str, asyncio.Task[bool]] = {}

    def __len__(self) -> int:
        return len(self._live)

    async def find(self, session_id: str) -> LiveSession | None:
        """The session, or None where there is none. Raises `StoreFailed`, `SessionArchived`.

        What it returns is current only until the caller next awaits.
        """
        while True:
            live = self._live.get(session_id)
            if live is not None:
                self._live.move_to_end(session_id)
                return live
            # Another session may push this one out between its load and our turn; then it is loaded again.
            if not await self._load_once(session_id):
                return self._live.get(session_id)

    async def find_used(
        self, session_id: str, request_id: str, nonce: str | None, reference: str | None = None
    ) -> UsedBefore:
        """What the store knows of these ids. Raises `StoreFailed`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, self._store.find_used, session_id, request_id, nonce, reference)

    async def find_approval(self, session_id: str, request_id: str) -> Approval | None:
        """The question that a step of a session raised, as the store has it. Raises `StoreFailed`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, self._store.find_approval, session_id, request_id)

    def create(self, terms: SessionTerms) -> LiveSession:
        """A session that has only just shaken hands. It is not in the cache before `keep`."""
        memory = ReplayMemory(max_ids=self._max_ids, request_ids=(), nonces=(), complete=True)
        return LiveSession(terms, SessionProgress(), memory)

    def keep(self, live: LiveSession) -> None:
        """Puts a session into the cache and lets the oldest idle ones go."""
        self._live[live.terms.session_id] = live
        if len(self._live) > self._max_sessions:
            self._evict(live)

    def forget(self, session_id: str) -> None:
        """Lets one session go, unless a step of it is in flight."""
        live = self._live.get(session_id)
        if live is not None and live.in_flight == 0:
            del self._live[session_id]

    def drop_all(self) -> None:
        """Forgets everything in memory: what is durable is read again."""
        self._live.clear()

    def _evict(self, kept: LiveSession) -> None:
        for session_id, other in list(self._live.items()):
            if len(self._live) <= self._max_sessions:
                return
            if other is not kept and other.in_flight == 0:
                del self._live[session_id]

    async def _load_once(self, session_id: str) -> bool:
        loading = self._loading.get(session_id)
        if loading is None:
            loading = asyncio.get_running_loop().create_task(self._load(session_id))
            self._loading[session_id] = loading
            loading.add_done_callback(lambda done: self._loaded(session_id, done))
        return await asyncio.shield(loading)

    async def _load(self, session_id: str) -> bool:
        loop = asyncio.get_running_loop()
        stored = await loop.run_in_executor(self._reader, self._store.load_session, session_id, self._max_ids)
        if stored is not None and session_id not in self._live:
            self.keep(self._revived(stored))
        return stored is not None

    def _loaded(self, session_id: str, done: asyncio.Task[bool]) -> None:
        self._loading.pop(session_id, None)
        if not done.cancelled():
            done.exception()

    def _revived(self, stored: StoredSession) -> LiveSession:
        memory = ReplayMemory(
            max_ids=self._max_ids,
            request_ids=stored.request_ids,
            nonces=stored.nonces,
            complete=stored.complete,
            methods=stored.methods,
        )
        return LiveSession(stored.terms, stored.progress, memory, Lineage(stored.lineage))
