"""One piece of the background work that must not end the rest of it.

The place of the worker for catching everything: what goes wrong is recorded with what it was about, and the next round
comes.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

import structlog

from turnkeeper.turns.ports import StaleFence, StoreUnavailable

T = TypeVar("T")

_log = structlog.get_logger(__name__)


async def contained(what: str, work: Coroutine[Any, Any, T], subject: str | None = None) -> T | None:
    """The result of a piece of work, or None where it failed: logged here and nowhere else. Raises `StaleFence`.

    A database that is away is no fault of ours, and is told without a trace of the code.
    """
    try:
        return await work
    except StaleFence:
        raise
    except StoreUnavailable as error:
        _log.warning("store_unavailable", what=what, subject=subject, error=error.message)
        return None
    except Exception:  # noqa: BLE001 - the worker's turn and its chores: recorded, and done again or ended by the caller
        _log.exception("worker_fault", what=what, subject=subject)
        return None


async def all_of(works: Iterable[Awaitable[T]]) -> list[T]:
    """Every result. One that fails keeps no other from its end: its error is raised when all are done."""
    results: list[T] = []
    failed: list[BaseException] = []
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            failed.append(result)
        else:
            results.append(result)
    if failed:
        raise failed[0]
    return results
