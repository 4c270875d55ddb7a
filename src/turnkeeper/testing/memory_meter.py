"""A turn's ledger in memory, with an optional limit on tokens: for whoever tests a gateway without a store."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from turnkeeper.sandbox.metering import MIN_OUTPUT_TOKENS, BudgetExhausted, CallOutcome, CallUsage, Grant


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was asked for and granted."""

    call: int
    input_tokens: int
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a call came to."""

    call: int
    usage: CallUsage
    outcome: CallOutcome


class MemoryMeter:
    """Grants while `limit_total_tokens` lasts (None: for ever), lowers output caps as contract 8 says, keeps all.

    `reserving` and `settling`, when set, are waited for first: a test can stop time there.
    """

    def __init__(self, limit_total_tokens: int | None = None) -> None:
        self.reservations: list[Reservation] = []
        self.settlements: list[Settlement] = []
        self.reserving: asyncio.Event | None = None
        self.settling: asyncio.Event | None = None
        self.reserve_calls = 0
        self.settle_calls = 0
        self._limit = limit_total_tokens
        self._held: dict[int, int] = {}
        self._spent = 0
        self._news = asyncio.Condition()

    @property
    def open_calls(self) -> int:
        """Grants that are not settled yet."""
        return len(self._held)

    @property
    def spent_tokens(self) -> int:
        """Input and output of all settled calls."""
        return self._spent

    async def reserve(self, *, input_tokens: int, max_output_tokens: int) -> Grant:
        """Raises `BudgetExhausted` when less than the floor is left for output."""
        self.reserve_calls += 1
        await self._tell()
        if self.reserving is not None:
            await self.reserving.wait()
        granted = max_output_tokens
        if self._limit is not None:
            granted = min(granted, self._limit - self._spent - sum(self._held.values()) - input_tokens)
            if granted < min(MIN_OUTPUT_TOKENS, max_output_tokens):
                raise BudgetExhausted(f"the limit of {self._limit} tokens is reached")
        call = len(self.reservations) + 1
        self.reservations.append(Reservation(call, input_tokens, granted))
        self._held[call] = input_tokens + granted
        return Grant(call, granted)

    async def settle(self, call: int, usage: CallUsage, outcome: CallOutcome) -> None:
        """A second settlement of the same call is a `KeyError`."""
        self.settle_calls += 1
        await self._tell()
        if self.settling is not None:
            await self.settling.wait()
        del self._held[call]
        self._spent += usage.input_tokens + usage.output_tokens
        self.settlements.append(Settlement(call, usage, outcome))
        await self._tell()

    async def wait_until(self, holds: Callable[[], bool], *, timeout_ms: int = 10_000) -> None:
        """Returns when `holds()` is true, looking again at each question and settlement. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_ms / 1000), self._news:
            await self._news.wait_for(holds)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()
