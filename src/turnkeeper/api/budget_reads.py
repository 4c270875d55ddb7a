"""Budgets, prices, ledgers and usage as the API shows them (contract 2.7, 2.13 and 4)."""

from collections.abc import Mapping

import orjson

from turnkeeper.api.reads import time_or_none
from turnkeeper.clock import render_time
from turnkeeper.turns.budget_accounts import Account, amount_document, limits_document
from turnkeeper.turns.budget_ports import LedgerCall, UsageQuery
from turnkeeper.turns.budgets import Taken, gauges
from turnkeeper.turns.model import Turn, Usage
from turnkeeper.turns.money import money_document
from turnkeeper.turns.prices import PriceRow
from turnkeeper.turns.usage import call_usage, model_document, usage_document


def render_budget(account: Account) -> bytes:
    """The budget object; `used` and `reserved` have the dimensions that are limited."""
    return orjson.dumps(
        {
            "id": account.id,
            "object": "budget",
            "scope": {"type": account.scope, "id": account.scope_id},
            "window": account.window,
            "timezone": account.timezone,
            "limits": limits_document(account.limits),
            "used": _figures(account, account.used),
            "reserved": _figures(account, account.reserved),
            "warn_at": list(account.warn_at),
            "status": account.status,
            "resets_at": time_or_none(account.resets_at),
            "created_at": render_time(account.created_at),
            "updated_at": render_time(account.updated_at),
            "archived_at": time_or_none(account.archived_at),
        }
    )


def render_prices(rows: tuple[PriceRow, ...]) -> bytes:
    """The whole price table."""
    prices = [
        {
            "model": row.model,
            "kind": row.kind,
            "per_million": money_document(row.per_million),
            "valid_from": render_time(row.valid_from),
        }
        for row in rows
    ]
    return orjson.dumps({"object": "model_prices", "prices": prices})


def render_ledger(turn: Turn, calls: tuple[LedgerCall, ...]) -> bytes:
    """A turn's usage, and each of its model calls with what it had reserved and what it came to."""
    document = {
        "object": "turn_usage",
        "turn_id": turn.id,
        "usage": usage_document(turn.usage),
        "calls": [_call(call) for call in calls],
    }
    return orjson.dumps(document)


def render_usage_groups(query: UsageQuery, groups: Mapping[str, Usage]) -> bytes:
    """Usage of a time by group."""
    document = {
        "object": "usage",
        "group_by": query.group_by,
        "from": render_time(query.since),
        "to": render_time(query.until),
        "data": [{"key": key or None, "usage": usage_document(usage)} for key, usage in groups.items()],
    }
    return orjson.dumps(document)


def _figures(account: Account, taken: Taken) -> dict[str, object]:
    return {gauge.dimension: amount_document(gauge.used) for gauge in gauges(account.limits, taken)}


def _call(call: LedgerCall) -> dict[str, object]:
    settled = None
    if call.settled is not None:
        settled = {**model_document(call_usage(call.settled)), "estimated": call.settled.estimated}
    return {
        "call": call.call,
        "state": call.state,
        "provider": call.provider,
        "model": call.model,
        "began_at": render_time(call.began_at),
        "settled_at": time_or_none(call.settled_at),
        "reserved": {"input_tokens": call.reserved_input_tokens, "output_tokens": call.reserved_output_tokens},
        "settled": settled,
    }
