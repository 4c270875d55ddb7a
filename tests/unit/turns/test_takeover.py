"""Whose turns may be taken over: by word of who knows, or by a lease that stands still."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.model import Fence, Hold
from turnkeeper.turns.takeover import LeaseWatch

TTL_MS = 30_000
HOLD = Hold(Fence("trn_1", "ses_1", "other", 3), beats=7)


def looks(watch: LeaseWatch, *seen: tuple[int, Hold]) -> list[bool]:
    """Whether the turn may be taken at each look."""
    return [bool(watch.lapsed([hold], (), now_ms)) for now_ms, hold in seen]


def test_a_lease_that_stands_still_for_its_time_is_over() -> None:
    assert looks(LeaseWatch(TTL_MS), (5, HOLD), (TTL_MS + 4, HOLD), (TTL_MS + 5, HOLD)) == [False, False, True]


def test_a_beat_begins_the_time_anew() -> None:
    beaten = replace(HOLD, beats=8)

    seen = looks(LeaseWatch(TTL_MS), (0, HOLD), (TTL_MS - 1, beaten), (TTL_MS, beaten), (2 * TTL_MS - 1, beaten))

    assert seen == [False, False, False, True]


def test_a_new_owner_begins_the_time_anew_though_it_beats_alike() -> None:
    """Also one of the same name: its fence has another number."""
    again = replace(HOLD, fence=replace(HOLD.fence, number=4))

    assert looks(LeaseWatch(TTL_MS), (0, HOLD), (TTL_MS, again)) == [False, False]


def test_who_is_known_to_be_gone_is_not_waited_for() -> None:
    other = Hold(Fence("trn_2", "ses_2", "alive", 1), beats=1)

    assert LeaseWatch(TTL_MS).lapsed([HOLD, other], {"other"}, 0) == (HOLD,)


def test_a_turn_that_nobody_holds_any_more_is_forgotten() -> None:
    watch = LeaseWatch(TTL_MS)
    watch.lapsed([HOLD], (), 0)
    watch.lapsed([], (), 10)

    assert watch.lapsed([HOLD], (), TTL_MS) == ()


@given(st.lists(st.integers(1, TTL_MS - 1), max_size=30))
def test_whoever_beats_within_the_time_is_never_taken(pauses: Sequence[int]) -> None:
    watch, now_ms = LeaseWatch(TTL_MS), 0
    for beats, pause_ms in enumerate(pauses):
        assert watch.lapsed([replace(HOLD, beats=beats)], (), now_ms) == ()
        now_ms += pause_ms
