"""What can never be seen in a store, as queries that must find nothing."""

from typing import Final

from sqlalchemy import create_engine, text

UNWHOLE: Final = {
    "a gap in a session's events": (
        "SELECT session_id FROM events GROUP BY session_id HAVING COUNT(*) <> MAX(sequence) OR MIN(sequence) <> 1"
    ),
    "a counter that is not its events": (
        "SELECT id FROM sessions s WHERE last_sequence <> (SELECT COUNT(*) FROM events e WHERE e.session_id = s.id)"
    ),
    "an ended turn without its event": (
        "SELECT id FROM turns t WHERE status IN ('completed', 'failed', 'canceled') AND NOT EXISTS"
        " (SELECT 1 FROM events e WHERE e.id = t.terminal_event_id AND e.turn_id = t.id AND e.data = t.terminal_data)"
    ),
    "a terminal event without its state": (
        "SELECT id FROM events e WHERE type IN ('turn.completed', 'turn.failed', 'turn.canceled') AND NOT EXISTS"
        " (SELECT 1 FROM turns t WHERE t.terminal_event_id = e.id)"
    ),
    "a turn without its turn.queued": (
        "SELECT id FROM turns t WHERE NOT EXISTS"
        " (SELECT 1 FROM events e WHERE e.turn_id = t.id AND type = 'turn.queued')"
    ),
    "an ended turn without its turnEnd": (
        "SELECT id FROM turns t WHERE status IN ('completed', 'failed')"
        " AND stop_reason NOT IN ('denied_before_start', 'queue_expired')"
        " AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.turn_id = t.id AND s.method = 'steps/turnEnd')"
    ),
    "an attempt too many": "SELECT id FROM turns WHERE attempt > max_attempts",
    "a turn that runs and is nobody's, or waits and is somebody's past the front": (
        "SELECT id FROM turns WHERE (status = 'running' AND owner IS NULL) OR (owner IS NOT NULL AND front_of IS NULL)"
    ),
    "a turnEnd without a window, or a window with two": (
        "SELECT turn_id FROM steps WHERE turn_id IN (SELECT id FROM turns WHERE max_attempts = 1)"
        " AND method = 'steps/turnEnd' GROUP BY turn_id HAVING COUNT(*) > 1"
    ),
    "a retry without its turnEnd": (
        "SELECT t.id FROM turns t WHERE (SELECT COUNT(*) FROM events e WHERE e.turn_id = t.id"
        " AND e.type = 'turn.retrying') > (SELECT COUNT(*) FROM steps s WHERE s.turn_id = t.id"
        " AND s.method = 'steps/turnEnd' AND s.outcome = 'error')"
    ),
    "a waiting turn whose key has no share": (
        "SELECT id FROM turns t WHERE front_of IS NOT NULL AND NOT EXISTS (SELECT 1 FROM queue_shares q"
        " WHERE q.scope = 'key' AND q.project_id = t.project_id AND q.id = t.api_key_id)"
    ),
    "a key without its turn": (
        "SELECT key FROM idempotency_keys k WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = k.thing_id)"
    ),
    "a posted turn without its key": (
        "SELECT id FROM turns t WHERE idempotency_key IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.thing_id = t.id)"
    ),
    "an open session whose last word is not what it does": (
        "SELECT id FROM sessions s WHERE status = 'open' AND NOT ephemeral AND COALESCE((SELECT e.type FROM events e"
        " WHERE e.session_id = s.id AND e.type IN ('session.busy', 'session.idle', 'session.paused')"
        " ORDER BY e.sequence DESC LIMIT 1), 'session.idle') <> CASE"
        " WHEN EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND t.status = 'paused') THEN 'session.paused'"
        " WHEN EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id"
        " AND t.status NOT IN ('completed', 'failed', 'canceled')) THEN 'session.busy' ELSE 'session.idle' END"
    ),
    "a session that says twice what it does": (
        "SELECT session_id FROM (SELECT session_id, type, LAG(type) OVER (PARTITION BY session_id ORDER BY sequence)"
        " AS earlier FROM events WHERE type IN ('session.busy', 'session.idle', 'session.paused')) AS told"
        " WHERE type = earlier"
    ),
    "two endings of one turn": (
        "SELECT turn_id FROM events WHERE type IN ('turn.completed', 'turn.failed', 'turn.canceled')"
        " GROUP BY turn_id HAVING COUNT(*) > 1"
    ),
    "an event of a turn that had ended": (
        "SELECT e.id FROM events e JOIN turns t ON t.id = e.turn_id WHERE t.terminal_event_id IS NOT NULL"
        " AND e.sequence > (SELECT sequence FROM events x WHERE x.id = t.terminal_event_id)"
    ),
    "a session charged otherwise than its calls": (
        "SELECT id FROM budgets b WHERE scope = 'session' AND used_total_tokens + reserved_total_tokens <>"
        " (SELECT COALESCE(SUM(CASE state WHEN 'reserved' THEN reserved_input_tokens + reserved_output_tokens"
        " ELSE input_tokens + output_tokens END), 0) FROM model_calls m WHERE m.session_id = b.scope_id)"
    ),
    "turns that did not run in their order": (
        "SELECT one.id FROM turns one JOIN turns other ON other.session_id = one.session_id AND other.seq > one.seq"
        " AND other.rank >= one.rank WHERE one.status = 'queued' AND (other.owner IS NOT NULL OR other.attempt > 0)"
    ),
    "an idle session with a turn that waits for nothing": (
        "SELECT session_id FROM turns WHERE status NOT IN ('completed', 'failed', 'canceled')"
        " GROUP BY session_id HAVING COUNT(front_of) <> 1"
    ),
}


def broken(url: str) -> dict[str, list[str]]:
    """Everything wrong with a store, by name; empty for a whole one."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            found = {name: list(connection.execute(text(query)).scalars()) for name, query in UNWHOLE.items()}
    finally:
        engine.dispose()
    return {name: rows for name, rows in found.items() if rows}
