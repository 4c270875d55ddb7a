"""An event loop in a thread of its own, for callers that do not await.

Answers for running one piece of work and returning what it returned, and for ending with nothing left over. Must never
be called from its own thread, which would wait for itself.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from turnkeeper.client.errors import ScopeOver

T = TypeVar("T")

THREAD_NAME: Final = "turnkeeper-client"


class Bridge:
    """One private thread and its event loop, started at first use."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self._closed

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns or raises. An interrupted caller cancels the work. Raises `ScopeOver` once closed."""
        try:
            loop = self._running()
        except ScopeOver:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancels what is left, and ends the thread; idempotent."""
        with self._starting:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_wind_up(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._closed:
                raise ScopeOver("the client is closed")
            if self._thread is threading.current_thread():
                raise ScopeOver("a blocking client cannot be used from its own callbacks")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=THREAD_NAME, daemon=True)
                self._thread.start()
            return self._loop


async def _wind_up() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
    await asyncio.get_running_loop().shutdown_asyncgens()
