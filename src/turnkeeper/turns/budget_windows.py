"""When a budget's window begins and ends (contract 8): at local midnight of its timezone.

Pure: the timezone is handed in. A midnight that a clock change leaves out is the moment of the change; one that there
are two of is the first.
"""

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, Literal, TypeAlias

BudgetWindow: TypeAlias = Literal["total", "day", "month"]

BUDGET_WINDOWS: Final[tuple[BudgetWindow, ...]] = ("total", "day", "month")


def window_start(window: BudgetWindow, zone: tzinfo, now: datetime) -> datetime | None:
    """When the window that `now` is in began, in UTC; None for a budget without windows."""
    today = _local_date(zone, now)
    return None if window == "total" else _midnight(today if window == "day" else today.replace(day=1), zone)


def window_end(window: BudgetWindow, zone: tzinfo, now: datetime) -> datetime | None:
    """When the window that `now` is in ends, in UTC; None for a budget without windows."""
    today = _local_date(zone, now)
    if window == "total":
        return None
    following = today + timedelta(days=1) if window == "day" else _next_month(today)
    return _midnight(following, zone)


def _local_date(zone: tzinfo, now: datetime) -> date:
    return now.astimezone(zone).date()


def _next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _midnight(day: date, zone: tzinfo) -> datetime:
    local = datetime.combine(day, time(), zone)
    # Where the clock jumps over midnight this gives the moment of the jump: the offset before it is used.
    return local.astimezone(UTC)
