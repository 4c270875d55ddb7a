from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.budgets import (
    FLOOR_OUTPUT_TOKENS,
    Purse,
    Shortfall,
    Taken,
    purses_over,
    reservation,
    reserve,
    shortfall,
)
from turnkeeper.turns.model import Budget

LIMIT = st.none() | st.integers(1, 3_000)
BUDGETS = st.builds(Budget, LIMIT, LIMIT, LIMIT)
TAKEN = st.builds(Taken, st.integers(0, 4), st.integers(0, 3_000), st.integers(0, 3_000))
PURSES = st.lists(st.builds(Purse, st.sampled_from(["turn", "session"]), st.just("id"), BUDGETS, TAKEN), max_size=3)


def purse(budget: Budget, taken: Taken | None = None) -> Purse:
    return Purse("turn", "trn_1", budget, taken or Taken())


def test_without_a_budget_a_call_gets_what_it_wants() -> None:
    assert reserve([], input_tokens=10**6, max_output_tokens=10**6) == 10**6
    assert shortfall([]) is None


def test_the_output_cap_is_lowered_to_what_is_left() -> None:
    assert reserve([purse(Budget(max_total_tokens=1_000))], input_tokens=600, max_output_tokens=4_096) == 400
    left = purse(Budget(max_output_tokens=1_000), Taken(output_tokens=700))
    assert reserve([left], input_tokens=9_999, max_output_tokens=4_096) == 300


def test_a_call_below_the_floor_is_not_made() -> None:
    refused = reserve([purse(Budget(max_total_tokens=1_000))], input_tokens=745, max_output_tokens=4_096)

    assert refused == Shortfall("turn", "trn_1", "max_total_tokens", 1_000, 0)


def test_a_call_that_wants_less_than_the_floor_may_have_it_while_there_is_budget() -> None:
    assert reserve([purse(Budget(max_total_tokens=1_000))], input_tokens=950, max_output_tokens=50) == 50


def test_a_budget_with_less_than_the_smallest_call_is_spent() -> None:
    """Amendment 8."""
    left = purse(Budget(max_total_tokens=1_000), Taken(total_tokens=900))

    assert shortfall([left]) == Shortfall("turn", "trn_1", "max_total_tokens", 1_000, 900)
    assert isinstance(reserve([left], input_tokens=1, max_output_tokens=50), Shortfall)


def test_model_calls_run_out_one_by_one() -> None:
    budget = Budget(max_model_calls=2)

    assert reserve([purse(budget, Taken(model_calls=1))], input_tokens=5, max_output_tokens=9) == 9
    assert shortfall([purse(budget, Taken(model_calls=2))]) == Shortfall("turn", "trn_1", "max_model_calls", 2, 2)


def test_the_first_budget_to_run_out_is_named() -> None:
    wide = purse(Budget(max_model_calls=9))
    narrow = Purse("session", "ses_1", Budget(max_output_tokens=100))

    assert shortfall([wide, narrow]) == Shortfall("session", "ses_1", "max_output_tokens", 100, 0)


def test_only_budgets_that_exist_hold_a_turn() -> None:
    found = purses_over(("turn", "t", None, Taken()), ("session", "s", Budget(max_model_calls=1), Taken()))

    assert [held.id for held in found] == ["s"]


@given(PURSES)
def test_no_budget_left_means_the_same_at_the_front_and_at_the_gateway(purses: Sequence[Purse]) -> None:
    refused = reserve(purses, input_tokens=0, max_output_tokens=FLOOR_OUTPUT_TOKENS)

    assert shortfall(purses) == (refused if isinstance(refused, Shortfall) else None)


@given(PURSES, st.integers(0, 3_000), st.integers(1, 5_000))
def test_a_granted_call_overdraws_no_budget(purses: Sequence[Purse], input_tokens: int, wanted: int) -> None:
    cap = reserve(purses, input_tokens=input_tokens, max_output_tokens=wanted)
    if isinstance(cap, Shortfall):
        return
    for held in purses:
        taken, limit = held.taken + reservation(input_tokens, cap), held.budget
        assert limit.max_model_calls is None or taken.model_calls <= limit.max_model_calls
        assert limit.max_total_tokens is None or taken.total_tokens <= limit.max_total_tokens
        assert limit.max_output_tokens is None or taken.output_tokens <= limit.max_output_tokens
    assert min(wanted, FLOOR_OUTPUT_TOKENS) <= cap <= wanted


@given(TAKEN, TAKEN)
def test_what_is_returned_was_taken(one: Taken, other: Taken) -> None:
    assert one + other - other == one


@pytest.mark.parametrize("limit", [1, FLOOR_OUTPUT_TOKENS - 1])
def test_a_budget_smaller_than_the_floor_was_never_worth_anything(limit: int) -> None:
    assert shortfall([purse(Budget(max_output_tokens=limit))]) is not None
