"""Loop boxes made ahead: importing an agent framework takes seconds that no turn should wait for.

Each place keeps one ready box until it is taken or dies, then makes the next; one is made at a time, because making
is all processor. A place whose boxes fail waits longer every time, so that a broken harness costs a process now and
then and not a processor.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from turnkeeper.sandbox.boxes import BoxNotGone, SandboxUnavailable
from turnkeeper.sandbox.stdio_boxes import StdioLoopBox

FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 30_000

Make = Callable[[], Awaitable[StdioLoopBox]]
Pause = Callable[[float], Awaitable[None]]


class WarmPool:
    """Keeps `size` boxes ready."""

    def __init__(self, size: int, make: Make, pause: Pause = asyncio.sleep) -> None:
        self._size = size
        self._make = make
        self._pause = pause
        self._ready: dict[StdioLoopBox, asyncio.Event] = {}
        self._changed = asyncio.Condition()
        self._making = asyncio.Lock()
        self._claim: asyncio.Future[StdioLoopBox] | None = None
        self._places: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to make boxes; returns at once."""
        self._places = [asyncio.create_task(self._keep_place()) for _ in range(self._size)]

    async def stop(self) -> None:
        """Stop making boxes and forget those that are ready; whoever made them kills them."""
        for place in self._places:
            place.cancel()
        await asyncio.gather(*self._places, return_exceptions=True)
        self._places = []
        self._ready.clear()

    def take(self) -> StdioLoopBox | None:
        """A ready box that is now the caller's, or None."""
        for box, taken in list(self._ready.items()):
            del self._ready[box]
            taken.set()
            if box.is_alive:
                return box
        return None

    async def claim(self) -> StdioLoopBox | None:
        """The box that is being made just now, when it is ready; None if there is none or it is claimed already.

        It is there sooner than one begun now beside it. Raises `SandboxUnavailable` if it fails.
        """
        if self._claim is not None or not self._making.locked():
            return None
        self._claim = claim = asyncio.get_running_loop().create_future()
        try:
            return await claim
        except asyncio.CancelledError:
            if claim.done() and not claim.cancelled() and claim.exception() is None:
                await claim.result().kill()
            raise

    async def wait_for(self, count: int) -> None:
        """Returns when at least `count` boxes are ready."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._ready) >= count)

    async def _keep_place(self) -> None:
        failures = 0
        while True:
            if failures:
                await self._pause(pause_ms(failures) / 1000)
            try:
                box = await self._make_one()
                failures = 0 if box is None or await self._keep(box) else failures + 1
            except (SandboxUnavailable, BoxNotGone):
                failures += 1

    async def _make_one(self) -> StdioLoopBox | None:
        """A box for this place, or None when it went to whoever had claimed it."""
        async with self._making:
            try:
                box = await self._make()
            except BaseException as error:
                claim = self._open_claim()
                if claim is not None:
                    unavailable = SandboxUnavailable("the box that was being made did not get ready")
                    claim.set_exception(error if isinstance(error, SandboxUnavailable) else unavailable)
                raise
            claim = self._open_claim()
            if claim is None:
                return box
            claim.set_result(box)
            return None

    def _open_claim(self) -> "asyncio.Future[StdioLoopBox] | None":
        claim, self._claim = self._claim, None
        return claim if claim is not None and not claim.done() else None

    async def _keep(self, box: StdioLoopBox) -> bool:
        """Keep the box ready; True when it was taken, False when it died first."""
        taken = asyncio.Event()
        async with self._changed:
            self._ready[box] = taken
            self._changed.notify_all()
        waits = [asyncio.create_task(taken.wait()), asyncio.create_task(box.ended())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if taken.is_set():
            return True
        self._ready.pop(box, None)
        await box.kill()
        return False


def pause_ms(failures: int) -> int:
    """How long a place waits after so many failures in a row."""
    return min(FIRST_PAUSE_MS << min(failures - 1, 20), LONGEST_PAUSE_MS)
