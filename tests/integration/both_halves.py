"""The blocking client driven as the awaiting one, so that one suite is about both. Nothing is replaced: each call runs
in a thread."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Final, cast

from turnkeeper.client import AsyncTurnkeeper, Retries, Session, Turn, Turnkeeper

HALVES: Final = ("awaiting", "blocking")
QUICK = Retries(first_backoff_ms=1, max_backoff_ms=20)

_ITERATED: Final = frozenset({"list", "stream", "events", "turns", "deliveries"})
_END: Final = object()


def client_of(half: str, url: str, key: str, retries: Retries = QUICK) -> AsyncTurnkeeper:
    """A client to be awaited, whichever half does the work."""
    if half == "awaiting":
        return AsyncTurnkeeper(url, key, retries=retries)
    return cast("AsyncTurnkeeper", _Awaited(Turnkeeper(url, key, retries=retries)))


class _Awaited:
    """An object of the blocking half."""

    def __init__(self, blocking: object) -> None:
        self._blocking = blocking

    async def __aenter__(self) -> "_Awaited":
        return self

    async def __aexit__(self, *_: object) -> None:
        cast("Turnkeeper", self._blocking).close()

    def __getattr__(self, name: str) -> Any:
        value: object = getattr(self._blocking, name)
        if callable(value):
            return _iterated(value) if name in _ITERATED else _threaded(value)
        return _wrapped(value)

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        iterator = iter(cast("Iterable[object]", self._blocking))
        while (item := await asyncio.to_thread(next, iterator, _END)) is not _END:
            yield _wrapped(item)


def _iterated(method: Callable[..., object]) -> Callable[..., _Awaited]:
    return lambda *given, **named: _Awaited(method(*given, **named))


def _threaded(method: Callable[..., object]) -> Callable[..., Any]:
    async def call(*given: Any, **named: Any) -> Any:
        return _wrapped(await asyncio.to_thread(method, *given, **named))

    return call


def _wrapped(value: object) -> object:
    is_resource = type(value).__module__.endswith("_blocking")
    return _Awaited(value) if is_resource or isinstance(value, Session | Turn) else value
