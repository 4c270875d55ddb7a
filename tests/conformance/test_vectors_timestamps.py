"""Timestamps and the window (ledger 14)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import TimestampMalformed, TimestampOutOfWindow, check_window, parse_timestamp

_VECTORS = read_vectors("timestamps")
_NOW = datetime(2026, 6, 17, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", _VECTORS["valid"])
def test_a_valid_timestamp_is_read_as_an_aware_time(text: str) -> None:
    assert parse_timestamp(text) == datetime.fromisoformat(text)


@pytest.mark.parametrize("text", _VECTORS["invalid"])
def test_an_invalid_timestamp_is_refused(text: str) -> None:
    with pytest.raises(TimestampMalformed):
        parse_timestamp(text)


@pytest.mark.parametrize("case", _VECTORS["window"])
def test_a_timestamp_outside_the_window_is_refused(case: dict[str, Any]) -> None:
    at = _NOW + timedelta(milliseconds=case["offset_ms"])
    if case["accepted"]:
        check_window(at, _NOW, case["skew_window_ms"])
        return
    with pytest.raises(TimestampOutOfWindow) as refused:
        check_window(at, _NOW, case["skew_window_ms"])
    assert (refused.value.rpc_code, refused.value.data) == (-32006, {"skew_window_ms": case["skew_window_ms"]})
