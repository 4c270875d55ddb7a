"""Time as something that is handed in, so that rules and tests decide what the time is."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Wall time for records, monotonic time for durations."""

    def now(self) -> datetime:
        """The wall time, aware and in UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The wall time, aware and in UTC."""
        return datetime.now(UTC)

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary start; never goes back."""
        return time.monotonic_ns() // 1_000_000


def epoch_ms(at: datetime) -> int:
    """Whole milliseconds since 1970-01-01 UTC."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def from_epoch_ms(milliseconds: int) -> datetime:
    """The aware UTC time of a count of milliseconds since 1970-01-01."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def render_time(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds and `Z`, the one form this platform writes."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
