"""What a turn consumed (contract 4): sums over the ledger, the invariants between the numbers, the document.

Pure, and the one place that knows the shape of `usage.json` (contract 19, question 1). A provider's figures are
believed only as far as they can be true.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import orjson

from turnkeeper.errors import LocalProtocolError
from turnkeeper.turns.model import CallRecord, ModelUsage, Usage
from turnkeeper.turns.money import ZERO, Money, money_document, parse_money

MAX_CALL_TOKENS: Final = 1_000_000_000
"""More than any model call can use; a provider that claims more is cut to this."""

NO_COST: Final = Money(ZERO, "USD")


class UsageInvalid(LocalProtocolError):
    """Numbers that contradict each other (the invariants of contract 4)."""

    code = "usage_invalid"


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """The sums over `by_model`."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


def believable(record: CallRecord) -> CallRecord:
    """The record with figures that can all be true, marked `estimated` where one had to be cut."""
    input_tokens = _bounded(record.input_tokens, MAX_CALL_TOKENS)
    cached = _bounded(record.cached_input_tokens, input_tokens)
    output_tokens = _bounded(record.output_tokens, MAX_CALL_TOKENS)
    checked = replace(
        record,
        input_tokens=input_tokens,
        cached_input_tokens=cached,
        cache_write_tokens=_bounded(record.cache_write_tokens, input_tokens - cached),
        output_tokens=output_tokens,
        reasoning_tokens=_bounded(record.reasoning_tokens, output_tokens),
    )
    return checked if checked == record else replace(checked, estimated=True)


def call_usage(record: CallRecord) -> ModelUsage:
    """One call as a `by_model` entry. A model is named with the provider that was configured for it."""
    return ModelUsage(
        model=f"{record.provider}/{record.model}",
        input_tokens=record.input_tokens,
        cached_input_tokens=record.cached_input_tokens,
        cache_write_tokens=record.cache_write_tokens,
        output_tokens=record.output_tokens,
        reasoning_tokens=record.reasoning_tokens,
        model_calls=1 if record.accepted else 0,
        cost=record.cost,
    )


def sum_usage(calls: Iterable[CallRecord], *, tool_calls: int, sandbox_ms: int) -> Usage:
    """The usage of a turn from its ledger rows, one entry per model, sorted by model."""
    by_model: dict[str, ModelUsage] = {}
    estimated = False
    for record in calls:
        entry = call_usage(record)
        if not entry.model_calls and not entry.input_tokens and not entry.output_tokens:
            continue
        seen = by_model.get(entry.model)
        by_model[entry.model] = entry if seen is None else _add(seen, entry)
        estimated = estimated or record.estimated
    models = tuple(by_model[name] for name in sorted(by_model))
    return Usage(by_model=models, tool_calls=tool_calls, sandbox_ms=sandbox_ms, estimated=estimated)


def total_cost(entries: Iterable[ModelUsage]) -> Money | None:
    """The sum of the costs; `None` where one that has tokens is unknown, or two are in different currencies."""
    counted = _that_cost(entries)
    return _sum_costs(counted) if counted else NO_COST


def _that_cost(entries: Iterable[ModelUsage]) -> list[ModelUsage]:
    return [entry for entry in entries if entry.input_tokens or entry.output_tokens or entry.cost is not None]


def _sum_costs(entries: Sequence[ModelUsage]) -> Money | None:
    known = [entry.cost for entry in entries if entry.cost is not None]
    if not known or len(known) < len(entries) or len({cost.currency for cost in known}) > 1:
        return None
    return Money(sum((cost.amount for cost in known), ZERO), known[0].currency)


def totals(usage: Usage) -> UsageTotals:
    """The sums over `by_model`."""
    entries = usage.by_model
    return UsageTotals(
        input_tokens=sum(entry.input_tokens for entry in entries),
        cached_input_tokens=sum(entry.cached_input_tokens for entry in entries),
        cache_write_tokens=sum(entry.cache_write_tokens for entry in entries),
        output_tokens=sum(entry.output_tokens for entry in entries),
        reasoning_tokens=sum(entry.reasoning_tokens for entry in entries),
        model_calls=sum(entry.model_calls for entry in entries),
    )


def check_usage(usage: Usage) -> None:
    """Raises `UsageInvalid` when the numbers contradict each other."""
    for entry in usage.by_model:
        if min(_figures(entry).values()) < 0:
            raise UsageInvalid(f"usage of {entry.model} has a negative figure")
        if entry.cached_input_tokens + entry.cache_write_tokens > entry.input_tokens:
            raise UsageInvalid(f"usage of {entry.model} has more cached tokens than input tokens")
        if entry.reasoning_tokens > entry.output_tokens:
            raise UsageInvalid(f"usage of {entry.model} has more reasoning tokens than output tokens")
    if usage.tool_calls < 0 or usage.sandbox_ms < 0:
        raise UsageInvalid("usage has a negative figure")


def usage_document(usage: Usage) -> dict[str, object]:
    """The twelve keys of `usage.json`. Raises `UsageInvalid`.

    Cost is null where a price is not known, and zero only where nothing could have cost anything.
    """
    check_usage(usage)
    sums, cost = totals(usage), total_cost(usage.by_model)
    return {
        "input_tokens": sums.input_tokens,
        "cached_input_tokens": sums.cached_input_tokens,
        "cache_write_tokens": sums.cache_write_tokens,
        "output_tokens": sums.output_tokens,
        "reasoning_tokens": sums.reasoning_tokens,
        "total_tokens": sums.total_tokens,
        "model_calls": sums.model_calls,
        "tool_calls": usage.tool_calls,
        "sandbox_ms": usage.sandbox_ms,
        "cost": None if cost is None else money_document(cost),
        "by_model": [model_document(entry) for entry in usage.by_model],
        "estimated": usage.estimated,
    }


def model_document(entry: ModelUsage) -> dict[str, object]:
    """One `by_model` entry of `usage.json`."""
    cost = None if entry.cost is None else money_document(entry.cost)
    return {"model": entry.model, **_figures(entry), "cost": cost}


def render_usage(usage: Usage) -> str:
    """The JSON text of `usage.json`. Raises `UsageInvalid`."""
    return orjson.dumps(usage_document(usage)).decode()


def parse_usage(text: str) -> Usage:
    """A text that `render_usage` made."""
    document = cast("Mapping[str, object]", orjson.loads(text))
    entries = cast("list[dict[str, object]]", document["by_model"])
    return Usage(
        by_model=tuple(_parse_entry(entry) for entry in entries),
        tool_calls=cast("int", document["tool_calls"]),
        sandbox_ms=cast("int", document["sandbox_ms"]),
        estimated=cast("bool", document["estimated"]),
    )


def _parse_entry(entry: Mapping[str, object]) -> ModelUsage:
    figures = {name: cast("int", value) for name, value in entry.items() if name not in {"model", "cost"}}
    cost = cast("Mapping[str, str] | None", entry["cost"])
    known = None if cost is None else parse_money(cost["amount"], cost["currency"])
    return ModelUsage(model=cast("str", entry["model"]), **figures, cost=known)


def _figures(entry: ModelUsage) -> dict[str, int]:
    return {
        "input_tokens": entry.input_tokens,
        "cached_input_tokens": entry.cached_input_tokens,
        "cache_write_tokens": entry.cache_write_tokens,
        "output_tokens": entry.output_tokens,
        "reasoning_tokens": entry.reasoning_tokens,
        "model_calls": entry.model_calls,
    }


def _add(one: ModelUsage, other: ModelUsage) -> ModelUsage:
    added, cost = _figures(other), _sum_costs(_that_cost((one, other)))
    return ModelUsage(
        model=one.model, **{name: value + added[name] for name, value in _figures(one).items()}, cost=cost
    )


def _bounded(value: int, highest: int) -> int:
    return max(0, min(value, highest))
