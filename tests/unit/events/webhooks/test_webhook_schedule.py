from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.events.webhooks.schedule import (
    DELAYS_MS,
    HOUR_MS,
    MAX_RETRY_AFTER_MS,
    SPREAD,
    Verdict,
    is_failing_too_long,
    judge,
    parse_retry_after,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def verdict(status: int | None, tries: int = 1) -> Verdict:
    return judge(status, tries, retry_after_ms=None, chance=0.5).verdict


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_any_2xx_is_success(status: int) -> None:
    assert verdict(status) is Verdict.DELIVERED


@pytest.mark.parametrize("status", [None, 100, 199, 301, 302, 307, 400, 404, 500, 503])
def test_everything_else_is_tried_again_a_redirection_too(status: int | None) -> None:
    assert verdict(status) is Verdict.RETRY


@pytest.mark.parametrize("status", [None, 500])
def test_a_delivery_is_dead_after_its_last_try(status: int | None) -> None:
    assert verdict(status, len(DELAYS_MS) - 1) is Verdict.RETRY
    assert verdict(status, len(DELAYS_MS)) is Verdict.DEAD


def test_410_says_that_the_endpoint_is_gone() -> None:
    outcome = judge(410, 1, retry_after_ms=None, chance=0.5)
    assert (outcome.verdict, outcome.gone) == (Verdict.DEAD, True)


@given(tries=st.integers(1, len(DELAYS_MS) - 1), chance=st.floats(0, 1))
def test_a_delay_is_the_tables_within_a_tenth(tries: int, chance: float) -> None:
    delay_ms = judge(500, tries, retry_after_ms=None, chance=chance).delay_ms
    assert abs(delay_ms - DELAYS_MS[tries]) <= DELAYS_MS[tries] * SPREAD + 1


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_lengthens_a_delay_up_to_a_day(status: int) -> None:
    assert judge(status, 1, retry_after_ms=HOUR_MS, chance=0.5).delay_ms == HOUR_MS
    assert judge(status, 1, retry_after_ms=99 * HOUR_MS, chance=0.5).delay_ms == MAX_RETRY_AFTER_MS
    assert judge(status, 1, retry_after_ms=1, chance=0.5).delay_ms == DELAYS_MS[1]


def test_retry_after_of_another_status_is_not_listened_to() -> None:
    assert judge(500, 1, retry_after_ms=HOUR_MS, chance=0.5).delay_ms == DELAYS_MS[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("120", 120_000),
        ("Tue, 01 Dec 2026 12:00:30 GMT", 30_000),
        ("Tue, 01 Dec 2026 11:00:00 GMT", 0),
        ("9" * 5000, MAX_RETRY_AFTER_MS),
        ("-5", None),
        ("soon", None),
        ("Tue, 01 Dec 2026 12:00:30", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date_or_not_at_all(value: str | None, expected: int | None) -> None:
    assert parse_retry_after(value, NOW) == expected


def test_an_endpoint_fails_too_long_after_five_days() -> None:
    assert is_failing_too_long(NOW, NOW + timedelta(days=5))
    assert not is_failing_too_long(NOW, NOW + timedelta(days=5) - timedelta(seconds=1))
