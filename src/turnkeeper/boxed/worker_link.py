"""Questions of several hooks at one time over a protocol that has one question at a time."""

import asyncio
from typing import TypeVar

from turnkeeper.harness.channel import FrameChannel
from turnkeeper.sandbox.protocol import Cancel, FromHarness, HarnessProtocolError, ToHarness

_Answer = TypeVar("_Answer")


class WorkerLink:
    """Asks the worker. `listen` runs beside the turn and feeds it."""

    def __init__(self, channel: FrameChannel) -> None:
        self._channel = channel
        self._answers: asyncio.Queue[ToHarness] = asyncio.Queue()
        self._one_at_a_time = asyncio.Lock()
        self._asking: set[asyncio.Task[ToHarness]] = set()

    async def listen(self) -> Cancel:
        """Passes answers on until the worker cancels. Raises `WorkerGone`, `HarnessProtocolError`."""
        while True:
            frame = await self._channel.receive()
            if isinstance(frame, Cancel):
                return frame
            self._answers.put_nowait(frame)

    async def ask(self, frame: FromHarness, expected: type[_Answer] | tuple[type[_Answer], ...]) -> _Answer:
        """The worker's answer. Raises `HarnessProtocolError` when something else is answered."""
        # Whoever asked may give up; the question is out all the same, and its answer belongs to nobody else.
        asking = asyncio.ensure_future(self._ask(frame))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        answer = await asyncio.shield(asking)
        if not isinstance(answer, expected):
            raise HarnessProtocolError(f"the worker answered a {frame.type} with {answer.type}")
        return answer

    async def tell(self, frame: FromHarness) -> None:
        """Says something that has no answer."""
        async with self._one_at_a_time:
            await self._channel.send(frame)

    async def _ask(self, frame: FromHarness) -> ToHarness:
        async with self._one_at_a_time:
            await self._channel.send(frame)
            return await self._answers.get()
