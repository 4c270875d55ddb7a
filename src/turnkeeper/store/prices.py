"""The price table as rows, and the price of a model at a time (contract 2.13)."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, cast

import orjson
from sqlalchemy import Connection, RowMapping, bindparam, select

from turnkeeper.store.budget_tables import model_prices
from turnkeeper.store.statements import add
from turnkeeper.store.tx import Tx
from turnkeeper.turns.money import Money, render_amount
from turnkeeper.turns.prices import MAX_PRICES, Price, PriceRow, price_at

_OF_MODEL: Final = select(model_prices).where(
    model_prices.c.project_id == bindparam("project_key"),
    model_prices.c.model == bindparam("model_name"),
    model_prices.c.valid_from <= bindparam("at"),
)


def price_of(conn: Connection, project_id: str, model: str, at: datetime) -> Price | None:
    """The price of a model (`provider/id`) at a time, None where it has none."""
    values = {"project_key": project_id, "model_name": model, "at": at}
    return price_at(map(to_price_row, conn.execute(_OF_MODEL, values).mappings()), at)


def list_prices(conn: Connection, project_id: str) -> tuple[PriceRow, ...]:
    """The whole table in the order in which it was put; at most `MAX_PRICES` rows."""
    query = select(model_prices).where(model_prices.c.project_id == project_id).order_by(model_prices.c.position)
    return tuple(map(to_price_row, conn.execute(query.limit(MAX_PRICES)).mappings()))


def put_prices(tx: Tx, project_id: str, rows: Sequence[PriceRow]) -> None:
    """Puts these rows in place of all there were. Calls that began keep the price they began with."""
    tx.conn.execute(model_prices.delete().where(model_prices.c.project_id == project_id))
    values: list[dict[str, object]] = [
        {
            "project_id": project_id,
            "model": row.model,
            "kind": row.kind,
            "valid_from": row.valid_from,
            "amount": render_amount(row.per_million.amount),
            "currency": row.per_million.currency,
            "position": position,
        }
        for position, row in enumerate(rows)
    ]
    if values:
        add(tx.conn, model_prices, values)


def to_price_row(row: RowMapping) -> PriceRow:
    """A row of `model_prices`."""
    return PriceRow(row["model"], row["kind"], Money(Decimal(row["amount"]), row["currency"]), row["valid_from"])


def price_json(price: Price | None) -> str | None:
    """A price as a call keeps it."""
    if price is None:
        return None
    amounts = {name: render_amount(getattr(price, name)) for name in ("input", "cached_input", "cache_write", "output")}
    return orjson.dumps({"currency": price.currency, **amounts}).decode()


def parse_price(text: str | None) -> Price | None:
    """A text that `price_json` made."""
    if text is None:
        return None
    members = cast("dict[str, Any]", orjson.loads(text))
    currency = members.pop("currency")
    return Price(currency, **{name: Decimal(amount) for name, amount in members.items()})
