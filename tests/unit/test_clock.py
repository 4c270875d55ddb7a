"""Time as text and as numbers."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.clock import SystemClock, epoch_ms, from_epoch_ms, render_time

aware = st.integers(min_value=0, max_value=2**57).map(
    lambda microseconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)


@given(aware)
def test_milliseconds_and_back_lose_only_microseconds(at: datetime) -> None:
    """What is stored as a number is the same time when it is read."""
    assert timedelta(0) <= at - from_epoch_ms(epoch_ms(at)) < timedelta(milliseconds=1)


@given(aware, aware)
def test_text_order_is_time_order(one: datetime, other: datetime) -> None:
    """Rendered times can be compared as text."""
    if epoch_ms(one) < epoch_ms(other):
        assert render_time(one) < render_time(other)


def test_a_time_in_another_zone_is_written_in_utc() -> None:
    """One form only: milliseconds and `Z`."""
    berlin = timezone(timedelta(hours=2))
    assert render_time(datetime(2026, 7, 1, 14, 0, 0, 5999, tzinfo=berlin)) == "2026-07-01T12:00:00.005Z"


def test_the_system_clock_is_aware_and_its_monotonic_time_does_not_go_back() -> None:
    """What every rule relies on."""
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first
