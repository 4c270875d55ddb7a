"""A turn store filled with many finished and waiting turns, faster than they could be run.

Answers for rows as the store's own writers make them: a few whole sessions are written through the store with ids that
carry a mark, and the database then copies them with a number in the mark's place, in every text, JSON included.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Connection, Table, Text, create_engine, text
from tests.contract.pause_samples import a_pause
from tests.contract.store_rig import ANSWER, CALL, Heard, Rig, a_note, a_step, has_started, is_starting

from turnkeeper.clock import SystemClock
from turnkeeper.ids import Prefix, RandomIds
from turnkeeper.store.tables import metadata
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.model import StepAnswer

FINISHED_MARK: Final = "MARKFFFF"
WAITING_MARK: Final = "MARKWWWW"
PARKED_MARK: Final = "MARKPPPP"
"""What a copy has a number of its own for; each may stand in an id."""

KEYS: Final = 10
FINISHED_PER_SESSION: Final = 20
WAITING_PER_SESSION: Final = 10
NOTES: Final = 3


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many turns there are to be: a multiple of 20 that have ended, of 100 that wait, and paused ones."""

    finished: int
    waiting: int
    parked: int


class MarkedIds:
    """Ids with a mark, as `ses_0000000000MARKFFFF00000001`; an agent's has none, so that all copies share it."""

    def __init__(self) -> None:
        self.mark = FINISHED_MARK
        self._random = RandomIds(SystemClock())
        self._last = 0

    def new(self, prefix: Prefix) -> str:
        self._last += 1
        return self._random.new(prefix) if prefix == "agt" else f"{prefix}_0000000000{self.mark}{self._last:08d}"

    def uuid(self) -> str:
        self._last += 1
        return f"{self.mark}-0000-4000-8000-0000{self._last:08d}"


def fill(url: str, crowd: Crowd) -> None:
    """Fills the store behind `url`, whose tables must be there."""
    asyncio.run(_write_originals(url, crowd))
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            _number(connection, max(crowd.finished, crowd.waiting, crowd.parked))
            for table in metadata.sorted_tables:
                _copy(connection, table, FINISHED_MARK, crowd.finished // FINISHED_PER_SESSION - 1)
                _copy(connection, table, WAITING_MARK, crowd.waiting // WAITING_PER_SESSION // KEYS - 1)
                _copy(connection, table, PARKED_MARK, crowd.parked - 1)
        if engine.dialect.name == "postgresql":
            # Its own keeper would do so within a minute; SQLite is never asked to by the product.
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("ANALYZE"))
    finally:
        engine.dispose()


async def _write_originals(url: str, crowd: Crowd) -> None:
    ids, clock, heard = MarkedIds(), SystemClock(), Heard()
    store = await SqlTurnStore.open(url, clock=clock, ids=ids, wakeups=heard)
    # Its clock is only there for tests that set one.
    rig = Rig(url, store, clock, heard, RandomIds(clock))  # pyright: ignore[reportArgumentType]
    try:
        if crowd.finished:
            await _finish_turns(rig, ids)
        ids.mark = PARKED_MARK
        if crowd.parked:
            fence = await rig.running(idempotency_key=PARKED_MARK, fingerprint="f")
            await store.pause(fence, a_pause(clock, ids, fence), [])
            await store.park(fence, [])
        ids.mark = WAITING_MARK
        for number in range(KEYS if crowd.waiting else 0):
            session_id = (await rig.session()).id
            for turn in range(WAITING_PER_SESSION):
                key = f"{WAITING_MARK} {number} {turn}"
                await rig.accept(session_id, idempotency_key=key, fingerprint="f", api_key_id=f"key_{number}")
    finally:
        await store.close()


async def _finish_turns(rig: Rig, ids: MarkedIds) -> None:
    session_id, store = (await rig.session()).id, rig.store
    for number in range(FINISHED_PER_SESSION):
        key = f"{FINISHED_MARK} {number}"
        await rig.accept(session_id, idempotency_key=key, fingerprint="f", api_key_id="key_0")
        fence = (await rig.claim()).fence
        await store.starting(fence, [is_starting(fence.turn_id)])
        await store.started(fence, [has_started(fence.turn_id)])
        await store.reserve(fence, input_tokens=1, max_output_tokens=500)
        await store.settle(fence, CALL)
        await store.record(fence, [a_note(fence.turn_id)] * NOTES)
        step = await store.ask_step(session_id, a_step(rig.ids, fence.turn_id, request_id=ids.uuid()), fence, [])
        await store.answer_step(session_id, step.request_id, StepAnswer("answered", "allow", "h"), fence, [])
        await store.end(fence, ANSWER)


def _number(connection: Connection, count: int) -> None:
    connection.execute(text("CREATE TEMPORARY TABLE copies (number INTEGER PRIMARY KEY, digits TEXT NOT NULL)"))
    rows = [{"number": number, "digits": f"{number:08d}"} for number in range(1, count + 1)]
    connection.execute(text("INSERT INTO copies (number, digits) VALUES (:number, :digits)"), rows)


def _copy(connection: Connection, table: Table, mark: str, copies: int) -> None:
    names = ", ".join(column.name for column in table.c)
    values = ", ".join(_copied(column, mark) for column in table.c)
    marked = " OR ".join(f"{column} LIKE '%{mark}%'" for column in table.primary_key if _is_text(column))
    if marked:
        source = f"{table.name} CROSS JOIN copies WHERE copies.number <= {copies} AND ({marked})"
        connection.execute(text(f"INSERT INTO {table.name} ({names}) SELECT {values} FROM {source}"))


def _copied(column: Column[Any], mark: str) -> str:
    if str(column) == "steps.request_id":
        # Some are made from an event's id, bit by bit; what they begin with is the same in all.
        return "copies.digits || substr(steps.request_id, 9)"
    return f"replace({column}, '{mark}', copies.digits)" if _is_text(column) else str(column)


def _is_text(column: Column[Any]) -> bool:
    return isinstance(column.type, Text) or isinstance(getattr(column.type, "impl_instance", None), Text)
