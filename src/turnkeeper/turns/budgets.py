"""What a turn may still use (contract 8, amendment 8): reserve before a model call, settle after it.

Pure. "No budget left" is one predicate, asked at the front of the queue and at the gateway: what is left cannot pay
for the smallest call. Overshoot is limited to the error of one call's input count.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from turnkeeper.turns.model import Budget
from turnkeeper.turns.money import ZERO, Money
from turnkeeper.turns.prices import Price, of_tokens

FLOOR_OUTPUT_TOKENS: Final = 256
"""A call whose output would be cut below this is not made; it is the smallest call."""

WRAP_UP_PERCENT: Final = 5
"""The share of a limit, at the least one call of it, that is kept for the agent to finish with."""

Dimension: TypeAlias = Literal[
    "max_model_calls", "max_total_tokens", "max_output_tokens", "max_tool_calls", "max_active_ms", "max_cost"
]
Scope: TypeAlias = Literal["turn", "session", "agent", "api_key", "project"]
Amount: TypeAlias = int | Money

_COUNTS: Final[frozenset[Dimension]] = frozenset({"max_model_calls", "max_tool_calls"})
_PLENTY: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Taken:
    """What was used, or reserved, or both together. The cost is in the currency of the budget it was taken from."""

    model_calls: int = 0
    total_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    active_ms: int = 0
    cost: Decimal = ZERO

    def __add__(self, other: "Taken") -> "Taken":
        return Taken(*(getattr(self, name) + getattr(other, name) for name in _TAKEN))

    def __sub__(self, other: "Taken") -> "Taken":
        return Taken(*(getattr(self, name) - getattr(other, name) for name in _TAKEN))

    def floored(self) -> "Taken":
        """The same, nothing below zero."""
        return Taken(*(max(getattr(self, name), type(getattr(self, name))(0)) for name in _TAKEN))


NOTHING_TAKEN: Final = Taken()
_TAKEN: Final = tuple(field.name for field in fields(Taken))


@dataclass(frozen=True, slots=True)
class Purse:
    """A budget over a turn, whose it is, and what was taken from it. `budget_id` is a budget resource's."""

    scope: Scope
    id: str
    budget: Budget
    taken: Taken = NOTHING_TAKEN
    budget_id: str | None = None
    resets_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The limit that refuses a call: the first of the budgets over the turn to run out."""

    scope: Scope
    id: str
    dimension: Dimension
    limit: Amount
    used: Amount
    budget_id: str | None = None
    resets_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Gauge:
    """How far one limit is used."""

    dimension: Dimension
    limit: Amount
    used: Amount

    @property
    def ratio(self) -> Decimal:
        """Used by limit; over one where more was used than was counted before."""
        return _number(self.used) / _number(self.limit)

    @property
    def wraps_up(self) -> bool:
        """Whether what is left is no more than the share to finish with."""
        limit = _number(self.limit)
        share = limit * WRAP_UP_PERCENT / 100
        return _number(self.used) >= limit - (max(share, Decimal(1)) if self.dimension in _COUNTS else share)


def reservation(input_tokens: int, output_tokens: int, cost: Decimal = ZERO) -> Taken:
    """What one call with these tokens takes from every budget."""
    return Taken(model_calls=1, total_tokens=input_tokens + output_tokens, output_tokens=output_tokens, cost=cost)


def reserve(
    purses: Iterable[Purse], *, input_tokens: int, max_output_tokens: int, price: Price | None = None
) -> int | Shortfall:
    """The output tokens a call may have, at most `max_output_tokens`, or the limit that refuses it.

    `price` is that of the turn's model; without one a cost budget refuses every call.
    """
    held = tuple(purses)
    spent = shortfall(held, price)
    if spent is not None:
        return spent
    cap = max_output_tokens
    for purse in held:
        for limit in _token_limits(purse, input_tokens, price):
            cap = min(cap, limit.left)
            if cap < min(max_output_tokens, FLOOR_OUTPUT_TOKENS):
                return limit.refusal(purse)
    return cap


def shortfall(purses: Iterable[Purse], price: Price | None = None) -> Shortfall | None:
    """The limit that refuses even the smallest call, or `None` while there is budget left."""
    for purse in purses:
        for limit in (*_plain_limits(purse), *_token_limits(purse, 0, price)):
            if limit.left < limit.smallest:
                return limit.refusal(purse)
    return None


def tool_shortfall(purses: Iterable[Purse]) -> Shortfall | None:
    """The limit that refuses another tool call. A turn without tool calls left may still answer."""
    for purse in purses:
        limit, used = purse.budget.max_tool_calls, purse.taken.tool_calls
        if limit is not None and used >= limit:
            return _refused(purse, "max_tool_calls", limit, used)
    return None


def time_shortfall(purses: Iterable[Purse]) -> Shortfall | None:
    """The limit that says that the turn has run for long enough."""
    for purse in purses:
        limit, used = purse.budget.max_active_ms, purse.taken.active_ms
        if limit is not None and used >= limit:
            return _refused(purse, "max_active_ms", limit, used)
    return None


def active_left_ms(purses: Iterable[Purse]) -> int | None:
    """How long a turn may still run; None where no budget says."""
    left = [
        max(purse.budget.max_active_ms - purse.taken.active_ms, 0)
        for purse in purses
        if purse.budget.max_active_ms is not None
    ]
    return min(left, default=None)


def is_spent(purse: Purse) -> bool:
    """Whether nothing can be called any more, whatever a model costs. For a queue's front, where no price is known."""
    cost = purse.budget.max_cost
    if cost is not None and purse.taken.cost >= cost.amount:
        return True
    free = Price(cost.currency if cost is not None else "USD", ZERO, ZERO, ZERO, ZERO)
    return shortfall((purse,), free) is not None


def gauges(budget: Budget, taken: Taken) -> tuple[Gauge, ...]:
    """Every limit there is, and how far it is used."""
    counted: tuple[tuple[Dimension, int | None, int], ...] = (
        ("max_model_calls", budget.max_model_calls, taken.model_calls),
        ("max_total_tokens", budget.max_total_tokens, taken.total_tokens),
        ("max_output_tokens", budget.max_output_tokens, taken.output_tokens),
        ("max_tool_calls", budget.max_tool_calls, taken.tool_calls),
        ("max_active_ms", budget.max_active_ms, taken.active_ms),
    )
    found = [Gauge(name, limit, used) for name, limit, used in counted if limit is not None]
    if budget.max_cost is not None:
        found.append(Gauge("max_cost", budget.max_cost, Money(taken.cost, budget.max_cost.currency)))
    return tuple(found)


def purses_over(*purses: tuple[Scope, str, Budget | None, Taken]) -> Sequence[Purse]:
    """The budgets that exist among (scope, id, budget, taken)."""
    return tuple(Purse(scope, owner, budget, taken) for scope, owner, budget, taken in purses if budget is not None)


@dataclass(frozen=True, slots=True)
class _Limit:
    dimension: Dimension
    limit: Amount
    used: Amount
    left: int
    smallest: int

    def refusal(self, purse: Purse) -> Shortfall:
        return _refused(purse, self.dimension, self.limit, self.used)


def _refused(purse: Purse, dimension: Dimension, limit: Amount, used: Amount) -> Shortfall:
    return Shortfall(purse.scope, purse.id, dimension, limit, used, purse.budget_id, purse.resets_at)


def _plain_limits(purse: Purse) -> tuple[_Limit, ...]:
    counted: tuple[tuple[Dimension, int | None, int], ...] = (
        ("max_model_calls", purse.budget.max_model_calls, purse.taken.model_calls),
        ("max_active_ms", purse.budget.max_active_ms, purse.taken.active_ms),
    )
    return tuple(_Limit(name, limit, used, limit - used, 1) for name, limit, used in counted if limit is not None)


def _token_limits(purse: Purse, input_tokens: int, price: Price | None) -> tuple[_Limit, ...]:
    limits: list[_Limit] = []
    total, output = purse.budget.max_total_tokens, purse.budget.max_output_tokens
    if total is not None:
        used = purse.taken.total_tokens
        limits.append(_Limit("max_total_tokens", total, used, total - used - input_tokens, FLOOR_OUTPUT_TOKENS))
    if output is not None:
        used = purse.taken.output_tokens
        limits.append(_Limit("max_output_tokens", output, used, output - used, FLOOR_OUTPUT_TOKENS))
    if purse.budget.max_cost is not None:
        limits.append(_cost_limit(purse, purse.budget.max_cost, input_tokens, price))
    return tuple(limits)


def _cost_limit(purse: Purse, limit: Money, input_tokens: int, price: Price | None) -> _Limit:
    """The output tokens that the money pays for. Without a price in its currency it pays for none."""
    used, left = Money(purse.taken.cost, limit.currency), -1
    if price is not None and price.currency == limit.currency:
        left_over = limit.amount - purse.taken.cost
        left = _output_for(left_over - of_tokens(input_tokens, price.dearest_input), price) if left_over > 0 else -1
    return _Limit("max_cost", limit, used, left, FLOOR_OUTPUT_TOKENS)


def _output_for(amount: Decimal, price: Price) -> int:
    if amount < 0:
        return -1
    if not price.output:
        return _PLENTY
    return min(int(amount // of_tokens(1, price.output)), _PLENTY)


def _number(amount: Amount) -> Decimal:
    return amount.amount if isinstance(amount, Money) else Decimal(amount)
