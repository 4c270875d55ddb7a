"""Time and replay."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import ReplayDetected, ReplayMemoryFull, ReplayWindow, TimestampOutOfWindow, check_window

_WINDOW_MS = 1000
_NOW = datetime(2026, 6, 17, 12, tzinfo=UTC)


@given(st.integers(-3000, 3000))
def test_a_time_is_accepted_up_to_the_window_and_not_beyond(offset_ms: int) -> None:
    at = _NOW + timedelta(milliseconds=offset_ms)
    if abs(offset_ms) <= _WINDOW_MS:
        check_window(at, _NOW, _WINDOW_MS)
        return
    with pytest.raises(TimestampOutOfWindow):
        check_window(at, _NOW, _WINDOW_MS)


def test_a_request_id_is_used_once_per_session() -> None:
    memory = ReplayWindow(skew_window_ms=_WINDOW_MS)
    memory.reserve("s", "r", None, 0)
    memory.reserve("other session", "r", None, 0)
    with pytest.raises(ReplayDetected) as refused:
        memory.reserve("s", "r", "nonce", 0)
    assert (refused.value.member, refused.value.rpc_code) == ("request_id", -32005)


def test_a_nonce_is_used_once_and_a_refused_request_reserves_nothing() -> None:
    memory = ReplayWindow(skew_window_ms=_WINDOW_MS)
    memory.reserve("s", "first", "nonce", 0)
    with pytest.raises(ReplayDetected) as refused:
        memory.reserve("s", "second", "nonce", 0)
    assert refused.value.member == "nonce"
    memory.reserve("s", "second", "another", 0)


@given(st.integers(0, 2 * _WINDOW_MS))
def test_an_id_is_remembered_for_two_windows(later_ms: int) -> None:
    memory = ReplayWindow(skew_window_ms=_WINDOW_MS)
    memory.reserve("s", "r", "nonce", 0)
    with pytest.raises(ReplayDetected):
        memory.reserve("s", "r", None, later_ms)


def test_an_id_is_forgotten_after_two_windows() -> None:
    memory = ReplayWindow(skew_window_ms=_WINDOW_MS)
    memory.reserve("s", "r", "nonce", 0)
    memory.reserve("s", "r", "nonce", 2 * _WINDOW_MS + 1)
    assert len(memory) == 1


def test_a_full_memory_refuses_new_work_and_still_knows_the_old() -> None:
    memory = ReplayWindow(skew_window_ms=_WINDOW_MS, capacity=1)
    memory.reserve("s", "r", None, 0)
    with pytest.raises(ReplayMemoryFull):
        memory.reserve("s", "new", None, 0)
    with pytest.raises(ReplayDetected):
        memory.reserve("s", "r", None, 0)
