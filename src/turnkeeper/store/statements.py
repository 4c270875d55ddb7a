"""Statements that are put together once and then only bound.

Building a statement in SQLAlchemy Core costs several times what running it does on SQLite, and a governed step runs
thirty of them. So what the hot path needs, a row by its keys and a change of named columns by keys, is kept by shape.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from sqlalchemy import (
    ClauseElement,
    Connection,
    Insert,
    RowMapping,
    Select,
    Table,
    Update,
    bindparam,
    insert,
    select,
    update,
)
from sqlalchemy.engine import CursorResult
from sqlalchemy.sql.dml import ReturningInsert

MAX_SHAPES: Final = 512
"""How many statement shapes are kept; the store's own code has far fewer."""


def find(conn: Connection, table: Table, **keys: object) -> RowMapping | None:
    """The one row whose columns equal `keys`, or `None`. Raises `MultipleResultsFound`."""
    return conn.execute(_select_by(table, tuple(keys)), _named("key", keys)).mappings().one_or_none()


def load_row(conn: Connection, table: Table, row_id: str) -> RowMapping:
    """The row with this `id`, which is known to be there."""
    return conn.execute(_select_by(table, ("id",)), {"key_id": row_id}).mappings().one()


def change(
    conn: Connection, table: Table, keys: Mapping[str, object], values: Mapping[str, object]
) -> CursorResult[object]:
    """Sets columns where others equal `keys`. A value may be an SQL expression; then nothing is kept of it."""
    plain = {name: value for name, value in values.items() if not isinstance(value, ClauseElement)}
    statement = _update_by(table, tuple(keys), tuple(plain))
    if len(plain) < len(values):
        statement = statement.values({name: value for name, value in values.items() if name not in plain})
    return conn.execute(statement, {**_named("key", keys), **_named("new", plain)})


def add(conn: Connection, table: Table, values: Mapping[str, object] | list[dict[str, object]]) -> None:
    """Inserts one row or several."""
    conn.execute(_insert_into(table), values)


def added(conn: Connection, table: Table, values: Mapping[str, object]) -> RowMapping:
    """Inserts one row; the row as it is then."""
    return conn.execute(_insert_returning(table), values).mappings().one()


def _named(kind: str, values: Mapping[str, object]) -> dict[str, object]:
    return {f"{kind}_{name}": value for name, value in values.items()}


@lru_cache(maxsize=MAX_SHAPES)
def _select_by(table: Table, keys: tuple[str, ...]) -> Select[*tuple[object, ...]]:
    return select(table).where(*(table.c[name] == bindparam(f"key_{name}") for name in keys))


@lru_cache(maxsize=MAX_SHAPES)
def _update_by(table: Table, keys: tuple[str, ...], columns: tuple[str, ...]) -> Update:
    by_keys = update(table).where(*(table.c[name] == bindparam(f"key_{name}") for name in keys))
    return by_keys.values({name: bindparam(f"new_{name}") for name in columns})


@lru_cache(maxsize=MAX_SHAPES)
def _insert_into(table: Table) -> Insert:
    return insert(table)


@lru_cache(maxsize=MAX_SHAPES)
def _insert_returning(table: Table) -> ReturningInsert[*tuple[object, ...]]:
    return insert(table).returning(table)
