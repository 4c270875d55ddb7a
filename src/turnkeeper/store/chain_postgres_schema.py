"""The Guardian's tables on PostgreSQL, and how older ones become current.

Answers for the schema alone. Forward only, one transaction per step. INVARIANT: tables and columns are those of
`chain_schema`, and so are the constraints: a session's request_ids and nonces are unique, whatever any program above
believes.
"""

from typing import Final

from turnkeeper.guardian.ports import StoreFailed
from turnkeeper.store.chain_postgres_link import SCHEMA, Connection
from turnkeeper.store.chain_schema import SchemaTooNew

_MIGRATION_LOCK: Final = 0x746B67_6D
"""The advisory lock of whoever changes the tables."""

# INVARIANT: ids are compared byte by byte ("C"), so that pages continue where they ended under any locale.
_FIRST = """
CREATE TABLE sessions (
    session_id TEXT COLLATE "C" PRIMARY KEY,
    key_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    acs_version TEXT NOT NULL,
    skew_window_ms BIGINT NOT NULL,
    methods TEXT NOT NULL,
    hello_hash TEXT NOT NULL,
    server_hello BYTEA NOT NULL,
    created_at_ms BIGINT NOT NULL,
    head TEXT,
    recorded BIGINT NOT NULL,
    entries BIGINT NOT NULL,
    tool_calls BIGINT NOT NULL,
    turns BIGINT NOT NULL,
    closed BOOLEAN NOT NULL,
    provenance_producer TEXT NOT NULL,
    profiles TEXT NOT NULL,
    mcp_versions TEXT NOT NULL,
    turn_window TEXT,
    standing TEXT,
    kept TEXT,
    erased BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

CREATE TABLE steps (
    session_id TEXT COLLATE "C" NOT NULL,
    recorded BIGINT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('hello', 'step', 'refusal')),
    method TEXT NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    door TEXT NOT NULL,
    turn_id TEXT,
    received_at_ms BIGINT NOT NULL,
    decision TEXT,
    error_code BIGINT,
    chain_hash TEXT,
    entry BYTEA,
    request BYTEA,
    response BYTEA,
    request_sha256 BYTEA NOT NULL,
    response_sha256 BYTEA NOT NULL,
    decision_log BYTEA,
    UNIQUE (session_id, recorded),
    UNIQUE (session_id, request_id),
    CHECK ((chain_hash IS NULL) = (entry IS NULL))
);

CREATE TABLE nonces (
    session_id TEXT COLLATE "C" NOT NULL,
    nonce TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, nonce)
);

CREATE TABLE turns (
    session_id TEXT COLLATE "C" NOT NULL,
    ordinal BIGINT NOT NULL,
    turn_id TEXT NOT NULL,
    denied BOOLEAN NOT NULL,
    opened_at BIGINT NOT NULL,
    closed_at BIGINT,
    outcome TEXT,
    steps BIGINT,
    tool_calls BIGINT,
    triggered_by TEXT NOT NULL,
    parent_turn_id TEXT NOT NULL,
    taint_step TEXT NOT NULL DEFAULT '',
    denials BIGINT NOT NULL DEFAULT 0,
    deferrals BIGINT NOT NULL DEFAULT 0,
    summary TEXT,
    PRIMARY KEY (session_id, ordinal)
);

CREATE TABLE findings (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL,
    recorded BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    turn_id TEXT
);
CREATE INDEX findings_by_session ON findings (session_id, id);

CREATE TABLE lineage (
    session_id TEXT COLLATE "C" NOT NULL,
    provenance_id TEXT COLLATE "C" NOT NULL,
    request_id TEXT NOT NULL,
    turn_id TEXT,
    trust TEXT NOT NULL CHECK (trust IN ('trusted', 'unknown', 'untrusted')),
    depth BIGINT NOT NULL,
    PRIMARY KEY (session_id, provenance_id)
);

CREATE TABLE approvals (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    approval_id TEXT COLLATE "C" NOT NULL UNIQUE,
    session_id TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    turn_id TEXT,
    agent_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('ask', 'defer')),
    method TEXT NOT NULL,
    tool TEXT NOT NULL,
    input_hash TEXT NOT NULL,
    question TEXT NOT NULL,
    approver_type TEXT NOT NULL,
    approver_id TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    extension TEXT,
    status TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied')),
    decided_by TEXT,
    decided_by_key TEXT,
    decided_at_ms BIGINT,
    scope TEXT CHECK (scope IN ('this_request', 'session')),
    note TEXT,
    used_at_ms BIGINT,
    UNIQUE (session_id, request_id),
    CHECK ((status = 'pending') = (decided_at_ms IS NULL)),
    CHECK ((status = 'approved') = (scope IS NOT NULL))
);
CREATE INDEX approvals_by_status ON approvals (status, id);

CREATE TABLE api_keys (
    key_id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    approver_type TEXT NOT NULL,
    approver_ids TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    revoked_at_ms BIGINT
);

CREATE TABLE archived_sessions (
    session_id TEXT COLLATE "C" PRIMARY KEY,
    agent_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    archived_at_ms BIGINT NOT NULL,
    head TEXT,
    recorded BIGINT NOT NULL,
    entries BIGINT NOT NULL,
    tool_calls BIGINT NOT NULL,
    turns BIGINT NOT NULL,
    archive_file TEXT NOT NULL,
    archive_sha256 TEXT NOT NULL,
    removed BIGINT NOT NULL
);
"""

POSTGRES_MIGRATIONS: Final[tuple[str, ...]] = (_FIRST,)
POSTGRES_SCHEMA_VERSION: Final = len(POSTGRES_MIGRATIONS)


def postgres_version(connection: Connection) -> int:
    """The version of the tables; 0 for a database without them."""
    # Not `to_regclass`, which answers from a cache that a wait for a lock does not refresh.
    query = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'schema_version'"
    if connection.execute(query, (SCHEMA,)).fetchone() is None:
        return 0
    return int(connection.execute("SELECT max(version) FROM schema_version").fetchall()[0][0] or 0)


def migrate_postgres(connection: Connection) -> None:
    """Takes the tables to the current version. Raises `SchemaTooNew`, `psycopg.Error`."""
    while (version := check_postgres_version(connection)) < POSTGRES_SCHEMA_VERSION:
        with connection.transaction():
            # Rows may be many, and nothing waits for this but the operator.
            connection.execute("SELECT set_config('statement_timeout', '0', true)")
            connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (_MIGRATION_LOCK,))
            if postgres_version(connection) == version:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
                connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
                connection.execute(POSTGRES_MIGRATIONS[version].encode())
                connection.execute("INSERT INTO schema_version VALUES (%s)", (version + 1,))


def prepare_postgres(connection: Connection) -> None:
    """Makes the tables where there are none. Raises `SchemaTooNew`, and `StoreFailed` for tables to be migrated."""
    if check_postgres_version(connection) == 0:
        migrate_postgres(connection)
    require_current(connection)


def require_current(connection: Connection) -> None:
    """Raises `SchemaTooNew`, and `StoreFailed` for tables that are missing or older than this program."""
    found = check_postgres_version(connection)
    if found == 0:
        raise StoreFailed("the database holds no Guardian's store", hint="Start the Guardian once, which makes it.")
    if found < POSTGRES_SCHEMA_VERSION:
        raise StoreFailed(
            f"the Guardian's store has the older schema version {found}", hint="Run `turnkeeper migrate`."
        )


def check_postgres_version(connection: Connection) -> int:
    """The version of the tables. Raises `SchemaTooNew` for what this program cannot know."""
    found = postgres_version(connection)
    if found > POSTGRES_SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the Guardian's store has schema version {found}, this program knows {POSTGRES_SCHEMA_VERSION}",
            hint="Use the Turnkeeper that wrote it, or a later one.",
        )
    return found
