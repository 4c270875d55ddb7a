"""Lists, page by page as far as they are read (contract 14)."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Final, cast

from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.documents import AnswerUnreadable, Json
from turnkeeper.client.turn_api.retries import Call

PAGE: Final = 100


async def listed(
    connection: AsyncConnection, call: Call, *, limit: int | None = None, page: int | None = PAGE
) -> AsyncGenerator[Json, None]:
    """The elements of a list, up to `limit`. The call's query has the filters. A list that has no pages takes None."""
    query, left = dict(call.query or {}), limit
    while left is None or left > 0:
        if page is not None:
            query["limit"] = str(page if left is None else min(page, left))
        members = (await connection.ask(replace(call, query=query))).members
        elements = _elements(members)
        for element in elements[:left]:
            yield element
        left = None if left is None else left - len(elements)
        cursor = members.get("next_cursor")
        if not members.get("has_more") or not isinstance(cursor, str):
            return
        query["after"] = cursor


def _elements(members: Json) -> list[Json]:
    data: Any = members.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in cast("list[object]", data)):
        raise AnswerUnreadable("the answer is no list")
    return cast("list[Json]", data)
