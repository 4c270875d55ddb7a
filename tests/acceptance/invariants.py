"""What must hold after anything: read from the API, the export and the public verifier alone."""

import json
from collections import Counter
from typing import Any, cast

from tests.acceptance.server import Json, Server

TERMINAL_EVENTS = {"turn.completed", "turn.failed", "turn.canceled"}


def check_everything(server: Server, session_ids: list[str]) -> None:
    """Every invariant on every session, then the verifier over the whole data dir."""
    for session_id in session_ids:
        check_events(server, session_id)
        check_export(server.export(session_id))
    check_verifies(server)


def check_events(server: Server, session_id: str) -> None:
    """Sequences without gaps, one terminal event per turn, none before its turn was queued, turns in order."""
    events = server.events(session_id)
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    queued = [event["turn_id"] for event in events if event["type"] == "turn.queued"]
    ended = [event["turn_id"] for event in events if event["type"] in TERMINAL_EVENTS]
    assert sorted(ended) == sorted(queued), "each accepted turn has one terminal event"
    started = [event["turn_id"] for event in events if event["type"] == "turn.started"]
    assert started == sorted(started), "turns of a session run in the order they were posted"
    assert max(Counter(started).values(), default=0) <= 1, "no turn runs twice in silence"
    check_no_overlap(events)


def check_no_overlap(events: list[Json]) -> None:
    """Between a turn's start and its end nothing of another turn starts."""
    running: str | None = None
    for event in events:
        if event["type"] == "turn.starting":
            assert running in (None, event["turn_id"]), "two turns of a session ran at once"
            running = event["turn_id"]
        elif event["type"] in TERMINAL_EVENTS and event["turn_id"] == running:
            running = None


def check_export(rows: list[Json]) -> None:
    """Each answered turnStart has one turnEnd, before the next turnStart; nothing comes after sessionEnd."""
    open_turn: str | None = None
    steps = tool_calls = 0
    sealed = False
    for row in rows:
        if row["entry"] is None:
            continue
        method, params = row["request"]["method"], row["request"]["params"]
        assert not sealed, f"{method} has an entry after sessionEnd"
        if method == "steps/turnStart":
            assert open_turn is None, "a turnStart came before the turnEnd of the turn before"
            open_turn, steps, tool_calls = params["payload"]["turn_id"], 0, 0
        elif method == "steps/turnEnd":
            assert open_turn == params["payload"]["turn_id"], "a turnEnd without its turnStart"
            _check_counts(params["payload"], steps, tool_calls)
            open_turn = None
        elif open_turn is not None:
            steps += 1
            tool_calls += method == "steps/toolCallRequest"
            assert params["metadata"].get("turn_id") == open_turn
        sealed = method == "steps/sessionEnd"
    assert open_turn is None, "a turnStart has no turnEnd"


def _check_counts(payload: Json, steps: int, tool_calls: int) -> None:
    # A count whose truth was lost is left out (amendment 4), but never wrong.
    assert payload.get("step_count", steps) == steps
    assert payload.get("tool_call_count", tool_calls) == tool_calls


def check_verifies(server: Server) -> None:
    """`turnkeeper verify` finds nothing broken."""
    done = server.command("verify", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = cast("dict[str, Any]", json.loads(done.stdout))
    assert report["findings"] == [], report["findings"]
