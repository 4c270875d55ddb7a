"""Query values and pages of lists (contract 14).

Answers for limits, order and cursors that cannot be made up or carried to another list, and for a page that stays
below a size whatever is in it.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, cast

import orjson
from fastapi import Request
from starlette.responses import Response

from turnkeeper.api.problems import RequestRefused
from turnkeeper.events.cursors import parse_cursor, render_cursor
from turnkeeper.turns.metadata import MAX_FILTER_CHARACTERS, MAX_FILTERS, MetadataFilter
from turnkeeper.turns.ports import Page, PageRequest

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100
MAX_EVENTS_LIMIT: Final = 1_000
MAX_PAGE_BYTES: Final = 8 * 1_048_576
BATCH: Final = 20

_METADATA: Final = re.compile(r"metadata\[.*\]\Z", re.DOTALL)

T = TypeVar("T")


class Query:
    """The query values of a request: each at most once, none that the endpoint does not know.

    `by_metadata` says that the endpoint takes `metadata[k]` for any `k`.
    """

    def __init__(self, request: Request, known: Collection[str], *, by_metadata: bool = False) -> None:
        self._values: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if not (by_metadata and _METADATA.match(name)):
                _check_name(name, known)
            if name in self._values:
                raise _invalid(name, "is given twice")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """The value, `None` when it is missing."""
        return self._values.get(name)

    def integer(self, name: str, *, low: int, high: int) -> int | None:
        """A decimal number from `low` to `high`."""
        value = self._values.get(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdecimal() and len(value) <= 16 and low <= int(value) <= high):
            raise _invalid(name, f"is not a whole number from {low} to {high}")
        return int(value)

    def metadata(self) -> MetadataFilter:
        """The members of metadata that are asked for, by name."""
        asked = {name: value for name, value in self._values.items() if _METADATA.match(name)}
        if len(asked) > MAX_FILTERS:
            raise _invalid("metadata", f"is asked about {len(asked)} members, more than {MAX_FILTERS}")
        for name, value in asked.items():
            if len(name) - len("metadata[]") > MAX_FILTER_CHARACTERS or len(value) > MAX_FILTER_CHARACTERS:
                raise _invalid(name[:100], f"is longer than {MAX_FILTER_CHARACTERS} characters")
        return tuple(sorted((name.removeprefix("metadata[")[:-1], value) for name, value in asked.items()))

    def choice(self, name: str, options: tuple[str, ...], default: str) -> str:
        """One of the options."""
        value = self._values.get(name, default)
        if value not in options:
            raise _invalid(name, f"is not one of {', '.join(options)}")
        return value


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which part of which list was asked for."""

    page: PageRequest
    filters: Mapping[str, str | None]


def list_query(query: Query, secret: bytes, **filters: str | None) -> ListQuery:
    """The page that `limit`, `after` and `order` ask for. Raises `RequestRefused`, `CursorInvalid`."""
    order = cast("Literal['asc', 'desc']", query.choice("order", ("desc", "asc"), "desc"))
    limit = query.integer("limit", low=1, high=MAX_LIMIT) or DEFAULT_LIMIT
    bound = {**filters, "order": order}
    cursor = query.text("after")
    after = None if cursor is None else parse_cursor(cursor, bound, secret)
    return ListQuery(PageRequest(limit=limit, after=after, order=order), bound)


@dataclass(frozen=True, slots=True)
class Rendered:
    """One element of a list, and where the list goes on after it."""

    json: bytes
    position: str


async def read_page(
    wanted: PageRequest,
    fetch: Callable[[PageRequest], Awaitable[Page[T]]],
    render: Callable[[T], Awaitable[Rendered]],
) -> Page[Rendered]:
    """The page, read a few elements at a time. One that grows too large ends earlier and says that there is more."""
    rendered: list[Rendered] = []
    after, size = wanted.after, 0
    while True:
        limit = min(BATCH, wanted.limit - len(rendered))
        part = await fetch(PageRequest(limit=limit, after=after, order=wanted.order))
        for item in part.items:
            rendered.append(await render(item))
            size += len(rendered[-1].json)
        if not part.has_more or len(rendered) >= wanted.limit or size >= MAX_PAGE_BYTES:
            return Page(tuple(rendered), part.has_more)
        after = rendered[-1].position


def render_list(page: Page[Rendered], cursor: Callable[[str], str] | None = None) -> Response:
    """The list object."""
    next_cursor = cursor(page.items[-1].position) if cursor is not None and page.has_more and page.items else None
    document = {
        "object": "list",
        "data": [orjson.Fragment(element.json) for element in page.items],
        "has_more": page.has_more,
        "next_cursor": next_cursor,
    }
    return Response(orjson.dumps(document), media_type="application/json")


def cursor_maker(filters: Mapping[str, str | None], secret: bytes) -> Callable[[str], str]:
    """Makes cursors for one list."""
    return lambda position: render_cursor(position, filters, secret)


def _check_name(name: str, known: Collection[str]) -> None:
    shown = name[:100]
    if name not in known:
        raise RequestRefused(
            "unknown_field",
            f"{shown!r} is not a query value of this endpoint.",
            param=shown,
            hint=f"It takes {', '.join(sorted(known)) or 'none'}.",
        )


def _invalid(name: str, why: str) -> RequestRefused:
    return RequestRefused("invalid_field", f"The query value {name!r} {why}.", param=name)
