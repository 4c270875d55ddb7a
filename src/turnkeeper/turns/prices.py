"""What a model call costs (contract 2.13 and 8): dated prices per model and kind of token.

Pure. A call is costed with the rows that were valid when it began. INVARIANT: a price has at most 6 digits after the
point and is per million tokens, so every cost is exact in 12 digits and nothing is ever rounded. What has no price has
no cost: never zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.model import CallRecord
from turnkeeper.turns.money import Money

TokenKind: TypeAlias = Literal["input", "cached_input", "cache_write", "output"]

TOKEN_KINDS: Final[tuple[TokenKind, ...]] = ("input", "cached_input", "cache_write", "output")
MAX_PRICES: Final = 2_000
MAX_PRICE: Final = Decimal(1_000_000)
MAX_PRICE_FRACTION_DIGITS: Final = 6

_MILLION_DIGITS: Final = 6


class PriceUnknown(TurnkeeperError):
    """A cost budget holds a turn whose model has no price in the budget's currency."""

    code = "price_unknown"


class PricesInvalid(TurnkeeperError):
    """Price rows that contradict each other."""

    code = "invalid_field"


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What a million tokens of one kind cost from `valid_from` on. `model` is `provider/id`."""

    model: str
    kind: TokenKind
    per_million: Money
    valid_from: datetime


@dataclass(frozen=True, slots=True)
class Price:
    """The prices of one model at one time, per million tokens."""

    currency: str
    input: Decimal
    cached_input: Decimal
    cache_write: Decimal
    output: Decimal

    @property
    def dearest_input(self) -> Decimal:
        """What an input token may cost at most, whatever a cache does with it."""
        return max(self.input, self.cached_input, self.cache_write)


def price_at(rows: Iterable[PriceRow], at: datetime) -> Price | None:
    """The price of one model; None where input or output has none yet.

    Tokens that a cache was read for, or was written with, cost what other input does where they have no row.
    """
    valid: dict[TokenKind, PriceRow] = {}
    for row in rows:
        seen = valid.get(row.kind)
        if row.valid_from <= at and (seen is None or seen.valid_from < row.valid_from):
            valid[row.kind] = row
    if "input" not in valid or "output" not in valid:
        return None
    amounts = {kind: row.per_million.amount for kind, row in valid.items()}
    return Price(
        currency=valid["output"].per_million.currency,
        input=amounts["input"],
        cached_input=amounts.get("cached_input", amounts["input"]),
        cache_write=amounts.get("cache_write", amounts["input"]),
        output=amounts["output"],
    )


def check_prices(rows: Iterable[PriceRow]) -> None:
    """Raises `PricesInvalid` where a model has two currencies, or one kind two prices from the same time on."""
    currencies: dict[str, str] = {}
    seen: set[tuple[str, str, datetime]] = set()
    for row in rows:
        if currencies.setdefault(row.model, row.per_million.currency) != row.per_million.currency:
            raise PricesInvalid(f"the prices of {row.model} are in two currencies")
        if (row.model, row.kind, row.valid_from) in seen:
            raise PricesInvalid(f"{row.kind} of {row.model} has two prices from the same time on")
        seen.add((row.model, row.kind, row.valid_from))


def of_tokens(tokens: int, per_million: Decimal) -> Decimal:
    """What some tokens cost."""
    return (tokens * per_million).scaleb(-_MILLION_DIGITS)


def call_cost(record: CallRecord, price: Price | None) -> Money | None:
    """What a call cost; None where nobody knows."""
    if price is None:
        return None
    plain = record.input_tokens - record.cached_input_tokens - record.cache_write_tokens
    amount = (
        of_tokens(plain, price.input)
        + of_tokens(record.cached_input_tokens, price.cached_input)
        + of_tokens(record.cache_write_tokens, price.cache_write)
        + of_tokens(record.output_tokens, price.output)
    )
    return Money(amount, price.currency)


def largest_cost(price: Price | None, input_tokens: int, output_tokens: int) -> Decimal:
    """What a call with these tokens costs at most; nothing where no price is known."""
    if price is None:
        return Decimal(0)
    return of_tokens(input_tokens, price.dearest_input) + of_tokens(output_tokens, price.output)
