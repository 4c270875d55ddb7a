"""The Guardian's statements, with a `?` for each value: what SQLite and PostgreSQL both understand.

Answers for the names and order of columns, which `chain_rows` follows. Where the two differ, the statement stands with
the store that runs it.
"""

from typing import Final

TERMS_WIDTH: Final = 12
"""How many columns of a session are its terms; its progress follows."""

PROGRESS_COLUMNS: Final = "head, recorded, entries, tool_calls, turns, closed, turn_window, standing, kept"
TERMS_COLUMNS: Final = (
    "session_id, key_id, agent_id, acs_version, skew_window_ms, methods, hello_hash, server_hello, created_at_ms,"
    " provenance_producer, profiles, mcp_versions"
)
INSERT_SESSION: Final = f"INSERT INTO sessions ({TERMS_COLUMNS}, {PROGRESS_COLUMNS}) VALUES ({', '.join('?' * 21)})"  # noqa: S608  our own column names
UPDATE_SESSION: Final = (
    "UPDATE sessions SET head = ?, recorded = ?, entries = ?, tool_calls = ?, turns = ?, closed = ?,"
    " turn_window = ?, standing = ?, kept = coalesce(?, kept) WHERE session_id = ?"
)
INSERT_STEP: Final = (
    "INSERT INTO steps (session_id, recorded, kind, method, request_id, door, turn_id, received_at_ms,"
    " decision, error_code, chain_hash, entry, request, response, request_sha256, response_sha256)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_NONCE: Final = "INSERT INTO nonces (session_id, nonce) VALUES (?, ?)"
OPEN_TURN: Final = (
    "INSERT INTO turns (session_id, ordinal, turn_id, denied, opened_at, triggered_by, parent_turn_id)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
CLOSE_TURN: Final = (
    "UPDATE turns SET closed_at = ?, outcome = ?, steps = ?, tool_calls = ?, taint_step = ?, denials = ?,"
    " deferrals = ?, summary = ? WHERE session_id = ? AND ordinal = ?"
)
REMEMBER: Final = (
    "INSERT INTO lineage (session_id, provenance_id, request_id, turn_id, trust, depth) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (session_id, provenance_id) DO UPDATE SET trust = excluded.trust"
)
INSERT_FINDING: Final = (
    "INSERT INTO findings (session_id, recorded, at_ms, code, message, turn_id) VALUES (?, ?, ?, ?, ?, ?)"
)
SELECT_SESSION: Final = f"SELECT {TERMS_COLUMNS}, {PROGRESS_COLUMNS} FROM sessions WHERE session_id = ?"  # noqa: S608  our own column names
SELECT_REQUEST_IDS: Final = (
    "SELECT request_id, CASE WHEN chain_hash IS NULL THEN '' ELSE method END FROM steps WHERE session_id = ?"
    " ORDER BY recorded DESC LIMIT ?"
)
SELECT_NONCES: Final = "SELECT nonce FROM nonces WHERE session_id = ? LIMIT ?"
SELECT_LINEAGE: Final = (
    "SELECT provenance_id, request_id, turn_id, trust, depth FROM lineage WHERE session_id = ? LIMIT ?"
)
SELECT_METHOD: Final = "SELECT method FROM steps WHERE session_id = ? AND request_id = ? AND chain_hash IS NOT NULL"
# An extended intent has an entry and no request of its own: it came into force with the one that follows.
INSERT_EXTENSION: Final = (
    "INSERT INTO steps (session_id, recorded, kind, method, request_id, door, turn_id, received_at_ms, chain_hash,"
    " entry, request_sha256, response_sha256) VALUES (?, ?, 'step', 'intent_extension', ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT_USED: Final = "SELECT decision, chain_hash, error_code FROM steps WHERE session_id = ? AND request_id = ?"
SELECT_NONCE: Final = "SELECT 1 FROM nonces WHERE session_id = ? AND nonce = ?"
SELECT_ARCHIVED: Final = "SELECT key_id, head FROM archived_sessions WHERE session_id = ?"
