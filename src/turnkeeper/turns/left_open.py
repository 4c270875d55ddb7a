"""What a sandbox that is gone left open, from the events of its turn (contract 6).

Pure. Answers for every announced call having its end, and for the box being told of.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, cast

import orjson

from turnkeeper.events import catalogue
from turnkeeper.events.catalogue import LossReason, ToolEnd
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.turns.model import Turn

CALLS: Final = ("tool.requested", "tool.completed")
STARTS: Final = ("turn.started",)


def closed_calls(turn: Turn, events: Iterable[Event], *, status: ToolEnd = "unknown") -> list[NewEvent]:
    """`tool.completed` with this status for every call of `CALLS` that has none."""
    open_calls: dict[str, None] = {}
    for event in events:
        call_id = cast("str", orjson.loads(event.data)["tool_call_id"])
        if event.type == "tool.requested":
            open_calls[call_id] = None
        else:
            open_calls.pop(call_id, None)
    return [
        catalogue.tool_completed(
            turn_id=turn.id,
            attempt=turn.attempt,
            tool_call_id=call_id,
            status=status,
            output="",
            modified=False,
            truncated=False,
            duration_ms=0,
            source="platform",
        )
        for call_id in open_calls
    ]


def worked_in_a_box(events: Iterable[Event]) -> bool:
    """Whether a tool of the turn ran, so that there was a workspace for it; of `CALLS`."""
    return any(event.type == "tool.completed" and event.source == "sandbox" for event in events)


def lost_box(turn: Turn, starts: Iterable[Event], reason: LossReason, last_beat_at: datetime | None) -> list[NewEvent]:
    """`sandbox.lost` for the box of the last of `STARTS`; nothing where none had started.

    `last_beat_at` is when the worker that had it was last heard of.
    """
    boxes = [cast("str", orjson.loads(event.data)["sandbox_id"]) for event in starts]
    return [
        catalogue.sandbox_lost(turn_id=turn.id, sandbox_id=sandbox_id, reason=reason, last_beat_at=last_beat_at)
        for sandbox_id in boxes[-1:]
    ]
