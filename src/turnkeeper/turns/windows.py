"""Which of a turn's steps belong together: a window from a turnStart to its turnEnd (contract, amendment 2).

Pure. A turn has one window, and one more for each time it goes on after a retry or a deferral.
"""

from collections.abc import Sequence

from turnkeeper.turns.model import Step
from turnkeeper.turns.payloads import TURN_END, TURN_START


def steps_since_last_end(steps: Sequence[Step], *, before: int | None = None) -> list[Step]:
    """The steps of a turn after its last turnEnd, or after the last one and up to the ordinal `before`."""
    earlier = [step for step in steps if before is None or step.ordinal < before]
    last_end = max((step.ordinal for step in earlier if step.method == TURN_END), default=0)
    return [step for step in earlier if step.ordinal > last_end]


def window_is_open(steps: Sequence[Step]) -> bool:
    """Whether a turnStart was, or will be, sent and not refused, and has no turnEnd yet."""
    return any(step.method == TURN_START and step.state != "refused" for step in steps_since_last_end(steps))


def goes_on(steps: Sequence[Step]) -> bool:
    """Whether the turn has had a window that was closed: its next turnStart is a continuation."""
    return any(step.method == TURN_END for step in steps)
