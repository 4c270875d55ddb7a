"""The ledger and the budgets over a turn (contract 4 and 8)."""

import asyncio
from dataclasses import replace

import orjson
import pytest
from tests.contract.store_rig import ANSWER, CALL, DENIED, LOST, Rig, with_store

from turnkeeper.turns.model import Budget, CallRecord, Fence
from turnkeeper.turns.ports import BudgetSpent, NotFound


async def call(rig: Rig, fence: Fence, record: CallRecord = CALL, *, wanted: int = 500) -> CallRecord:
    grant = await rig.store.reserve(fence, input_tokens=record.input_tokens, max_output_tokens=wanted)
    settled = replace(record, call=grant.call)
    await rig.store.settle(fence, settled)
    return settled


@with_store
async def test_calls_are_numbered_and_the_cap_is_lowered_to_what_is_left(rig: Rig) -> None:
    fence = await rig.running(budget=Budget(max_output_tokens=700))

    first = await rig.store.reserve(fence, input_tokens=10, max_output_tokens=400)
    second = await rig.store.reserve(fence, input_tokens=10, max_output_tokens=400)

    assert [(first.call, first.max_output_tokens), (second.call, second.max_output_tokens)] == [(1, 400), (2, 300)]


@with_store
async def test_what_a_call_did_not_use_is_returned(rig: Rig) -> None:
    fence = await rig.running(session_budget=Budget(max_total_tokens=1_000))

    await call(rig, fence, wanted=900)

    assert (await rig.store.reserve(fence, input_tokens=100, max_output_tokens=9_999)).max_output_tokens == 750


@with_store
async def test_a_call_counts_although_its_workers_clock_is_behind_the_budgets(rig: Rig) -> None:
    fence = await rig.running(session_budget=Budget(max_total_tokens=1_000))
    rig.clock.jump(-3_600_000)

    await call(rig, fence, wanted=900)

    rig.clock.jump(3_600_000)
    assert (await rig.store.reserve(fence, input_tokens=100, max_output_tokens=9_999)).max_output_tokens == 750


@with_store
async def test_a_call_that_no_provider_accepted_costs_nothing(rig: Rig) -> None:
    fence = await rig.running(budget=Budget(max_model_calls=1))

    await call(rig, fence, replace(CALL, accepted=False, input_tokens=0, output_tokens=0))

    assert await rig.store.budget_left(fence.turn_id)
    await call(rig, fence)
    assert not await rig.store.budget_left(fence.turn_id)


@with_store
async def test_a_spent_budget_refuses_and_is_announced_once(rig: Rig) -> None:
    fence = await rig.running(budget=Budget(max_model_calls=1))
    await call(rig, fence)

    with pytest.raises(BudgetSpent) as refused:
        await rig.store.reserve(fence, input_tokens=1, max_output_tokens=300)
    with pytest.raises(BudgetSpent):
        await rig.store.reserve(fence, input_tokens=1, max_output_tokens=300)

    assert refused.value.detail == {"scope": "turn", "dimension": "max_model_calls", "limit": 1, "used": 1}
    reached = [event for event in await rig.events(fence.session_id) if event.type == "budget.reached"]
    assert [orjson.loads(event.data)["scope"] for event in reached] == [{"type": "turn", "id": fence.turn_id}]


@with_store
async def test_a_session_with_a_hundred_tokens_left_is_spent(rig: Rig) -> None:
    """Amendment 8: one predicate for the queue's front and the gateway."""
    fence = await rig.running(session_budget=Budget(max_total_tokens=1_000))
    assert await rig.store.budget_left(fence.turn_id)
    await call(rig, fence, replace(CALL, input_tokens=500, output_tokens=400))
    await rig.store.end(fence, ANSWER)
    later = await rig.post(fence.session_id)

    assert not await rig.store.budget_left(later.id)
    claim = await rig.store.claim("worker", slot=False)
    assert claim is not None
    with pytest.raises(BudgetSpent):
        await rig.store.reserve(claim.fence, input_tokens=0, max_output_tokens=256)


@with_store
async def test_a_session_budget_is_announced_once_over_all_its_turns(rig: Rig) -> None:
    fence = await rig.running(session_budget=Budget(max_model_calls=1))
    await call(rig, fence)
    with pytest.raises(BudgetSpent):
        await rig.store.reserve(fence, input_tokens=1, max_output_tokens=300)
    await rig.store.end(fence, ANSWER)
    await rig.post(fence.session_id)

    with pytest.raises(BudgetSpent):
        await rig.store.reserve((await rig.claim()).fence, input_tokens=1, max_output_tokens=300)

    assert (await rig.types(fence.session_id)).count("budget.reached") == 1


@with_store
async def test_a_second_record_of_a_call_changes_nothing(rig: Rig) -> None:
    fence = await rig.running()
    settled = await call(rig, fence)

    await rig.store.settle(fence, replace(settled, output_tokens=9_999))

    assert (await rig.store.turn(fence.turn_id)).usage.by_model[0].output_tokens == 50
    assert (await rig.types(fence.session_id)).count("model.called") == 1


@with_store
async def test_a_late_record_corrects_the_session_but_never_a_terminal_event(rig: Rig) -> None:
    fence = await rig.running(session_budget=Budget(max_total_tokens=1_000))
    await rig.store.reserve(fence, input_tokens=100, max_output_tokens=700)
    ended = await rig.store.end(fence, LOST)
    later = await rig.post(fence.session_id)
    assert not await rig.store.budget_left(later.id)

    await rig.store.settle(fence, CALL)

    assert await rig.store.budget_left(later.id)
    turn = await rig.store.turn(fence.turn_id)
    assert (turn.terminal_data, turn.usage.estimated) == (ended.data, True)
    assert (await rig.types(fence.session_id))[-2:] == ["turn.failed", "turn.queued"]


@with_store
async def test_a_call_that_was_never_reserved_cannot_be_settled(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await rig.store.settle(await rig.running(), CALL)


@with_store
async def test_what_a_provider_cannot_have_used_is_not_charged(rig: Rig) -> None:
    fence = await rig.running()

    await call(rig, fence, replace(CALL, cached_input_tokens=10**12, output_tokens=-5, finish_reason="\0"))

    turn = await rig.store.turn(fence.turn_id)
    assert (turn.usage.by_model[0].cached_input_tokens, turn.usage.by_model[0].output_tokens) == (100, 0)
    assert turn.usage.estimated


@with_store
async def test_calls_at_the_same_time_do_not_overdraw(rig: Rig) -> None:
    fence = await rig.running(session_budget=Budget(max_total_tokens=3_000, max_model_calls=5))

    reservations = [rig.store.reserve(fence, input_tokens=100, max_output_tokens=500) for _ in range(12)]
    found = await asyncio.gather(*reservations, return_exceptions=True)

    granted = [grant for grant in found if not isinstance(grant, BaseException)]
    assert len(granted) == 5
    assert sum(100 + grant.max_output_tokens for grant in granted) == 3_000
    assert all(isinstance(refused, BudgetSpent) for refused in found if isinstance(refused, BaseException))


@with_store
async def test_the_claim_and_the_rules_agree_on_who_cannot_pay(rig: Rig) -> None:
    limits = (None, 255, 256, 400)
    budgets = [Budget(1 if limit else None, limit, None) for limit in limits] + [Budget(None, None, n) for n in limits]
    for shared, own in zip(budgets, reversed(budgets), strict=True):
        fence = await rig.running(session_budget=shared)
        if await rig.store.budget_left(fence.turn_id):
            await call(rig, fence, replace(CALL, input_tokens=0, output_tokens=100))
        await rig.store.end(fence, ANSWER)
        turn = await rig.post(fence.session_id, budget=own)

        claim = await rig.store.claim("worker", slot=False)

        assert (claim is None) == await rig.store.budget_left(turn.id), (shared, own)
        await rig.store.end((claim or await rig.claim()).fence, DENIED)
