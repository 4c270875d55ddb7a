"""Lists by id: a page is what comes after the last id of the page before, and never more than its limit."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Column, Connection, RowMapping, Select

from turnkeeper.turns.ports import Page, PageRequest

MAX_PAGE: Final = 1_000

T = TypeVar("T")


def load_page(
    conn: Connection,
    query: Select[Any],
    key: Column[str],
    page: PageRequest,
    convert: Callable[[Sequence[RowMapping]], Sequence[T]],
) -> Page[T]:
    """The page of `query` ordered by `key`, with at most `MAX_PAGE` rows."""
    limit = min(page.limit, MAX_PAGE)
    descending = page.order == "desc"
    if page.after is not None:
        query = query.where(key < page.after if descending else key > page.after)
    query = query.order_by(key.desc() if descending else key.asc()).limit(limit + 1)
    rows = conn.execute(query).mappings().all()
    return Page(tuple(convert(rows[:limit])), has_more=len(rows) > limit)
