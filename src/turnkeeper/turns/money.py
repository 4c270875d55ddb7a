"""Amounts of money (contract 1): decimal, never float, with their currency.

Pure. INVARIANT: an amount has at most 12 digits after the point and is written without an exponent.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from turnkeeper.errors import TurnkeeperError

MAX_FRACTION_DIGITS: Final = 12
PICOS: Final = 10**MAX_FRACTION_DIGITS
ZERO: Final = Decimal(0)

_AMOUNT: Final = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,12})?", re.ASCII)
_CURRENCY: Final = re.compile(r"[A-Z]{3}", re.ASCII)


class MoneyInvalid(TurnkeeperError):
    """A text that is no amount, or no currency."""

    code = "invalid_field"


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in a currency (three capital letters, ISO 4217)."""

    amount: Decimal
    currency: str


def parse_money(amount: str, currency: str) -> Money:
    """An amount that was written. Raises `MoneyInvalid`."""
    if _AMOUNT.fullmatch(amount) is None:
        raise MoneyInvalid('an amount is a text such as "1.50", with up to 12 digits before and after the point')
    if _CURRENCY.fullmatch(currency) is None:
        raise MoneyInvalid("a currency is three capital letters")
    return Money(Decimal(amount), currency)


def render_amount(amount: Decimal) -> str:
    """The amount as it is written: no exponent, no zeros at the end."""
    text = format(amount, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def money_document(money: Money) -> dict[str, str]:
    """The two members of an amount."""
    return {"amount": render_amount(money.amount), "currency": money.currency}


def split_amount(amount: Decimal) -> tuple[int, int]:
    """Whole units and trillionths: two integers that a database can add up exactly."""
    return divmod(int(amount.scaleb(MAX_FRACTION_DIGITS)), PICOS)


def join_amount(units: int, picos: int) -> Decimal:
    """The amount of whole units and trillionths, or of sums of them."""
    return Decimal(units) + Decimal(picos).scaleb(-MAX_FRACTION_DIGITS)
