from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.turns.samples import a_turn, an_ending

from turnkeeper.events.founding import check_founding
from turnkeeper.turns.model import CallRecord, ModelUsage, Usage
from turnkeeper.turns.results import render_terminal
from turnkeeper.turns.usage import (
    MAX_CALL_TOKENS,
    UsageInvalid,
    believable,
    parse_usage,
    render_usage,
    sum_usage,
    totals,
    usage_document,
)

TWELVE_KEYS = [
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_tokens",
    "model_calls",
    "tool_calls",
    "sandbox_ms",
    "cost",
    "by_model",
    "estimated",
]

CALL = CallRecord(
    call=1,
    provider="stub",
    model="large",
    accepted=True,
    input_tokens=100,
    cached_input_tokens=60,
    cache_write_tokens=10,
    output_tokens=40,
    reasoning_tokens=30,
    estimated=False,
    latency_ms=5,
    first_token_ms=None,
    finish_reason="stop",
    retries=0,
)
TOKENS = st.integers(min_value=-5, max_value=2 * MAX_CALL_TOKENS)
CALLS = st.builds(
    CallRecord,
    call=st.integers(1, 9),
    provider=st.sampled_from(["stub", "other"]),
    model=st.sampled_from(["a", "b"]),
    accepted=st.booleans(),
    input_tokens=TOKENS,
    cached_input_tokens=TOKENS,
    cache_write_tokens=TOKENS,
    output_tokens=TOKENS,
    reasoning_tokens=TOKENS,
    estimated=st.booleans(),
    latency_ms=st.just(1),
    first_token_ms=st.none(),
    finish_reason=st.none(),
    retries=st.just(0),
)


def test_zero_usage_is_twelve_keys_and_costs_nothing() -> None:
    document = usage_document(Usage())

    assert list(document) == TWELVE_KEYS
    assert document["cost"] == {"amount": "0", "currency": "USD"}
    assert [value for key, value in document.items() if key != "cost"] == [0] * 9 + [[], False]


def test_the_cost_of_tokens_is_not_known() -> None:
    document = usage_document(sum_usage([CALL], tool_calls=0, sandbox_ms=0))

    assert document["cost"] is None
    assert document["total_tokens"] == 140


def test_calls_are_summed_per_model_and_sorted() -> None:
    calls = [CALL, replace(CALL, model="a"), replace(CALL, accepted=False), replace(CALL, estimated=True)]

    usage = sum_usage(calls, tool_calls=2, sandbox_ms=7)

    assert [(entry.model, entry.model_calls) for entry in usage.by_model] == [("stub/a", 1), ("stub/large", 2)]
    assert (totals(usage).input_tokens, usage.tool_calls, usage.sandbox_ms, usage.estimated) == (400, 2, 7, True)


def test_a_call_that_no_provider_accepted_and_that_used_nothing_leaves_no_entry() -> None:
    refused = replace(believable(replace(CALL, accepted=False, input_tokens=0, output_tokens=0)), estimated=False)

    assert sum_usage([refused], tool_calls=0, sandbox_ms=0) == Usage()


def test_a_record_that_can_be_true_is_believed() -> None:
    assert believable(CALL) == CALL


def test_figures_that_contradict_each_other_are_cut_and_marked() -> None:
    record = believable(replace(CALL, cached_input_tokens=900, reasoning_tokens=900, output_tokens=-3))

    assert (record.cached_input_tokens, record.cache_write_tokens) == (100, 0)
    assert (record.output_tokens, record.reasoning_tokens, record.estimated) == (0, 0, True)


@given(st.lists(CALLS, max_size=8), st.integers(0, 99), st.integers(0, 99))
def test_whatever_providers_say_the_usage_keeps_the_invariants(
    calls: list[CallRecord], tool_calls: int, sandbox_ms: int
) -> None:
    usage = sum_usage([believable(call) for call in calls], tool_calls=tool_calls, sandbox_ms=sandbox_ms)

    assert check_founding(orjson.loads(render_terminal(a_turn(), an_ending(), usage))) == []
    assert parse_usage(render_usage(usage)) == usage


@pytest.mark.parametrize(
    "entry",
    [
        ModelUsage("m", 10, 6, 5, 0, 0, 1),
        ModelUsage("m", 10, 0, 0, 1, 2, 1),
        ModelUsage("m", -1, 0, 0, 0, 0, 1),
        ModelUsage("m", 1, 0, 0, 0, 0, -1),
    ],
)
def test_usage_that_contradicts_itself_is_not_written(entry: ModelUsage) -> None:
    with pytest.raises(UsageInvalid):
        render_usage(Usage(by_model=(entry,)))


def test_negative_time_is_not_written() -> None:
    with pytest.raises(UsageInvalid):
        render_usage(Usage(sandbox_ms=-1))
