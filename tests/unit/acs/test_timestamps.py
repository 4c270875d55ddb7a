"""RFC 3339 times: any fraction, any offset, never a guessed zone."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import TimestampMalformed, parse_timestamp

_OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=_OFFSETS)  # noqa: DTZ001 (bounds are naive)


@given(_TIMES)
def test_an_aware_time_comes_back_as_the_same_instant_in_utc(at: datetime) -> None:
    read = parse_timestamp(at.isoformat())
    assert (read, read.tzinfo) == (at, UTC)


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [("12:00:00.5", 500_000), ("12:00:00.1234567", 123_456), ("12:00:00." + "9" * 100_000, 999_999)],
    ids=["one digit", "seven digits", "many digits"],
)
def test_a_fraction_of_any_length_is_cut_to_microseconds(text: str, microsecond: int) -> None:
    assert parse_timestamp(f"2026-06-17t{text}z").microsecond == microsecond


def test_a_leap_second_is_the_second_after() -> None:
    assert parse_timestamp("2016-12-31T23:59:60.25Z") == datetime(2017, 1, 1, 0, 0, 0, 250_000, UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-06-17T12:00:00",
        "2026-06-17 12:00:00Z",
        "2026-06-17T12:00:00+2:00",
        "2026-06-17T12:00:00+0200",
        "2026-06-17T12:00:00+00:60",
        "2026-06-17T12:00:00.Z",
        "2026-06-17T24:00:00Z",
        "2026-06-17T12:00:61Z",
        "2026-13-01T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:60Z",
        "\u0662\u0660\u0662\u0666-06-17T12:00:00Z",
        "2026-06-17T12:00:00Z\n",
    ],
)
def test_a_text_that_names_no_instant_is_refused(text: str) -> None:
    with pytest.raises(TimestampMalformed):
        parse_timestamp(text)


def test_a_refusal_shows_no_more_than_the_beginning_of_a_long_text() -> None:
    with pytest.raises(TimestampMalformed) as refused:
        parse_timestamp("x" * 100_000)
    assert len(refused.value.message) < 200
