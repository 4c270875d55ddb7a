"""What a turn may still use (contract 8, amendment 8): reserve before a model call, settle after it.

Pure. "No budget left" is one predicate, asked at the front of the queue and at the gateway: what is left cannot pay
for the smallest call. Overshoot is limited to the error of one call's input count.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from turnkeeper.turns.model import Budget

FLOOR_OUTPUT_TOKENS: Final = 256
"""A call whose output would be cut below this is not made; it is the smallest call."""

Dimension: TypeAlias = Literal["max_model_calls", "max_total_tokens", "max_output_tokens"]
Scope: TypeAlias = Literal["turn", "session"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What was used and what running calls have reserved, together."""

    model_calls: int = 0
    total_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Taken") -> "Taken":
        return Taken(
            self.model_calls + other.model_calls,
            self.total_tokens + other.total_tokens,
            self.output_tokens + other.output_tokens,
        )

    def __sub__(self, other: "Taken") -> "Taken":
        return Taken(
            self.model_calls - other.model_calls,
            self.total_tokens - other.total_tokens,
            self.output_tokens - other.output_tokens,
        )


@dataclass(frozen=True, slots=True)
class Purse:
    """A budget over a turn, whose it is, and what was taken from it."""

    scope: Scope
    id: str
    budget: Budget
    taken: Taken = Taken()


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The limit that refuses a call: the first of the budgets over the turn to run out."""

    scope: Scope
    id: str
    dimension: Dimension
    limit: int
    used: int


def reservation(input_tokens: int, output_tokens: int) -> Taken:
    """What one call with these tokens takes from every budget."""
    return Taken(model_calls=1, total_tokens=input_tokens + output_tokens, output_tokens=output_tokens)


def reserve(purses: Iterable[Purse], *, input_tokens: int, max_output_tokens: int) -> int | Shortfall:
    """The output tokens a call may have, at most `max_output_tokens`, or the limit that refuses it."""
    held = tuple(purses)
    spent = shortfall(held)
    if spent is not None:
        return spent
    cap = max_output_tokens
    for purse in held:
        for limit in _token_limits(purse, input_tokens):
            cap = min(cap, limit.left)
            if cap < min(max_output_tokens, FLOOR_OUTPUT_TOKENS):
                return limit.refusal(purse)
    return cap


def shortfall(purses: Iterable[Purse]) -> Shortfall | None:
    """The limit that refuses even the smallest call, or `None` while there is budget left."""
    for purse in purses:
        for limit in (*_call_limits(purse), *_token_limits(purse, 0)):
            if limit.left < limit.smallest:
                return limit.refusal(purse)
    return None


def purses_over(*purses: tuple[Scope, str, Budget | None, Taken]) -> Sequence[Purse]:
    """The budgets that exist among (scope, id, budget, taken)."""
    return tuple(Purse(scope, owner, budget, taken) for scope, owner, budget, taken in purses if budget is not None)


@dataclass(frozen=True, slots=True)
class _Limit:
    dimension: Dimension
    limit: int
    used: int
    left: int
    smallest: int

    def refusal(self, purse: Purse) -> Shortfall:
        return Shortfall(purse.scope, purse.id, self.dimension, self.limit, self.used)


def _call_limits(purse: Purse) -> tuple[_Limit, ...]:
    limit, used = purse.budget.max_model_calls, purse.taken.model_calls
    return () if limit is None else (_Limit("max_model_calls", limit, used, limit - used, 1),)


def _token_limits(purse: Purse, input_tokens: int) -> tuple[_Limit, ...]:
    limits: list[_Limit] = []
    total, output = purse.budget.max_total_tokens, purse.budget.max_output_tokens
    if total is not None:
        used = purse.taken.total_tokens
        limits.append(_Limit("max_total_tokens", total, used, total - used - input_tokens, FLOOR_OUTPUT_TOKENS))
    if output is not None:
        used = purse.taken.output_tokens
        limits.append(_Limit("max_output_tokens", output, used, output - used, FLOOR_OUTPUT_TOKENS))
    return tuple(limits)
