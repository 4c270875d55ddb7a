"""The Guardian's store on PostgreSQL: one durable commit per batch, and no second Guardian beside it.

Answers for what `GuardianStore` promises. Must never report a batch as durable that is not. The connection that
writes holds an advisory lock for as long as it lives; without it nothing is committed. A connection that broke is made
again for the next batch: whoever has taken the lock meanwhile keeps it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import psycopg

from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.ports import Record, StoredSession, StoreFailed, UsedBefore
from turnkeeper.store import chain_rows as rows
from turnkeeper.store import chain_sql as sql
from turnkeeper.store.chain_postgres_batches import batches
from turnkeeper.store.chain_postgres_line import Line
from turnkeeper.store.chain_postgres_link import Connection, connect, failure, fetch, is_lost, numbered
from turnkeeper.store.chain_postgres_schema import prepare_postgres
from turnkeeper.store.chain_queries import Fetch, find_approval, find_used, load_session
from turnkeeper.store.guardian_refusals import StoreInUse

LOCK_WAIT_MS: Final = 2_000
"""How long a Guardian that has just ended, or a connection that has just broken, is given to let the lock go."""
_GUARDIAN_LOCK: Final = 0x746B67_75
_NO_SCANS: Final = ["enable_seqscan", "enable_hashjoin", "enable_mergejoin"]
_HOLDER: Final = (
    "SELECT a.pid, a.client_addr::text, a.backend_start::text FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = ?::bigint::oid"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)

_Result = TypeVar("_Result")


class PostgresGuardianStore:
    """The Guardian's store in one PostgreSQL database (`GuardianStore`)."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._writer: Connection | None = None
        self._reader = Line(partial(_connect_reader, url))
        self._open = False

    def open(self) -> None:
        """Takes the database for this Guardian and makes its tables where there are none.

        Raises `StoreFailed`, `StoreInUse` where another Guardian has it, `SchemaTooNew`, `GuardianUrlInvalid`.
        """
        try:
            self._writer = _connect_writer(self._url)
            prepare_postgres(self._writer)
            self._reader.open()
        except psycopg.Error as error:
            self.close()
            raise failure("the Guardian's store cannot be opened", error) from error
        except TurnkeeperError:
            self.close()
            raise
        self._open = True

    def close(self) -> None:
        """Closes both connections, which lets the database go; idempotent."""
        self._open = False
        self._reader.close()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def commit(self, batch: Sequence[Record]) -> None:
        """Makes the batch durable in one transaction. Raises `StoreFailed` and then has written nothing of it.

        A failure while committing leaves it open whether the batch is durable; the lock is not had again before the
        server has decided.
        """
        self._check_open()
        try:
            if self._writer is None:
                self._writer = _connect_writer(self._url)
            _write(self._writer, batch)
        except psycopg.Error as error:
            self._recover_writer()
            raise failure(f"a batch of {len(batch)} records could not be committed", error) from error
        except BaseException:
            self._recover_writer()
            raise

    def load_session(self, session_id: str, max_ids: int) -> StoredSession | None:
        """A session with its newest ids; None where there is none. Raises `StoreFailed`, `SessionArchived`."""
        return self._read(lambda ask: load_session(ask, session_id, max_ids))

    def find_used(
        self, session_id: str, request_id: str, nonce: str | None, reference: str | None = None
    ) -> UsedBefore:
        """Whether the ids were used in the session. Raises `StoreFailed`."""
        return self._read(lambda ask: find_used(ask, session_id, request_id, nonce, reference))

    def find_approval(self, session_id: str, request_id: str) -> Approval | None:
        """The question that a step raised, as it stands now. Raises `StoreFailed`."""
        return self._read(lambda ask: find_approval(ask, session_id, request_id))

    def _read(self, body: Callable[[Fetch], _Result]) -> _Result:
        def in_one_snapshot(connection: Connection) -> _Result:
            # So that counters and ids are of the same moment.
            with connection.transaction():
                return body(partial(fetch, connection))

        self._check_open()
        try:
            return self._reader.ask(in_one_snapshot)
        except psycopg.Error as error:
            raise failure("the Guardian's store could not be read", error) from error

    def _check_open(self) -> None:
        if not self._open:
            raise StoreFailed("the Guardian's store is not open")

    def _recover_writer(self) -> None:
        """Ends what the batch left open; a connection that cannot is let go, and the lock with it."""
        writer = self._writer
        if writer is None:
            return
        try:
            writer.rollback()
        except psycopg.Error:
            writer.close()
        if is_lost(writer):
            writer.close()
            self._writer = None


def _connect_writer(url: str) -> Connection:
    connection = connect(url, purpose="guardian")
    try:
        # A plan that was made while a table was small is kept, and must not read the whole table once it is large.
        connection.execute("SELECT set_config(name, 'off', false) FROM unnest(%s::text[]) AS name", (_NO_SCANS,))
        _take_lock(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_reader(url: str) -> Connection:
    connection = connect(url, purpose="guardian reads")
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    return connection


def _take_lock(connection: Connection) -> None:
    """INVARIANT: whoever commits holds this lock, on the connection that commits."""
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (str(LOCK_WAIT_MS),))
            connection.execute("SELECT pg_advisory_lock(%s::bigint)", (_GUARDIAN_LOCK,))
    except psycopg.errors.LockNotAvailable:
        raise StoreInUse(
            f"another Guardian works on this database{_holder(connection)}",
            hint="One Guardian has a database to itself. Stop the other one, or give this one a database of its own.",
        ) from None


def _holder(connection: Connection) -> str:
    found = fetch(connection, _HOLDER, (_GUARDIAN_LOCK,))
    if not found:
        return ""
    pid, address, since = found[0]
    return f" (server process {pid}, from {address or 'this machine'}, since {since})"


def _write(connection: Connection, batch: Sequence[Record]) -> None:
    updates: list[psycopg.RawCursor[tuple[Any, ...]]] = []
    sessions = 0
    with connection.pipeline():
        connection.execute("BEGIN")
        for statement, changed in rows.changes(batch):
            cursors = [
                psycopg.RawCursor(connection).execute(numbered(text), values)
                for text, values in batches(statement, changed)
            ]
            if statement is sql.UPDATE_SESSION:
                updates, sessions = cursors, len(changed)
    # INVARIANT: an archived session gets no further step, whatever a Guardian remembers of it.
    if sum(cursor.rowcount for cursor in updates) != sessions:
        raise StoreFailed("a session of the batch is not there")
    connection.execute("COMMIT")
