"""Work for a caller that may hang up: given up then, so that nothing is done for nobody."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from turnkeeper.turns.timing import stop_task

T = TypeVar("T")


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, once the body was read. Raises `ClientDisconnect`; the work was let go of then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        await stop_task(leaving)
        await stop_task(working)


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
