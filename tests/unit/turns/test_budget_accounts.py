"""What a budget's account becomes: windows, charges, marks, changes (contract 8)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.turns.test_usage import CALL

from turnkeeper.turns.budget_accounts import (
    Account,
    BudgetChange,
    LimitsInvalid,
    announced,
    changed,
    charged,
    current,
    warned,
    wraps_up,
)
from turnkeeper.turns.budget_windows import BudgetWindow, window_end, window_start
from turnkeeper.turns.budgets import Taken, shortfall
from turnkeeper.turns.model import Budget
from turnkeeper.turns.money import Money, MoneyInvalid, join_amount, parse_money, render_amount, split_amount
from turnkeeper.turns.prices import Price, PriceRow, TokenKind, call_cost, largest_cost, price_at
from turnkeeper.turns.usage import believable, total_cost

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia", "Africa/Cairo"])
TIMES = st.integers(0, 25 * 366 * 86_400).map(
    lambda seconds: datetime(2005, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)
AMOUNTS = st.decimals(0, 10**9, places=12)
TOKENS = st.integers(0, 10**6)
RATES = st.decimals(0, 1_000, places=6)
PRICES = st.builds(Price, st.just("USD"), RATES, RATES, RATES, RATES)
FIGURES = st.integers(0, 10**6)
TAKEN = st.builds(Taken, FIGURES, FIGURES, FIGURES, FIGURES, FIGURES, st.decimals(0, 1_000, places=12))


def account(limits: Budget, **fields: object) -> Account:
    made = Account(
        id="bud_1",
        project_id="prj_1",
        scope="project",
        scope_id="prj_1",
        limits=limits,
        window="total",
        timezone="UTC",
        warn_at=(50, 80),
        counts_from=NOON,
        resets_at=None,
        created_at=NOON,
        updated_at=NOON,
    )
    return replace(made, **fields)


@given(st.sampled_from(["day", "month"]), ZONES, TIMES)
def test_a_window_begins_and_ends_at_local_midnight_and_holds_its_time(
    window: BudgetWindow, name: str, now: datetime
) -> None:
    zone = ZoneInfo(name)
    start, end = window_start(window, zone, now), window_end(window, zone, now)
    assert start is not None
    assert end is not None

    assert start <= now < end
    assert window_start(window, zone, end) == end
    assert window_end(window, zone, end - timedelta(milliseconds=1)) == end


@pytest.mark.parametrize(
    ("zone", "now", "hours"),
    [
        ("Europe/Berlin", datetime(2026, 3, 29, 12, tzinfo=UTC), 23),
        ("Europe/Berlin", datetime(2026, 10, 25, 12, tzinfo=UTC), 25),
        # The clock went from 23:59:59 to 01:00:00: there was no midnight.
        ("America/Sao_Paulo", datetime(2018, 11, 4, 12, tzinfo=UTC), 23),
    ],
)
def test_a_day_of_a_clock_change_is_as_long_as_it_is(zone: str, now: datetime, hours: int) -> None:
    start, end = window_start("day", ZoneInfo(zone), now), window_end("day", ZoneInfo(zone), now)

    assert start is not None
    assert end is not None
    assert end - start == timedelta(hours=hours)


def test_a_month_ends_with_the_year() -> None:
    assert window_end("month", ZoneInfo("UTC"), datetime(2026, 12, 31, tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC)


@given(AMOUNTS)
def test_money_comes_back_from_text_and_from_two_integers(amount: Decimal) -> None:
    assert parse_money(render_amount(amount), "USD") == Money(amount, "USD")
    assert join_amount(*split_amount(amount)) == amount


@pytest.mark.parametrize("text", ["", "-1", "1e3", "01", ".5", "1.", "1.0000000000001", "NaN", "1,5"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(MoneyInvalid):
        parse_money(text, "USD")


@given(PRICES, TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_cost_is_exact_and_never_above_what_was_reserved(
    price: Price, input_tokens: int, cached: int, written: int, output: int
) -> None:
    record = believable(
        replace(
            CALL,
            input_tokens=input_tokens,
            cached_input_tokens=cached,
            cache_write_tokens=written,
            output_tokens=output,
        )
    )
    cost = call_cost(record, price)
    assert cost is not None

    assert cost.amount <= largest_cost(price, record.input_tokens, record.output_tokens)
    assert parse_money(render_amount(cost.amount), "USD") == cost


def test_a_price_is_that_of_its_time_and_needs_input_and_output() -> None:
    known_kinds: list[tuple[TokenKind, int, int]] = [
        ("input", 1, 0),
        ("output", 2, 0),
        ("output", 3, 1),
        ("cached_input", 5, 2),
    ]
    rows = [
        PriceRow("m", kind, Money(Decimal(amount), "USD"), NOON + timedelta(days=day))
        for kind, amount, day in known_kinds
    ]

    found = [price_at(rows, NOON + timedelta(days=day)) for day in (-1, 0, 1, 2)]

    assert found[0] is None
    known = [price for price in found if price is not None]
    assert [(price.output, price.cached_input) for price in known] == [(2, 1), (3, 1), (3, 5)]
    assert price_at(rows[1:], NOON + timedelta(days=1)) is None


@given(st.lists(st.tuples(TAKEN, TAKEN), max_size=8))
def test_what_was_reserved_and_given_back_leaves_what_was_used(calls: list[tuple[Taken, Taken]]) -> None:
    held = account(Budget(max_model_calls=1))
    for reserved, _ in calls:
        held = charged(held, reserved=reserved)
    for reserved, used in calls:
        held = charged(held, used=used, reserved=Taken() - reserved)

    assert held.reserved == Taken()
    assert held.used == sum((used for _, used in calls), Taken())


def test_a_mark_is_told_once_and_the_highest_speaks() -> None:
    before, found = warned(account(Budget(max_model_calls=10), used=Taken(model_calls=9)))

    assert [float(one.gauge.ratio) for one in found] == [0.9]
    assert warned(before) == (before, ())


def test_raising_a_limit_arms_its_own_marks_and_no_others() -> None:
    limits = Budget(max_model_calls=10, max_tool_calls=10)
    told, _ = warned(account(limits, used=Taken(model_calls=8, tool_calls=8)))

    after = changed(told, BudgetChange({"max_model_calls": 16}), NOON)

    assert after.warned == {"max_tool_calls:50", "max_tool_calls:80"}


def test_a_limit_is_announced_once_and_lowering_it_says_it_anew() -> None:
    spent = account(Budget(max_model_calls=2), used=Taken(model_calls=2))
    found = shortfall([spent.purse])
    assert found is not None
    told = announced(spent, found)
    assert told is not None

    lower = changed(told, BudgetChange({"max_model_calls": 1}), NOON)
    again = shortfall([lower.purse])

    assert (announced(told, found), told.status) == (None, "reached")
    assert again is not None
    assert announced(lower, again) is not None


@pytest.mark.parametrize("limits", [{"max_cost": None}, {"max_cost": Money(Decimal(1), "EUR")}])
def test_a_change_may_not_leave_a_budget_without_a_limit_or_with_another_currency(
    limits: dict[str, Money | None],
) -> None:
    with pytest.raises(LimitsInvalid):
        changed(
            account(Budget(max_cost=Money(Decimal(2), "USD"))), BudgetChange({"max_cost": limits["max_cost"]}), NOON
        )


def test_a_new_window_has_nothing_used_reserved_or_announced() -> None:
    end = NOON + timedelta(hours=12)
    spent = account(
        Budget(max_model_calls=1),
        window="day",
        resets_at=end,
        used=Taken(model_calls=1),
        reached={"max_model_calls": "1"},
        warned=frozenset({"max_model_calls:80"}),
    )

    assert current(spent, UTC, end - timedelta(milliseconds=1)) == spent
    after = current(spent, UTC, end)
    assert (after.used, after.reached, after.warned, after.counts_from) == (Taken(), {}, frozenset(), end)


@pytest.mark.parametrize(
    ("limits", "used", "expected"),
    [
        (Budget(max_model_calls=40), Taken(model_calls=37), False),
        (Budget(max_model_calls=40), Taken(model_calls=38), True),
        (Budget(max_model_calls=2), Taken(model_calls=1), True),
        (Budget(max_total_tokens=1_000), Taken(total_tokens=949), False),
        (Budget(max_total_tokens=1_000), Taken(total_tokens=950), True),
        (Budget(max_cost=Money(Decimal("0.2"), "USD")), Taken(cost=Decimal("0.19")), True),
    ],
)
def test_the_share_to_finish_with_is_five_percent_and_at_least_one_call(
    limits: Budget, used: Taken, *, expected: bool
) -> None:
    assert wraps_up([account(limits, used=used)]) is expected


def test_costs_of_two_currencies_have_no_sum() -> None:
    assert total_cost(()) == Money(Decimal(0), "USD")
