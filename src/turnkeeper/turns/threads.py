"""Subagents that are over and not told of (contract 6 and 10.3): one that has ended, or was left open by a loss.

Answers for the end of what a subagent had open before its own, and for both before anything of its parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from turnkeeper.clock import epoch_ms
from turnkeeper.events.catalogue import ToolEnd
from turnkeeper.events.envelope import Event, EventSource, NewEvent
from turnkeeper.events.subagents import SUBAGENT_ENDED, SUBAGENT_STARTED, SubagentOutcome, subagent_ended
from turnkeeper.turns.left_open import CALLS, closed_calls
from turnkeeper.turns.model import Ending, NewStep, Step, StopReason, Turn, TurnStatus
from turnkeeper.turns.payloads import TOOL_CALL_RESULT
from turnkeeper.turns.thread_steps import closing_steps, open_threads
from turnkeeper.turns.usage import usage_document
from turnkeeper.turns.workbench import Workbench

EVENT_PAGE: Final = 500
_TYPES: Final = (*CALLS, SUBAGENT_STARTED, SUBAGENT_ENDED)


@dataclass(frozen=True, slots=True)
class Closing:
    """What is written of subagents that are over, and what is sent to the Guardian."""

    events: tuple[NewEvent, ...] = ()
    steps: tuple[NewStep, ...] = ()


NOTHING_OPEN: Final = Closing()


@dataclass(frozen=True, slots=True)
class Fate:
    """How subagents ended, who says so, and what their open calls come to."""

    outcome: SubagentOutcome
    source: EventSource = "platform"
    calls: ToolEnd = "unknown"


def fate_of(ending: Ending) -> Fate:
    """What becomes of the subagents of a turn that ends so."""
    if ending.status is TurnStatus.CANCELED or ending.stop_reason is StopReason.TIMEOUT:
        return Fate("canceled", calls="canceled")
    if ending.stop_reason is StopReason.BUDGET_REACHED:
        return Fate("budget_reached", calls="canceled")
    return Fate("failed")


async def closing_of_threads(bench: Workbench, turn: Turn, fate: Fate) -> Closing:
    """What ends the subagents of a turn that are open, innermost first."""
    main = await bench.store.steps(turn.session_id, turn_id=turn.id)
    threads = open_threads(main)
    if not threads:
        return NOTHING_OPEN
    own = await bench.store.thread_steps(turn.session_id, turn_id=turn.id)
    told = await _events(bench, turn)
    events: list[NewEvent] = []
    steps: list[NewStep] = []
    for thread_id in threads:
        of_thread = [step for step in own if step.thread_id == thread_id]
        events += await _closing_events(bench, turn, fate, [one for one in told if one.thread_id == thread_id], own)
        steps += closing_steps(turn, thread_id, of_thread, fate.outcome, bench.ids)
    return Closing(tuple(events), tuple(steps))


async def _closing_events(
    bench: Workbench, turn: Turn, fate: Fate, told: Sequence[Event], own: Sequence[Step]
) -> list[NewEvent]:
    began = next((event for event in told if event.type == SUBAGENT_STARTED), None)
    if began is None or any(event.type == SUBAGENT_ENDED for event in told):
        return []
    thread_id = cast("str", began.thread_id)
    calls = closed_calls(turn, (event for event in told if event.type in CALLS), status=fate.calls)
    ran = sum(step.method == TOOL_CALL_RESULT and step.thread_id == thread_id for step in own)
    lived_ms = max(epoch_ms(bench.clock.now()) - epoch_ms(began.created_at), 0)
    usage = await bench.store.thread_usage(turn.id, thread_id, tool_calls=ran, sandbox_ms=lived_ms)
    ended = subagent_ended(
        turn_id=turn.id,
        attempt=turn.attempt or None,
        thread_id=thread_id,
        outcome=fate.outcome,
        usage=usage_document(usage),
        source=fate.source,
    )
    return [*(replace(call, thread_id=thread_id) for call in calls), ended]


async def _events(bench: Workbench, turn: Turn) -> list[Event]:
    events: list[Event] = []
    after = turn.first_sequence - 1
    while True:
        page = await bench.store.events(turn.session_id, after=after, limit=EVENT_PAGE, types=_TYPES, turn_id=turn.id)
        events.extend(event for event in page if event.thread_id is not None)
        if len(page) < EVENT_PAGE:
            return events
        after = page[-1].sequence
