"""How a session's snapshot and a stream token look from outside (contract 2.2 and 2.4)."""

from collections.abc import Sequence
from datetime import datetime

import orjson

from turnkeeper.api.approval_views import render_approval
from turnkeeper.api.reads import TurnContext, render_session, render_turn
from turnkeeper.clock import render_time
from turnkeeper.turns.open_texts import OpenText
from turnkeeper.turns.snapshots import SessionSnapshot, TurnView


def render_snapshot(
    snapshot: SessionSnapshot, open_texts: Sequence[OpenText], now: datetime, *, inline_bytes: int
) -> bytes:
    """The snapshot object, with the messages that are being written."""
    return orjson.dumps(
        {
            "object": "session_snapshot",
            "as_of": snapshot.as_of,
            "session": orjson.Fragment(render_session(snapshot.session, snapshot.usage)),
            "active_turn": None if snapshot.active is None else _turn(snapshot.active),
            "queued_turns": [_turn(view) for view in snapshot.queued],
            "recent_turns": [_turn(view) for view in snapshot.recent],
            "open_approvals": [
                orjson.Fragment(render_approval(approval, now, inline_bytes=inline_bytes))
                for approval in snapshot.approvals
            ],
            "open_messages": [
                {"message_id": text.message_id, "text": text.text, "offset": text.offset} for text in open_texts
            ],
        }
    )


def render_token(token: str, expires_at: datetime) -> bytes:
    """A stream token, shown this once."""
    return orjson.dumps({"object": "stream_token", "token": token, "expires_at": render_time(expires_at)})


def _turn(view: TurnView) -> orjson.Fragment:
    left = _repairs_left(view)
    return orjson.Fragment(render_turn(view.turn, TurnContext(view.blocked_by, left, view.pause)))


def _repairs_left(view: TurnView) -> int | None:
    turn = view.turn
    return None if turn.output_schema_json is None else max(0, turn.max_repair_attempts - view.refused)
