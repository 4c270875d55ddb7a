"""What a turn takes up again after a pause in another process, or after a lost attempt (contract 6, rows 21 and 24).

Answers for an agent that finds its turn as it left it, as far as it was allowed: its input, its finished calls, the
call that waits; and for counts that go on where they stood. Everything comes from the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from turnkeeper.events.envelope import Event
from turnkeeper.sandbox.protocol import HistoryItem, Start
from turnkeeper.turns.history import item_bytes, rebuild_history
from turnkeeper.turns.model import Turn, Usage
from turnkeeper.turns.pausing import Pause
from turnkeeper.turns.payloads import AGENT_RESPONSE
from turnkeeper.turns.results import SubmissionTally
from turnkeeper.turns.usage import totals
from turnkeeper.turns.workbench import Workbench

LEFT_OUT: Final = "[left out: the turn's history is too long]"

_UNBOUNDED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Before:
    """What a turn has used up already: of submissions, of repairs, of models."""

    tally: SubmissionTally
    repairs_used: int
    usage: Usage


NOTHING_BEFORE: Final = Before(SubmissionTally(), 0, Usage())


@dataclass(frozen=True, slots=True)
class Resumed:
    """What was before a turn goes on; the pause it comes back from, or None where an attempt was lost."""

    pause: Pause | None
    before: Before


async def resumed_turn(bench: Workbench, turn: Turn) -> Resumed | None:
    """What there is to take up; None where the turn has not run yet."""
    if turn.attempt == 0:
        return None
    return Resumed(await bench.store.open_pause(turn.id), await _before(bench, turn))


def resumed_frame(start: Start, resumed: Resumed, events: Sequence[Event], *, max_bytes: int) -> Start:
    """The start of a harness that goes on in the middle of its turn: the call that waits is the end of its history.

    An attempt that follows a lost one is told how far that one came, and then its input once more.
    """
    own = [event for event in events if event.turn_id == start.turn_id]
    items = rebuild_history(own, max_bytes=_UNBOUNDED)
    summaries = [item for item in items if item.kind == "summary"]
    if not any(item.kind == "user" for item in items):
        items = [*summaries, HistoryItem("user", start.input), *items[len(summaries) :]]
    items = _shortened(items, max_bytes)
    # A summary made in this turn has what was before it.
    others = [] if summaries else [event for event in events if event.turn_id != start.turn_id]
    earlier = rebuild_history(others, max_bytes=max_bytes - sum(map(item_bytes, items)))
    call, before = None if resumed.pause is None else resumed.pause.call, resumed.before
    return replace(
        start,
        history=[*earlier, *items],
        pending=None if call is None else HistoryItem("tool", "", call.tool_call_id, call.name, call.input_json),
        submissions=before.tally.count,
        accepted=before.tally.valid_json,
        max_model_calls=max(start.max_model_calls - totals(before.usage).model_calls, 0),
    )


def _shortened(items: Sequence[HistoryItem], max_bytes: int) -> list[HistoryItem]:
    """All of the turn's items; where they are too long together, the oldest outputs are left out."""
    over = sum(map(item_bytes, items)) - max_bytes
    shortened: list[HistoryItem] = []
    for item in items:
        if over > 0 and item.kind == "tool":
            over -= item_bytes(item)
            shortened.append(replace(item, text=LEFT_OUT, arguments="{}"))
        else:
            shortened.append(item)
    return shortened


async def _before(bench: Workbench, turn: Turn) -> Before:
    submissions = await bench.store.submissions(turn.id)
    valid = [submission.value_json for submission in submissions if submission.valid]
    steps = await bench.store.steps(turn.session_id, turn_id=turn.id)
    denied = [step for step in steps if step.method == AGENT_RESPONSE and step.decision not in {None, "allow"}]
    refused = sum(not submission.valid for submission in submissions)
    tally = SubmissionTally(len(submissions), valid[-1] if valid else None)
    return Before(tally, refused + len(denied), turn.usage)
