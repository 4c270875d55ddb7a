"""Budgets over sessions, agents, keys and projects, prices and windows, in one ledger (contract 4 and 8)."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pytest
from tests.contract.store_rig import ANSWER, CALL, LOST, Rig, open_store, with_store

from turnkeeper.turns.budget_accounts import Account, BudgetChange, NewBudget
from turnkeeper.turns.budget_ports import UsageQuery
from turnkeeper.turns.model import PROJECT_ID, Budget, CallRecord, Fence
from turnkeeper.turns.money import Money
from turnkeeper.turns.ports import BudgetSpent
from turnkeeper.turns.prices import PriceRow, PriceUnknown, TokenKind
from turnkeeper.turns.usage import total_cost

MODEL = "stub/large"
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


def dollars(amount: str) -> Money:
    return Money(Decimal(amount), "USD")


def a_price(kind: TokenKind, amount: str, since: datetime = EPOCH) -> PriceRow:
    return PriceRow(MODEL, kind, dollars(amount), since)


async def priced(rig: Rig, *, model_input: str = "10", output: str = "100") -> None:
    await rig.store.budgets().put_prices(PROJECT_ID, [a_price("input", model_input), a_price("output", output)])


async def of_project(rig: Rig, limits: Budget, **fields: Any) -> Account:
    return await rig.store.budgets().create_budget(NewBudget(PROJECT_ID, "project", PROJECT_ID, limits, **fields))


async def called(rig: Rig, fence: Fence, record: CallRecord = CALL) -> bool:
    grant = await rig.store.reserve(fence, input_tokens=record.input_tokens, max_output_tokens=4_096)
    return await rig.store.settle(fence, replace(record, call=grant.call))


async def data_of(rig: Rig, session_id: str, event_type: str) -> list[dict[str, Any]]:
    events = await rig.events(session_id)
    return [orjson.loads(event.data) for event in events if event.type == event_type]


@with_store
async def test_a_call_costs_what_its_model_cost_when_it_began(rig: Rig) -> None:
    await priced(rig)
    fence = await rig.running()
    await rig.store.reserve(fence, input_tokens=100, max_output_tokens=300)
    await priced(rig, model_input="999", output="999")

    await rig.store.settle(fence, CALL)

    usage = (await rig.store.turn(fence.turn_id)).usage
    assert total_cost(usage.by_model) == dollars("0.006")
    [event] = await data_of(rig, fence.session_id, "model.called")
    assert event["usage"]["cost"] == {"amount": "0.006", "currency": "USD"}


@with_store
async def test_a_cost_that_nobody_knows_is_null_and_never_zero(rig: Rig) -> None:
    fence = await rig.running()
    await called(rig, fence)

    ended = await rig.store.end(fence, ANSWER)

    usage = orjson.loads(ended.data)["usage"]
    assert (usage["cost"], usage["by_model"][0]["cost"], usage["total_tokens"]) == (None, None, 150)


@with_store
async def test_a_cost_budget_lowers_the_cap_and_then_ends_the_turn(rig: Rig) -> None:
    await priced(rig)
    fence = await rig.running(budget=Budget(max_cost=dollars("0.05")))

    grant = await rig.store.reserve(fence, input_tokens=1_000, max_output_tokens=4_096)
    with pytest.raises(BudgetSpent) as refused:
        await rig.store.reserve(fence, input_tokens=1, max_output_tokens=300)

    # 1,000 tokens at 10 a million leave 0.04, which is 400 at 100 a million.
    assert grant.max_output_tokens == 400
    assert refused.value.detail["dimension"] == "max_cost"
    [reached] = await data_of(rig, fence.session_id, "budget.reached")
    assert (reached["budget_id"], reached["limit"]) == (None, {"amount": "0.05", "currency": "USD"})


@with_store
async def test_a_cost_budget_on_a_model_without_a_price_is_refused_at_the_post(rig: Rig) -> None:
    session = await rig.session()

    with pytest.raises(PriceUnknown):
        await rig.post(session.id, budget=Budget(max_cost=dollars("1")))
    await priced(rig)
    with pytest.raises(PriceUnknown):
        await rig.post(session.id, budget=Budget(max_cost=Money(Decimal(1), "EUR")))

    assert await rig.types(session.id) == ["session.created"]


@with_store
async def test_every_budget_over_a_turn_holds_it_and_the_one_that_runs_out_is_named(rig: Rig) -> None:
    wide = await of_project(rig, Budget(max_model_calls=9))
    fence = await rig.running(session_budget=Budget(max_total_tokens=9_999), budget=Budget(max_model_calls=5))
    agent_id = (await rig.store.turn(fence.turn_id)).agent_id
    narrow = await rig.store.budgets().create_budget(
        NewBudget(PROJECT_ID, "agent", agent_id, Budget(max_model_calls=1))
    )
    await called(rig, fence)

    with pytest.raises(BudgetSpent):
        await rig.store.reserve(fence, input_tokens=1, max_output_tokens=300)

    [reached] = await data_of(rig, fence.session_id, "budget.reached")
    assert (reached["budget_id"], reached["scope"]) == (narrow.id, {"type": "agent", "id": agent_id})
    assert (await rig.store.budgets().budget(PROJECT_ID, wide.id)).used.model_calls == 1


@with_store
async def test_a_keys_budget_leaves_other_keys_alone(rig: Rig) -> None:
    key = await rig.store.create_key(name="k", secret_sha256=rig.ids.uuid())
    limits = Budget(max_model_calls=1)
    await rig.store.budgets().create_budget(NewBudget(PROJECT_ID, "api_key", key.id, limits))
    held, free = await rig.running(api_key_id=key.id), await rig.running()
    await called(rig, held)

    assert (await rig.store.budget_left(held.turn_id), await rig.store.budget_left(free.turn_id)) == (False, True)


@with_store
async def test_a_head_whose_shared_budget_is_gone_needs_no_slot(rig: Rig) -> None:
    """C9: the claim knows budgets of every scope."""
    await of_project(rig, Budget(max_model_calls=1))
    fence = await rig.running()
    await called(rig, fence)
    other = await rig.post((await rig.session()).id)

    claim = await rig.store.claim("worker", slot=False)

    assert claim is not None
    assert claim.turn.id == other.id


@with_store
async def test_a_mark_is_warned_of_once_and_again_when_its_limit_is_raised(rig: Rig) -> None:
    budget = await of_project(rig, Budget(max_model_calls=4), warn_at=(50,))
    fence = await rig.running()
    for _ in range(3):
        await called(rig, fence)
    [warning] = await data_of(rig, fence.session_id, "budget.warning")

    await rig.store.budgets().change_budget(PROJECT_ID, budget.id, BudgetChange({"max_model_calls": 6}))
    await called(rig, fence)

    assert (warning["ratio"], warning["used"], warning["budget_id"]) == (0.5, 2, budget.id)
    assert [event["used"] for event in await data_of(rig, fence.session_id, "budget.warning")] == [2, 4]


@with_store
async def test_a_raised_limit_is_reached_anew(rig: Rig) -> None:
    budget = await of_project(rig, Budget(max_model_calls=1))
    fence = await rig.running()
    for limit in (1, 2):
        await rig.store.budgets().change_budget(PROJECT_ID, budget.id, BudgetChange({"max_model_calls": limit}))
        await called(rig, fence)
        with pytest.raises(BudgetSpent):
            await rig.store.reserve(fence, input_tokens=1, max_output_tokens=300)

    assert [event["limit"] for event in await data_of(rig, fence.session_id, "budget.reached")] == [1, 2]


@with_store
async def test_a_new_day_begins_with_nothing_used(rig: Rig) -> None:
    budget = await of_project(rig, Budget(max_model_calls=1), window="day", timezone="Europe/Berlin")
    fence = await rig.running()
    await called(rig, fence)
    assert not await rig.store.budget_left(fence.turn_id)
    assert budget.resets_at is not None

    rig.clock.advance(int((budget.resets_at - rig.clock.now()) / timedelta(milliseconds=1)))

    assert await rig.store.budget_left(fence.turn_id)
    await called(rig, fence)


@with_store
async def test_a_call_counts_in_the_window_in_which_it_began(rig: Rig) -> None:
    budget = await of_project(rig, Budget(max_total_tokens=9_000), window="day")
    fence = await rig.running()
    grant = await rig.store.reserve(fence, input_tokens=100, max_output_tokens=300)
    rig.clock.advance(86_400_000)

    await rig.store.settle(fence, replace(CALL, call=grant.call))

    seen = await rig.store.budgets().budget(PROJECT_ID, budget.id)
    assert (seen.used.total_tokens, seen.reserved.total_tokens) == (0, 0)


@with_store
async def test_what_a_dead_worker_had_reserved_is_used(rig: Rig) -> None:
    budget = await of_project(rig, Budget(max_total_tokens=9_000))
    fence = await rig.running()
    await rig.store.reserve(fence, input_tokens=100, max_output_tokens=700)
    held = await rig.store.budgets().budget(PROJECT_ID, budget.id)

    await rig.store.end(fence, LOST)

    seen = await rig.store.budgets().budget(PROJECT_ID, budget.id)
    assert (held.used.total_tokens, held.reserved.total_tokens) == (0, 800)
    assert (seen.used.total_tokens, seen.reserved.total_tokens) == (800, 0)


@with_store
async def test_a_tool_call_beyond_the_budget_is_not_counted(rig: Rig) -> None:
    fence = await rig.running(budget=Budget(max_tool_calls=1))
    await rig.store.tool_ran(fence)

    with pytest.raises(BudgetSpent):
        await rig.store.tool_ran(fence)

    assert (await rig.store.turn(fence.turn_id)).usage.tool_calls == 1
    assert await rig.store.budget_left(fence.turn_id)


@with_store
async def test_running_time_is_charged_once_and_says_how_much_is_left(rig: Rig) -> None:
    budget = await of_project(rig, Budget(max_active_ms=1_000))
    fence = await rig.running()

    grants = [
        await rig.store.reserve(fence, input_tokens=1, max_output_tokens=300, active_ms=active_ms)
        for active_ms in (400, 400, 700)
    ]

    assert [grant.active_left_ms for grant in grants] == [600, 600, 300]
    assert await rig.store.time_over(fence, 1_000)
    assert (await rig.store.budgets().budget(PROJECT_ID, budget.id)).used.active_ms == 1_000
    assert not await rig.store.budget_left(fence.turn_id)


@with_store
async def test_the_agent_is_to_finish_once_the_share_to_finish_with_is_all_there_is(rig: Rig) -> None:
    fence = await rig.running(budget=Budget(max_model_calls=3))

    assert [await called(rig, fence) for _ in range(3)] == [False, True, True]


@with_store
async def test_usage_is_summed_exactly_by_every_group(rig: Rig) -> None:
    await priced(rig, model_input="0.000001", output="0.1")
    fence = await rig.running()
    for _ in range(3):
        await called(rig, fence)
    since = rig.clock.now() - timedelta(days=1)
    for group in ("session", "agent", "api_key", "model", "day"):
        query = UsageQuery(PROJECT_ID, group, since, since + timedelta(days=2))
        found = await rig.store.budgets().usage(query)
        sums = [total_cost(usage.by_model) for usage in found.values() if usage.by_model]
        assert dollars("0.0000150003") in sums, (group, sums)
    [(_, usage)] = (await rig.store.budgets().session_usage([fence.session_id])).items()
    assert (usage.by_model[0].model_calls, usage.by_model[0].model) == (3, MODEL)


@with_store
async def test_turns_of_many_workers_never_overspend_a_budget_together(rig: Rig) -> None:
    await priced(rig)
    budget = await of_project(rig, Budget(max_cost=dollars("0.1"), max_model_calls=40))
    other = await open_store(rig.url, rig.clock)
    try:
        fences = [await rig.running() for _ in range(4)]
        stores = (rig.store, other.store)
        tries = [
            stores[number % 2].reserve(fence, input_tokens=50, max_output_tokens=300)
            for number, fence in enumerate(fences * 2)
        ]
        found = await asyncio.gather(*tries, return_exceptions=True)
    finally:
        await other.store.close()

    unexpected = [one for one in found if isinstance(one, BaseException) and not isinstance(one, BudgetSpent)]
    seen = await rig.store.budgets().budget(PROJECT_ID, budget.id)
    assert unexpected == []
    assert Decimal(0) < seen.reserved.cost <= Decimal("0.1")
