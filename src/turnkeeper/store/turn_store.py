"""`TurnStore` on SQL: every method is one transaction of the modules beside this one.

Answers for the border between the event loop and the database's threads. After a commit it tells `wakeups` which
session changed, from the thread that committed, so that a caller who was canceled meanwhile cannot swallow the news.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Literal, TypeAlias, TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from turnkeeper.clock import Clock, epoch_ms, from_epoch_ms
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.ids import IdSource, Prefix
from turnkeeper.sealing import Sealer
from turnkeeper.store import (
    access,
    agents,
    attempts,
    blocking,
    charging,
    claiming,
    events,
    leases,
    ledger,
    loading,
    pauses,
    sessions,
    steps,
    turns,
    tx,
    withdrawals,
)
from turnkeeper.store.access_store import SqlAccessStore
from turnkeeper.store.admin import check, prepare
from turnkeeper.store.budget_store import SqlBudgetStore
from turnkeeper.store.content_database import DatabaseContents
from turnkeeper.store.creations import SqlCreations
from turnkeeper.store.engine import Database, open_engines
from turnkeeper.store.file_store import SqlFileStore
from turnkeeper.store.operations import SqlOperatorStore
from turnkeeper.store.pause_store import SqlPauses
from turnkeeper.store.post_store import SqlPosts
from turnkeeper.store.retention_store import SqlRetentionStore
from turnkeeper.store.rows import to_submission
from turnkeeper.store.secrets import SqlSecretStore
from turnkeeper.store.skills import SqlSkillStore
from turnkeeper.store.thread_store import SqlThreads
from turnkeeper.store.tx import StoreLimits, Tx
from turnkeeper.store.webhook_store import SqlWebhookStore
from turnkeeper.turns.access import NewKey
from turnkeeper.turns.budgets import Shortfall
from turnkeeper.turns.containment import all_of
from turnkeeper.turns.model import (
    PROJECT_ID,
    Agent,
    ApiKey,
    BlockedBy,
    CallGrant,
    CallRecord,
    CanceledBy,
    CancelMode,
    Claim,
    Ending,
    Fence,
    Hold,
    NewStep,
    Reach,
    Session,
    SessionReason,
    Step,
    StepAnswer,
    StepCounts,
    Submission,
    Turn,
)
from turnkeeper.turns.pausing import NewPause
from turnkeeper.turns.ports import (
    Accepted,
    CancelEffect,
    NewAgent,
    NewSession,
    NewTurn,
    Page,
    PageRequest,
    SessionFilter,
    TurnFilter,
    TurnStore,
    Wakeups,
)

T = TypeVar("T")

Observe: TypeAlias = Callable[[Sequence[Event]], None]
"""Hears, on the thread that committed, of the events of each transaction. Must be quick and raise nothing."""


def unobserved(_: Sequence[Event]) -> None:
    """For a store that nobody observes."""


class SqlTurnStore(SqlPauses, SqlPosts, SqlThreads, TurnStore):
    """The turn store on SQLite or PostgreSQL. Make one with `open`.

    `ids` is used from the store's threads, one call at a time; hand in a source that nobody else uses.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: IdSource,
        wakeups: Wakeups,
        limits: StoreLimits,
        *,
        observe: Observe,
        schedule: Clock | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ids = _SerialIds(ids)
        self._wakeups = wakeups
        self._limits = limits
        self._observe = observe
        self._schedule = schedule

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock,
        ids: IdSource,
        wakeups: Wakeups,
        limits: StoreLimits | None = None,
        read_only: bool = False,
        observe: Observe = unobserved,
        schedule: Clock | None = None,
    ) -> "SqlTurnStore":
        """The store behind `sqlite:////path` or `postgresql+psycopg://…`, its tables up to date.

        With `read_only` nothing is made and nothing migrated. `observe` hears what was committed. Deliveries are due by
        the database's clock, which all processes share, unless `schedule` is given. Raises `StoreUrlInvalid`,
        `SchemaOutdated`, `StoreUnavailable`.
        """
        engines = open_engines(url, read_only=read_only)
        database = Database(engines)
        try:
            await database.prepare(lambda: check(engines) if read_only else prepare(engines))
        except BaseException:
            await database.close()
            raise
        return cls(database, clock, ids, wakeups, limits or StoreLimits(), observe=observe, schedule=schedule)

    def webhooks(self) -> SqlWebhookStore:
        """Webhooks in the same database, for as long as this store is open."""
        return SqlWebhookStore(self._read, self._write, self._schedule_time)

    def retention(self) -> SqlRetentionStore:
        """The end of sessions, in the same database, for as long as this store is open."""
        return SqlRetentionStore(self._read, self._write, self._clock)

    def operations(self) -> SqlOperatorStore:
        """What operators see of the same database, for as long as this store is open."""
        return SqlOperatorStore(self._read, self._write, self._clock)

    def creations(self) -> SqlCreations:
        """Things made at most once, in the same database, for as long as this store is open."""
        return SqlCreations(self._write)

    def secrets(self, sealer: Sealer) -> SqlSecretStore:
        """Secrets in the same database, for as long as this store is open."""
        return SqlSecretStore(self._read, self._write, sealer)

    def skills(self) -> SqlSkillStore:
        """Skills in the same database, for as long as this store is open."""
        return SqlSkillStore(self._read, self._write)

    def files(self) -> SqlFileStore:
        """Files and artifacts in the same database, for as long as this store is open."""
        return SqlFileStore(self._read, self._write, self._limits)

    def contents(self) -> DatabaseContents:
        """Their bytes in the same database, for as long as this store is open."""
        return DatabaseContents(self._read, self._write)

    def access(self) -> SqlAccessStore:
        """Keys and whose things are, in the same database, for as long as this store is open."""
        return SqlAccessStore(self._read, self._write, self._clock)

    def budgets(self) -> SqlBudgetStore:
        """Budgets, prices and usage in the same database, for as long as this store is open."""
        return SqlBudgetStore(self._read, self._write, self._clock)

    async def close(self) -> None:
        """Waits for running transactions and closes every connection."""
        await self._database.close()

    async def agent(self, agent_id: str, version: int | None = None) -> Agent:
        return await self._read(lambda conn: agents.agent_by_id(conn, agent_id, version))

    async def agent_versions(self, agent_id: str, page: PageRequest) -> Page[Agent]:
        return await self._read(lambda conn: agents.list_versions(conn, agent_id, page))

    async def agents(self, page: PageRequest, *, reach: Reach | None = None) -> Page[Agent]:
        return await self._read(lambda conn: agents.list_agents(conn, page, reach))

    async def session(self, session_id: str) -> Session:
        return await self._read(lambda conn: loading.load_session(conn, session_id))

    async def sessions(
        self, page: PageRequest, *, agent_id: str | None = None, wanted: SessionFilter | None = None
    ) -> Page[Session]:
        return await self._read(lambda conn: loading.list_sessions(conn, page, agent_id, wanted))

    async def turn(self, turn_id: str) -> Turn:
        return await self._read(lambda conn: loading.load_turn(conn, turn_id, self._clock.now()))

    async def turns(
        self, page: PageRequest, *, session_id: str | None = None, wanted: TurnFilter | None = None
    ) -> Page[Turn]:
        now = self._clock.now()
        return await self._read(lambda conn: loading.list_turns(conn, page, session_id, now, wanted))

    async def blocker(self, session_id: str) -> BlockedBy | None:
        return await self._read(lambda conn: blocking.blocker_of(conn, session_id))

    async def submissions(self, turn_id: str) -> tuple[Submission, ...]:
        rows = await self._read(lambda conn: leases.submissions_of(conn, turn_id))
        return tuple(to_submission(row) for row in rows)

    async def event(self, event_id: str) -> Event:
        return await self._read(lambda conn: events.event_by_id(conn, event_id))

    async def events(
        self, session_id: str, *, after: int, limit: int, types: Sequence[str] = (), turn_id: str | None = None
    ) -> tuple[Event, ...]:
        return await self._read(
            lambda conn: events.events_after(conn, session_id, after=after, limit=limit, types=types, turn_id=turn_id)
        )

    async def steps(
        self,
        session_id: str,
        *,
        turn_id: str | None = None,
        before: int | None = None,
        limit: int | None = None,
        thread_id: str | None = None,
    ) -> tuple[Step, ...]:
        return await self._read(
            lambda conn: steps.steps_of(
                conn, session_id, turn_id=turn_id, before=before, limit=limit, thread_id=thread_id
            )
        )

    async def dead_letters(self, limit: int) -> tuple[Step, ...]:
        return await self._read(lambda conn: steps.dead_letters(conn, limit))

    async def ping(self) -> None:
        await self._read(lambda conn: conn.execute(select(1)).scalar_one())

    async def create_agent(self, new: NewAgent) -> Agent:
        return await self._write(lambda tx: agents.create_agent(tx, new))

    async def change_agent(self, agent_id: str, new: NewAgent, *, expected_version: int) -> Agent:
        return await self._write(lambda tx: agents.change_agent(tx, agent_id, new, expected_version=expected_version))

    async def archive_agent(self, agent_id: str) -> Agent:
        return await self._write(lambda tx: agents.archive_agent(tx, agent_id))

    async def create_session(self, new: NewSession) -> Session:
        return await self._write(lambda tx: sessions.create_session(tx, new))

    async def close_session(self, session_id: str, *, mode: Literal["drain", "cancel"], by: CanceledBy) -> Session:
        return await self._write(lambda tx: sessions.close_session(tx, session_id, mode=mode, by=by))

    async def accept_turn(self, new: NewTurn) -> Accepted:
        try:
            return await self._write(lambda tx: turns.accept_turn(tx, new))
        except IntegrityError:
            # Two sessions, one key, at the same moment: the other one has it now, and this try will see so.
            return await self._write(lambda tx: turns.accept_turn(tx, new))

    async def cancel_turn(self, turn_id: str, *, mode: CancelMode, by: CanceledBy) -> tuple[Turn, CancelEffect]:
        return await self._write(lambda tx: turns.cancel_turn(tx, turn_id, mode=mode, by=by))

    async def create_key(self, *, name: str, secret_sha256: str) -> ApiKey:
        new = NewKey(name, secret_sha256, PROJECT_ID)
        return await self._write(lambda tx: access.make_key(tx, new, actor=None))

    async def key_by_secret(self, secret_sha256: str) -> ApiKey | None:
        """The key with this secret; one that was revoked or has expired is not found."""
        now = self._clock.now()
        return await self._read(lambda conn: access.active_key(conn, secret_sha256, now))

    async def keys(self) -> tuple[ApiKey, ...]:
        return await self._read(access.all_keys)

    async def revoke_key(self, key_id: str) -> ApiKey:
        return await self._write(lambda tx: access.end_key(tx, key_id, actor=None))

    async def claim(self, owner: str, *, slot: bool, pool: str | None = None) -> Claim | None:
        return await self._write(lambda tx: claiming.claim(tx, owner, slot=slot, pool=pool or ""))

    async def expire_starts(self, limit: int) -> int:
        now = self._clock.now()
        late = await self._read(lambda conn: turns.late_starts(conn, now, limit))
        return sum(await all_of(self._write(_late_start(turn_id, session_id)) for turn_id, session_id in late))

    async def held_by_others(self, owner: str, pools: Collection[str] = ()) -> tuple[Hold, ...]:
        return await self._read(lambda conn: leases.held_by_others(conn, owner, pools))

    async def held_by(self, owner: str) -> tuple[Hold, ...]:
        return await self._read(lambda conn: leases.held_by(conn, owner))

    async def take_over(self, owner: str, holds: Sequence[Hold]) -> tuple[Claim, ...]:
        return await self._write(lambda tx: leases.take_over(tx, owner, holds))

    async def renew(self, fence: Fence) -> Turn:
        return await self._write(lambda tx: leases.renew(tx, fence))

    async def release(self, fence: Fence) -> None:
        await self._write(lambda tx: leases.release(tx, fence))

    async def starting(self, fence: Fence, events: Sequence[NewEvent]) -> Turn:
        return await self._write(lambda tx: leases.starting(tx, fence, events))

    async def started(self, fence: Fence, events: Sequence[NewEvent], *, resumed: bool = False) -> Turn:
        return await self._write(lambda tx: leases.started(tx, fence, events, resumed=resumed))

    async def retry_start(self, fence: Fence) -> Turn:
        return await self._write(lambda tx: leases.retry_start(tx, fence))

    async def retry(
        self,
        fence: Fence,
        *,
        delay_ms: int,
        active_ms: int,
        events: Sequence[NewEvent],
        steps: Sequence[NewStep] = (),
    ) -> Turn:
        return await self._write(
            lambda tx: attempts.retry(tx, fence, delay_ms=delay_ms, active_ms=active_ms, events=events, steps=steps)
        )

    async def record(self, fence: Fence, events: Sequence[NewEvent]) -> tuple[Event, ...]:
        return await self._write(lambda transaction: tx.write_turn(transaction, fence, None, events))

    async def submit(self, fence: Fence, submission: Submission, events: Sequence[NewEvent]) -> None:
        await self._write(lambda tx: leases.submit(tx, fence, submission, events))

    async def end(
        self, fence: Fence, ending: Ending, *, before: Sequence[NewEvent] = (), steps: Sequence[NewStep] = ()
    ) -> Event:
        return await self._write(lambda tx: leases.end(tx, fence, ending, before, steps))

    async def reserve(
        self,
        fence: Fence,
        *,
        input_tokens: int,
        max_output_tokens: int,
        active_ms: int = 0,
        thread_id: str | None = None,
    ) -> CallGrant:
        found = await self._write(
            lambda tx: ledger.reserve_call(
                tx,
                fence,
                input_tokens=input_tokens,
                max_output_tokens=max_output_tokens,
                active_ms=active_ms,
                thread_id=thread_id,
            )
        )
        if isinstance(found, Shortfall):
            raise charging.spent(found, "model call")
        return found

    async def settle(self, fence: Fence, record: CallRecord) -> bool:
        return await self._write(lambda tx: ledger.settle_call(tx, fence, record))

    async def budget_left(self, turn_id: str) -> bool:
        now = self._clock.now()
        return await self._read(lambda conn: ledger.shortfall_of(conn, turn_id, now)) is None

    async def tool_ran(self, fence: Fence) -> None:
        found = await self._write(lambda tx: charging.tool_ran(tx, fence))
        if found is not None:
            raise charging.spent(found, "tool call")

    async def tool_allowed(self, fence: Fence) -> None:
        found = await self._write(lambda tx: charging.tool_allowed(tx, fence))
        if found is not None:
            raise charging.spent(found, "tool call")

    async def tool_answered(self, fence: Fence) -> None:
        await self._write(lambda tx: charging.tool_answered(tx, fence))

    async def time_over(self, fence: Fence, active_ms: int) -> bool:
        return await self._write(lambda tx: charging.time_over(tx, fence, active_ms)) is not None

    async def ask_step(self, session_id: str, step: NewStep, fence: Fence | None, events: Sequence[NewEvent]) -> Step:
        return await self._write(lambda tx: steps.ask_step(tx, session_id, step, fence, events))

    async def answer_step(
        self,
        session_id: str,
        request_id: str,
        answer: StepAnswer,
        fence: Fence | None,
        events: Sequence[NewEvent],
        *,
        pause: NewPause | None = None,
    ) -> None:
        def body(tx: Tx) -> None:
            steps.answer_step(tx, session_id, request_id, answer, fence=fence, events=events)
            if pause is not None and fence is not None:
                pauses.pause(tx, fence, pause, ())
            else:
                withdrawals.withdraw_unheard(tx, session_id, request_id, answer)

        await self._write(body)

    async def attempt_step(self, session_id: str, request_id: str, *, payload_json: str | None) -> Step:
        return await self._write(lambda tx: steps.attempt_step(tx, session_id, request_id, payload_json=payload_json))

    async def pending_steps(self, session_id: str) -> tuple[Step, ...]:
        return await self._read(lambda conn: steps.pending_steps(conn, session_id))

    async def sessions_with_pending_steps(self, limit: int) -> tuple[str, ...]:
        return await self._read(lambda conn: steps.sessions_with_pending_steps(conn, limit))

    async def step_counts(self, session_id: str, turn_id: str, *, thread_id: str | None = None) -> StepCounts:
        return await self._read(lambda conn: steps.step_counts(conn, session_id, turn_id, thread_id))

    async def set_acs_state(self, session_id: str, state: Literal["started", "refused"]) -> None:
        await self._write(lambda tx: sessions.set_acs_state(tx, session_id, state))

    async def sessions_to_end(self, limit: int) -> tuple[str, ...]:
        return await self._read(lambda conn: sessions.sessions_to_end(conn, limit))

    async def close_ended(self, session_id: str, reason: SessionReason, end_step: NewStep | None) -> None:
        await self._write(lambda tx: sessions.close_ended(tx, session_id, reason, end_step))

    async def history(self, session_id: str, *, without: str | None, limit: int) -> tuple[Event, ...]:
        return await self._read(lambda conn: events.history(conn, session_id, without=without, limit=limit))

    def _schedule_time(self, tx: Tx) -> datetime:
        if self._schedule is None:
            return self._database.read_clock(tx.conn)
        return from_epoch_ms(epoch_ms(self._schedule.now()))

    async def _read(self, body: Callable[[Connection], T]) -> T:
        return await self._database.read(body)

    async def _write(self, body: Callable[[Tx], T]) -> T:
        topics: set[str] = set()
        written: list[Event] = []

        def transaction(connection: Connection) -> T:
            topics.clear()
            written.clear()
            now = from_epoch_ms(epoch_ms(self._clock.now()))
            return body(Tx(connection, now, self._ids, self._limits, self._database.lock_name, topics, written))

        return await self._database.write(transaction, lambda: self._tell(topics, written))

    def _tell(self, topics: set[str], written: Sequence[Event]) -> None:
        for topic in topics:
            self._wakeups.notify(topic)
        self._observe(written)


def _late_start(turn_id: str, session_id: str) -> Callable[[Tx], bool]:
    return lambda tx: turns.expire_start(tx, turn_id, session_id)


class _SerialIds:
    """One caller at a time, because transactions run in several threads."""

    def __init__(self, ids: IdSource) -> None:
        self._source = ids
        self._lock = threading.Lock()

    def new(self, prefix: Prefix) -> str:
        with self._lock:
            return self._source.new(prefix)

    def uuid(self) -> str:
        with self._lock:
            return self._source.uuid()
