import pytest

from turnkeeper.turns.model import TurnStatus
from turnkeeper.turns.ports import QueueFull
from turnkeeper.turns.queueing import BlockedBy, blocked_by, check_depth


def test_a_queue_below_its_limit_takes_a_turn() -> None:
    check_depth(99, 100)


def test_a_full_queue_says_how_full_it_is() -> None:
    with pytest.raises(QueueFull) as refused:
        check_depth(100, 100)

    assert refused.value.detail == {"queue_depth": 100, "limit": 100}


def test_a_turn_behind_one_that_has_ended_is_blocked_by_nothing() -> None:
    assert blocked_by("trn_1", TurnStatus.COMPLETED) is None


@pytest.mark.parametrize("status", [TurnStatus.STARTING, TurnStatus.RUNNING])
def test_a_turn_behind_an_active_one_says_which_and_why(status: TurnStatus) -> None:
    assert blocked_by("trn_1", status) == BlockedBy("trn_1", status.value)  # pyright: ignore[reportArgumentType] (both values are literals)
