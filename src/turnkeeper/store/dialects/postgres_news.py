"""What processes on one PostgreSQL tell each other: that something was committed, and that a worker lives.

News goes out after its commit, many topics at once, and is only ever a reason to look; who polls misses nothing when it
is lost. A worker holds an advisory lock on its listening connection: the server frees it when the process ends, and
whoever finds it free twice takes over. Must never take a server that was started anew for workers that ended.
"""

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final

import orjson
import psycopg
import structlog
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from sqlalchemy.engine import URL

from turnkeeper.store.dialects.postgres import NOTICE_LOST_CLIENTS, NOTICE_LOST_SERVER, server_options
from turnkeeper.store.dialects.postgres_texts import PostgresTexts
from turnkeeper.turns.takeover import OwnerTaken
from turnkeeper.turns.timing import stop_task
from turnkeeper.turns.wakeups import LocalWakeups

CHANNEL: Final = "turnkeeper_news"
RECONNECT_MS: Final = 100
MAX_RECONNECT_MS: Final = 5_000
CONNECT_TIMEOUT_S: Final = 10

_LOCKS: Final = 0x7475726F
"""The advisory locks of workers; any constant that nobody else uses."""
_KNOWN: Final = "SELECT id FROM workers WHERE id = ANY(%s) AND hold = pg_postmaster_start_time()::text"
_HELD: Final = (
    "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid = %s"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_ENTER: Final = (
    "INSERT INTO workers (id, host, pid, hold, started_at) VALUES (%s, %s, %s, pg_postmaster_start_time()::text,"
    " (extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT (id) DO UPDATE SET hold = excluded.hold"
)
_LEAVE: Final = "DELETE FROM workers WHERE id = %s"
_FORGET: Final = (
    "DELETE FROM workers WHERE hold IS DISTINCT FROM pg_postmaster_start_time()::text AND NOT EXISTS"
    " (SELECT 1 FROM turns WHERE turns.owner = workers.id)"
)
_TELL: Final = "SELECT pg_notify(note.channel, note.said) FROM unnest(%s::text[], %s::text[]) AS note(channel, said)"

_log = structlog.get_logger(__name__)

Connection = psycopg.AsyncConnection[TupleRow]


class PostgresNews:
    """One process's ear and voice. `owner` is the worker that it is, if it is one. Implements `Liveness`."""

    def __init__(self, url: URL, wakeups: LocalWakeups, owner: str | None, texts: PostgresTexts | None = None) -> None:
        self._address = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._wakeups = wakeups
        self._owner = owner
        self._texts = texts
        self._loop = asyncio.get_running_loop()
        self._outgoing: set[str] = set()
        self._unsent = asyncio.Event()
        self._voice: Connection | None = None
        self._missing: frozenset[str] = frozenset()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Hears and tells until the end of the block. Raises `OwnerTaken`, and what a first connection raises."""
        ear = await self._listening()
        if ear is None:
            raise OwnerTaken(f"another process works as {self._owner}")
        tasks = [asyncio.create_task(self._hear(ear)), asyncio.create_task(self._tell())]
        self._wakeups.relay = self.tell
        if self._texts is not None:
            self._texts.wake = self._unsent.set
            self._texts.attach()
        try:
            yield
        finally:
            self._wakeups.relay = None
            if self._texts is not None:
                self._texts.detach()
            await self._leave()
            for task in tasks:
                await stop_task(task)

    def tell(self, topic: str) -> None:
        """Something about `topic` was committed here. From any thread."""
        # The loop may have ended; then nobody is left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._add, topic)

    async def gone(self, owners: Collection[str]) -> frozenset[str]:
        """Those whose lock was free the last time too; a worker whose connection was cut has had time to take it."""
        try:
            missing = await self._without_lock(owners) if owners else frozenset[str]()
        except (psycopg.Error, OSError) as error:
            _log.warning("workers_not_seen", error=type(error).__name__)
            missing = frozenset[str]()
        gone, self._missing = missing & self._missing, missing
        return gone

    async def _without_lock(self, owners: Collection[str]) -> frozenset[str]:
        voice = await self._speaking()
        held = {row[0] for row in await (await voice.execute(_HELD, (_LOCKS,))).fetchall()}
        if self._owner is not None and _lock_of(self._owner) & 0xFFFFFFFF not in held:
            # Where not even our own is there, it is the server or the network that has lost it.
            return frozenset()
        known = [row[0] for row in await (await voice.execute(_KNOWN, ([*owners],))).fetchall()]
        return frozenset(owner for owner in known if _lock_of(owner) & 0xFFFFFFFF not in held)

    def _add(self, topic: str) -> None:
        self._outgoing.add(topic)
        self._unsent.set()

    def _taken(self) -> list[tuple[str, str]]:
        topics, self._outgoing = self._outgoing, set()
        return [(CHANNEL, topic) for topic in topics] + ([] if self._texts is None else self._texts.take())

    async def _tell(self) -> None:
        while True:
            await self._unsent.wait()
            self._unsent.clear()
            notes = self._taken()
            try:
                if notes:
                    channels, said = zip(*notes, strict=True)
                    await (await self._speaking()).execute(_TELL, ([*channels], [*said]))
            except (psycopg.Error, OSError) as error:
                # Whoever waits for it polls; a later topic will find a connection.
                _log.warning("news_not_told", notes=len(notes), error=type(error).__name__)
                await asyncio.sleep(RECONNECT_MS / 1000)

    async def _hear(self, ear: Connection) -> None:
        pause_ms = RECONNECT_MS
        while True:
            try:
                async with ear:
                    async for note in ear.notifies():
                        pause_ms = RECONNECT_MS
                        if self._texts is None or not self._texts.hear(note.channel, note.payload):
                            self._wakeups.ring(note.payload)
            except (psycopg.Error, OSError) as error:
                _log.warning("news_cut_off", error=type(error).__name__)
            ear, pause_ms = await self._heard_again(pause_ms)

    async def _heard_again(self, pause_ms: int) -> tuple[Connection, int]:
        while True:
            try:
                ear = await self._listening()
            except (psycopg.Error, OSError) as error:
                _log.warning("news_cut_off", error=type(error).__name__)
            else:
                if ear is not None:
                    return ear, pause_ms
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, MAX_RECONNECT_MS)

    async def _listening(self) -> Connection | None:
        """A new ear, with the worker's lock; None while another connection has that."""
        ear = await self._connected()
        try:
            if self._owner is None or await self._enter(ear):
                for channel in (CHANNEL, *(() if self._texts is None else self._texts.channels)):
                    await ear.execute(f"LISTEN {channel}".encode())
                return ear
        except BaseException:
            await ear.close()
            raise
        await ear.close()
        return None

    async def _enter(self, ear: Connection) -> bool:
        """Takes the worker's lock and says so; False while another connection has it."""
        owner = str(self._owner)
        taken = await (await ear.execute("SELECT pg_try_advisory_lock(%s, %s)", (_LOCKS, _lock_of(owner)))).fetchone()
        if taken is None or not taken[0]:
            return False
        await ear.execute(_ENTER, (owner, orjson.dumps(socket.gethostname()).decode(), os.getpid()))
        await ear.execute(_FORGET)
        return True

    async def _leave(self) -> None:
        with suppress(psycopg.Error, OSError):
            voice = await self._speaking()
            async with voice:
                if self._owner is not None:
                    await voice.execute(_LEAVE, (self._owner,))

    async def _speaking(self) -> Connection:
        if self._voice is None or self._voice.closed:
            self._voice = await self._connected()
        return self._voice

    async def _connected(self) -> Connection:
        return await psycopg.AsyncConnection.connect(
            # A name whose holder has vanished must be free before long.
            make_conninfo(self._address, options=server_options(NOTICE_LOST_CLIENTS), **NOTICE_LOST_SERVER),
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="turnkeeper news",
        )


def _lock_of(owner: str) -> int:
    return int.from_bytes(hashlib.sha256(owner.encode()).digest()[:4], "big", signed=True)
