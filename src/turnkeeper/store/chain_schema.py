"""The tables of guardian.db and how an older file becomes a current one.

Answers for the schema alone. Forward only: each script takes the file from one `user_version` to the next, and a file
that is newer than this program is refused. INVARIANT: a session's request_ids and nonces are unique, whatever any
program above believes.
"""

import sqlite3
from typing import Final

from turnkeeper.errors import TurnkeeperError

_FIRST = """
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    key_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    acs_version TEXT NOT NULL,
    skew_window_ms INTEGER NOT NULL,
    methods TEXT NOT NULL,
    hello_hash TEXT NOT NULL,
    server_hello BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    head TEXT,
    recorded INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    closed INTEGER NOT NULL,
    window_turn_id TEXT,
    window_ordinal INTEGER,
    window_steps INTEGER,
    window_tool_calls INTEGER,
    window_denied INTEGER
) STRICT;

CREATE TABLE steps (
    session_id TEXT NOT NULL,
    recorded INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('hello', 'step', 'refusal')),
    method TEXT NOT NULL,
    request_id TEXT NOT NULL,
    door TEXT NOT NULL,
    turn_id TEXT,
    received_at_ms INTEGER NOT NULL,
    decision TEXT,
    error_code INTEGER,
    chain_hash TEXT,
    entry BLOB,
    request BLOB,
    response BLOB,
    request_sha256 BLOB NOT NULL,
    response_sha256 BLOB NOT NULL,
    UNIQUE (session_id, recorded),
    UNIQUE (session_id, request_id),
    CHECK ((chain_hash IS NULL) = (entry IS NULL))
) STRICT;

CREATE TABLE nonces (
    session_id TEXT NOT NULL,
    nonce TEXT NOT NULL,
    PRIMARY KEY (session_id, nonce)
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
    session_id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    turn_id TEXT NOT NULL,
    denied INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    closed_at INTEGER,
    outcome TEXT,
    steps INTEGER,
    tool_calls INTEGER,
    PRIMARY KEY (session_id, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE findings (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    recorded INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    turn_id TEXT
) STRICT;
CREATE INDEX findings_by_session ON findings (session_id, id);
"""

# What a session remembers grows more often than a table should: the window with those around it and the memory are
# JSON of the Guardian's own making, read by session and never searched.
_MEMORY = """
ALTER TABLE sessions ADD COLUMN provenance_producer TEXT NOT NULL DEFAULT 'none';
ALTER TABLE sessions ADD COLUMN profiles TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN mcp_versions TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN turn_window TEXT;
ALTER TABLE sessions ADD COLUMN standing TEXT;
ALTER TABLE sessions ADD COLUMN kept TEXT;
UPDATE sessions SET turn_window = json_object(
    'turn_id', window_turn_id, 'ordinal', window_ordinal, 'steps', window_steps,
    'tool_calls', window_tool_calls, 'denied', json(iif(window_denied, 'true', 'false'))
) WHERE window_turn_id IS NOT NULL;
ALTER TABLE sessions DROP COLUMN window_turn_id;
ALTER TABLE sessions DROP COLUMN window_ordinal;
ALTER TABLE sessions DROP COLUMN window_steps;
ALTER TABLE sessions DROP COLUMN window_tool_calls;
ALTER TABLE sessions DROP COLUMN window_denied;

ALTER TABLE turns ADD COLUMN triggered_by TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN parent_turn_id TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN taint_step TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN denials INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN deferrals INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN summary TEXT;

CREATE TABLE lineage (
    session_id TEXT NOT NULL,
    provenance_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    turn_id TEXT,
    trust TEXT NOT NULL CHECK (trust IN ('trusted', 'unknown', 'untrusted')),
    depth INTEGER NOT NULL,
    PRIMARY KEY (session_id, provenance_id)
) STRICT, WITHOUT ROWID;
"""

_APPROVALS = """
CREATE TABLE approvals (
    id INTEGER PRIMARY KEY,
    approval_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
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
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    extension TEXT,
    status TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied')),
    decided_by TEXT,
    decided_by_key TEXT,
    decided_at_ms INTEGER,
    scope TEXT CHECK (scope IN ('this_request', 'session')),
    note TEXT,
    used_at_ms INTEGER,
    UNIQUE (session_id, request_id),
    CHECK ((status = 'pending') = (decided_at_ms IS NULL)),
    CHECK ((status = 'approved') = (scope IS NOT NULL))
) STRICT;
CREATE INDEX approvals_by_status ON approvals (status, id);

CREATE TABLE api_keys (
    key_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    approver_type TEXT NOT NULL,
    approver_ids TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    revoked_at_ms INTEGER
) STRICT;
"""

# A closed session can leave for an archive file; what stays says that it was here and can never go on.
_RETENTION = """
CREATE TABLE archived_sessions (
    session_id TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    archived_at_ms INTEGER NOT NULL,
    head TEXT,
    recorded INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    archive_file TEXT NOT NULL,
    archive_sha256 TEXT NOT NULL,
    removed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE sessions ADD COLUMN erased INTEGER NOT NULL DEFAULT 0;
ALTER TABLE steps ADD COLUMN decision_log BLOB;
"""

MIGRATIONS: Final[tuple[str, ...]] = (_FIRST, _MEMORY, _APPROVALS, _RETENTION)
SCHEMA_VERSION: Final = len(MIGRATIONS)


class SchemaTooNew(TurnkeeperError):
    """The file was written by a later Turnkeeper."""

    code = "store_too_new"


def schema_version(connection: sqlite3.Connection) -> int:
    """The version of the file's tables; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Takes the file to the current version, one transaction per step. Raises `SchemaTooNew`, `sqlite3.Error`."""
    check_version(connection)
    for version in range(schema_version(connection), SCHEMA_VERSION):
        # executescript() commits what is open before it starts, so the transaction is part of the script.
        connection.executescript(f"BEGIN IMMEDIATE;{MIGRATIONS[version]};PRAGMA user_version = {version + 1};COMMIT;")


def check_version(connection: sqlite3.Connection) -> None:
    """Raises `SchemaTooNew` for a file that this program cannot know."""
    found = schema_version(connection)
    if found > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the Guardian's store has schema version {found}, this program knows {SCHEMA_VERSION}",
            hint="Use the Turnkeeper that wrote it, or a later one.",
        )
