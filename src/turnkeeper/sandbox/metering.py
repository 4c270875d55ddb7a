"""What the gateway and a turn's ledger say to each other: reserve before a model call, settle after it (contract 8).

Pure data and one Protocol. The ledger decides; the gateway reports what it saw, and says when it only estimated.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.providers import tokens_in_bytes

MIN_OUTPUT_TOKENS: Final = 256
"""Contract 8: a call that may not generate at least this much is not made."""

MAX_TOKEN_COUNT: Final = 2**53 - 1


class BudgetExhausted(TurnkeeperError):
    """What is left cannot pay for the smallest model call."""

    code = "budget_reached"


@dataclass(frozen=True, slots=True)
class Grant:
    """A reservation: the call's number in the turn, and how many tokens it may generate."""

    call: int
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class CallUsage:
    """What one call consumed, in the terms of usage.json. `estimated` when a provider's own count is missing."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How one call went. `accepted`: the provider took the request, or may have; `status` is its last HTTP status."""

    provider: str
    model: str
    latency_ms: int
    first_token_ms: int | None
    finish_reason: str | None
    retries: int
    accepted: bool
    status: int | None


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """Why a model call failed. `message` is ours, never the provider's own words."""

    code: str
    message: str
    retryable: bool
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """A call is about to be sent again, after `delay_ms`; `tries` counts the attempts already made."""

    failure: ModelFailure
    delay_ms: int
    tries: int


class Meter(Protocol):
    """The turn's ledger, handed in by the worker."""

    async def reserve(self, *, input_tokens: int, max_output_tokens: int) -> Grant:
        """A reservation, its output cap perhaps lowered. Raises `BudgetExhausted`."""
        ...

    async def settle(self, call: int, usage: CallUsage, outcome: CallOutcome) -> None:
        """Ends a reservation. Called exactly once for each grant, whatever became of the call."""
        ...


def counted(
    input_tokens: int, output_tokens: int, *, cached: int = 0, cache_write: int = 0, reasoning: int = 0
) -> CallUsage:
    """A provider's own count, cut to fit where it breaks what contract 4 promises of every usage."""
    cached = min(cached, input_tokens)
    return CallUsage(
        input_tokens=input_tokens,
        cached_input_tokens=cached,
        cache_write_tokens=min(cache_write, input_tokens - cached),
        output_tokens=output_tokens,
        reasoning_tokens=min(reasoning, output_tokens),
    )


def estimated_usage(*, input_tokens: int, output_bytes: int) -> CallUsage:
    """What stands in for a count that the provider did not give."""
    return CallUsage(input_tokens=input_tokens, output_tokens=tokens_in_bytes(output_bytes), estimated=True)


def token_count(value: object) -> int | None:
    """A number of tokens as a provider wrote it; `None` for anything that cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKEN_COUNT:
        return None
    return value
