"""When a delivery is tried again, and when it is given up (contract 12).

Pure. The delay before a try comes from the table, spread by a tenth so that many deliveries that failed together do
not come back together; a receiver's `Retry-After` may only lengthen it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS

DELAYS_MS: Final = (
    *(0, 5 * SECOND_MS, 5 * MINUTE_MS, 30 * MINUTE_MS),
    *(2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 14 * HOUR_MS, 20 * HOUR_MS, 24 * HOUR_MS),
)
"""The delay before each try of a round, the first included."""
SPREAD: Final = 0.1
MAX_RETRY_AFTER_MS: Final = 24 * HOUR_MS
FAILING_LIMIT: Final = timedelta(days=5)
"""An endpoint that has taken nothing for so long is disabled."""
GONE: Final = 410
_WAITS_AS_ASKED: Final = frozenset({429, 503})


class Verdict(StrEnum):
    """What one try means for its delivery."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict, the delay before the next try, and whether the endpoint said that it is gone for good."""

    verdict: Verdict
    delay_ms: int = 0
    gone: bool = False


def judge(status: int | None, tries: int, *, retry_after_ms: int | None, chance: float) -> Outcome:
    """What the `tries`-th try of a round leads to; `status` is `None` where no answer came, `chance` from 0 to 1.

    Any 2xx is success. Everything else is a failure, a redirection too.
    """
    if status is not None and 200 <= status < 300:
        return Outcome(Verdict.DELIVERED)
    if status == GONE:
        return Outcome(Verdict.DEAD, gone=True)
    if tries >= len(DELAYS_MS):
        return Outcome(Verdict.DEAD)
    delay_ms = round(DELAYS_MS[tries] * (1 + SPREAD * (2 * chance - 1)))
    if status in _WAITS_AS_ASKED and retry_after_ms is not None:
        delay_ms = max(delay_ms, min(retry_after_ms, MAX_RETRY_AFTER_MS))
    return Outcome(Verdict.RETRY, delay_ms)


def parse_retry_after(value: str | None, now: datetime) -> int | None:
    """Milliseconds that a `Retry-After` asks for (seconds or a date); `None` for none, or one that says nothing."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return min(int(text[:10]) * SECOND_MS, MAX_RETRY_AFTER_MS)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    if until.tzinfo is None:
        return None
    return max(0, min(round((until - now).total_seconds() * SECOND_MS), MAX_RETRY_AFTER_MS))


def is_failing_too_long(failing_since: datetime, now: datetime) -> bool:
    """Whether an endpoint is disabled for having taken nothing all this time."""
    return now - failing_since >= FAILING_LIMIT
