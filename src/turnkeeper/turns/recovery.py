"""Turns whose worker is gone (contract 6, rows 10, 11 and 19 to 21): what their new owner makes of them.

Answers for one ending per orphan and for closing what the lost sandbox left open. Whether a turn that was running has
another attempt is not decided here: it may have had side effects (`attempts`).
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.turns import endings
from turnkeeper.turns.attempts import LEASE_EXPIRED
from turnkeeper.turns.endings import NEVER_RAN, Ran
from turnkeeper.turns.execution import Finish
from turnkeeper.turns.left_open import CALLS, STARTS, closed_calls, lost_box, worked_in_a_box
from turnkeeper.turns.lifecycle import Happening
from turnkeeper.turns.model import Turn, TurnStatus
from turnkeeper.turns.results import SubmissionTally
from turnkeeper.turns.windows import window_is_open
from turnkeeper.turns.workbench import Workbench

EVENT_PAGE: Final = 500


async def finish_orphan(bench: Workbench, turn: Turn, last_beat_at: datetime | None) -> Finish:
    """How a turn ends that was running when its worker went away, last heard of at `last_beat_at`."""
    ran = await ran_of(bench, turn)
    left_open = await close_open_calls(bench, turn)
    if turn.cancel_mode is not None:
        return Finish(endings.canceled(turn, Happening.CANCEL_GRACE_OVER, "interrupted", ran), tuple(left_open))
    message = "the worker that ran the turn went away"
    lost = lost_box(turn, await _events(bench, turn, STARTS), "lease_expired", last_beat_at)
    return Finish(endings.sandbox_lost(turn, ran, LEASE_EXPIRED, message), (*left_open, *lost))


async def finish_fault(bench: Workbench, turn: Turn, reference: str) -> Finish:
    """Row 28: how a turn ends that failed through a fault of ours, as far as it had come."""
    ran = await ran_of(bench, turn)
    ending = endings.internal_error(turn, ran, reference, turn_started=await has_open_window(bench, turn))
    return Finish(ending, tuple(await close_open_calls(bench, turn)))


async def has_lost_its_workspace(bench: Workbench, turn: Turn) -> bool:
    """Whether a tool of the turn worked in a workspace that this worker does not find (row 24a)."""
    if await asyncio.to_thread((bench.workspaces / turn.session_id).is_dir):
        return False
    return worked_in_a_box(await _events(bench, turn, CALLS))


async def ran_of(bench: Workbench, turn: Turn) -> Ran:
    """What the store knows of a run. Its monotonic clock is gone, so the last part of the duration is the wall's."""
    if turn.attempt == 0:
        return NEVER_RAN
    since_ms = 0.0
    if turn.status is TurnStatus.RUNNING and turn.active_since is not None:
        since_ms = (bench.clock.now() - turn.active_since).total_seconds() * 1000
    submissions = await bench.store.submissions(turn.id)
    valid = [submission.value_json for submission in submissions if submission.valid]
    return Ran(
        turn.active_ms + max(round(since_ms), 0), SubmissionTally(len(submissions), valid[-1] if valid else None)
    )


async def has_open_window(bench: Workbench, turn: Turn) -> bool:
    """Whether a turnEnd must follow."""
    return window_is_open(await bench.store.steps(turn.session_id, turn_id=turn.id))


async def close_open_calls(bench: Workbench, turn: Turn) -> list[NewEvent]:
    """`tool.completed` with status `unknown` for every call that the turn's own agent announced and that has none."""
    return closed_calls(turn, (event for event in await _events(bench, turn, CALLS) if event.thread_id is None))


async def _events(bench: Workbench, turn: Turn, types: Sequence[str]) -> list[Event]:
    events: list[Event] = []
    after = turn.first_sequence - 1
    while True:
        page = await bench.store.events(turn.session_id, after=after, limit=EVENT_PAGE, types=types, turn_id=turn.id)
        events.extend(page)
        if len(page) < EVENT_PAGE:
            return events
        after = page[-1].sequence
