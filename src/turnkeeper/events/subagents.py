"""Events of subagents (contract 10.3): one has begun, one is over.

Pure. Both carry the thread in their envelope too, as all that a subagent does.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import orjson

from turnkeeper.events.envelope import EventSource, NewEvent

SUBAGENT_STARTED: Final = "subagent.started"
SUBAGENT_ENDED: Final = "subagent.ended"
SUBAGENT_TYPES: Final = (SUBAGENT_STARTED, SUBAGENT_ENDED)

SubagentOutcome: TypeAlias = Literal["completed", "failed", "canceled", "budget_reached"]


def subagent_started(*, turn_id: str, attempt: int, thread_id: str, name: str, tool_call_id: str) -> NewEvent:
    """A subagent has begun, with the turn's budget and none of its own."""
    data = {
        "turn_id": turn_id,
        "thread_id": thread_id,
        "parent_thread_id": None,
        "name": name,
        "tool_call_id": tool_call_id,
        "budget": None,
    }
    return NewEvent("subagent.started", "sandbox", orjson.dumps(data).decode(), turn_id, attempt, thread_id=thread_id)


def subagent_ended(
    *,
    turn_id: str,
    attempt: int | None,
    thread_id: str,
    outcome: SubagentOutcome,
    usage: Mapping[str, object],
    source: EventSource = "sandbox",
) -> NewEvent:
    """A subagent is over; the platform says so of one that was stopped, or lost with its sandbox."""
    data = {"turn_id": turn_id, "thread_id": thread_id, "outcome": outcome, "usage": usage}
    return NewEvent("subagent.ended", source, orjson.dumps(data).decode(), turn_id, attempt, thread_id=thread_id)
