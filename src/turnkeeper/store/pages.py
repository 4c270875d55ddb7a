"""Lists by id: a page is what comes after the last id of the page before, and never more than its limit."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, Select

from turnkeeper.turns.model import Reach
from turnkeeper.turns.ports import Page, PageRequest

MAX_PAGE: Final = 1_000

T = TypeVar("T")


def within(reach: Reach | None, project_id: Column[str], agent_id: Column[str]) -> list[ColumnElement[bool]]:
    """The conditions on rows that are within reach; none without a `reach`."""
    if reach is None:
        return []
    of_agents = [agent_id.in_(reach.agent_ids)] if reach.agent_ids else []
    return [project_id == reach.project_id, *of_agents]


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
