"""Query values and pages."""

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from turnkeeper.api.pages import (
    BATCH,
    MAX_PAGE_BYTES,
    Query,
    Rendered,
    cursor_maker,
    list_query,
    read_page,
    render_list,
)
from turnkeeper.api.problems import RequestRefused
from turnkeeper.api.unbuilt import ENDPOINTS, RESOURCES, is_unbuilt_endpoint
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.ports import Page, PageRequest

SECRET = b"s" * 32
LISTED = frozenset({"limit", "after", "order"})


def query(text: str) -> Query:
    request = Request({"type": "http", "query_string": text.encode(), "headers": []})
    return Query(request, LISTED)


def numbers(wanted: PageRequest, *, count: int, size: int = 1) -> Page[Rendered]:
    """A page of a list of the numbers from 1 to `count`, each rendered with `size` bytes."""

    async def fetch(part: PageRequest) -> Page[int]:
        first = int(part.after or 0) + 1
        last = min(first + part.limit - 1, count)
        return Page(tuple(range(first, last + 1)), has_more=last < count)

    async def render(number: int) -> Rendered:
        return Rendered(b" " * size, str(number))

    return asyncio.run(read_page(wanted, fetch, render))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("limit=0", "invalid_field"),
        ("limit=101", "invalid_field"),
        ("limit=-1", "invalid_field"),
        ("limit=1e1", "invalid_field"),
        ("limit=%D9%A1", "invalid_field"),
        ("limit=99999999999999999999", "invalid_field"),
        ("limit=1&limit=2", "invalid_field"),
        ("order=sideways", "invalid_field"),
        ("after=%00", "cursor_invalid"),
        ("after=" + "A" * 600, "cursor_invalid"),
        ("status=queued", "unknown_field"),
        ("metadata[a]=b", "unknown_field"),
        ("nope=1", "unknown_field"),
    ],
)
def test_a_query_value_that_cannot_be_used_is_refused(text: str, code: str) -> None:
    with pytest.raises(TurnkeeperError) as refused:
        list_query(query(text), SECRET, list="agents")
    assert refused.value.error_code == code


def test_a_cursor_goes_on_where_it_was_made_and_nowhere_else() -> None:
    wanted = list_query(query("limit=2"), SECRET, list="agents")
    cursor = cursor_maker(wanted.filters, SECRET)("agt_1")
    assert list_query(query(f"after={cursor}"), SECRET, list="agents").page.after == "agt_1"
    for other in (f"after={cursor}&order=asc", f"after=x{cursor[1:]}"):
        with pytest.raises(TurnkeeperError, match="cursor"):
            list_query(query(other), SECRET, list="agents")
    with pytest.raises(TurnkeeperError, match="cursor"):
        list_query(query(f"after={cursor}"), SECRET, list="sessions")


def test_a_page_that_would_grow_too_large_ends_earlier_and_goes_on_from_there() -> None:
    found = numbers(PageRequest(limit=100), count=100, size=MAX_PAGE_BYTES // 10)
    assert (len(found.items), found.has_more) == (BATCH, True)
    rest = numbers(PageRequest(limit=100, after=found.items[-1].position), count=100)
    assert [element.position for element in (*found.items, *rest.items)] == [str(number) for number in range(1, 101)]


@given(st.integers(1, 1000), st.integers(0, 1200))
def test_a_page_has_what_was_asked_for_and_knows_whether_there_is_more(limit: int, count: int) -> None:
    found = numbers(PageRequest(limit=limit), count=count)
    assert len(found.items) == min(limit, count)
    assert found.has_more == (count > limit)


def test_the_last_page_has_no_cursor() -> None:
    response = render_list(Page((Rendered(b"1", "a"),), has_more=False), cursor_maker({"list": "x"}, SECRET))
    assert orjson.loads(response.body) == {
        "object": "list",
        "data": [1],
        "has_more": False,
        "next_cursor": None,
    }


def test_the_first_unknown_name_is_shown_shortened() -> None:
    with pytest.raises(RequestRefused) as refused:
        query("x" * 5_000 + "=1")
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_an_endpoint_of_the_contract_that_is_not_built_is_known(method: str, path: str) -> None:
    assert is_unbuilt_endpoint(method, path.replace("{}", "any"))


@pytest.mark.parametrize("resource", RESOURCES)
def test_everything_below_an_unbuilt_resource_is_known(resource: str) -> None:
    assert is_unbuilt_endpoint("GET", f"/v1/{resource}")
    assert is_unbuilt_endpoint("POST", f"/v1/{resource}/x/y")


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/turns/x/y/z", "/v1/turns/x/pause\n"])
def test_a_path_outside_the_contract_is_not_called_unbuilt(path: str) -> None:
    assert not is_unbuilt_endpoint("POST", path)
