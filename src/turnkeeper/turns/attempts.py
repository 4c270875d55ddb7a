"""Attempts of a turn (contract 6, rows 20 and 21): when a lost one is tried again, and after how long.

Pure. An attempt may have had side effects, so nothing is tried again unless the app asked for more than one.
"""

from typing import Final

from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.lifecycle import Happening
from turnkeeper.turns.model import Ending, Turn

FIRST_DELAY_MS: Final = 1_000
MAX_DELAY_MS: Final = 60_000

LEASE_EXPIRED: Final = "lease_expired"
SANDBOX_GONE: Final = "sandbox_lost"
_LOSSES: Final = frozenset({LEASE_EXPIRED, SANDBOX_GONE})
"""Errors of row 20 that another sandbox may be spared. One whose harness broke the protocol, or went on without a
budget, would do so again."""


def is_tried_again(turn: Turn, ending: Ending) -> bool:
    """Whether the turn has another attempt instead of this ending (row 21 instead of row 20)."""
    if ending.happening != Happening.SANDBOX_LOST or ending.error is None or turn.cancel_mode is not None:
        return False
    return ending.error.code in _LOSSES and turn.attempt < turn.max_attempts


def retry_delay_ms(failed_attempt: int) -> int:
    """How long to wait before the attempt after this one: twice as long each time, up to a limit."""
    doubled: int = FIRST_DELAY_MS << min(failed_attempt - 1, MAX_DELAY_MS.bit_length())
    return min(doubled, MAX_DELAY_MS)


def retrying(turn: Turn) -> NewEvent:
    """What is told of a lost attempt that is tried again."""
    return catalogue.turn_retrying(turn_id=turn.id, failed_attempt=turn.attempt, delay_ms=retry_delay_ms(turn.attempt))
