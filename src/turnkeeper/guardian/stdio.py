"""The Guardian's stdio door (CORE-WIRE-14): frames in, frames out, one process for one peer.

Answers for one answer per frame, and for a bounded read: a frame that is too large is skipped within bounds and
answered, so that the peer can go on. Frames are answered at once, a bounded number of them, each when it is decided:
the peer knows answers by their ids. Steps of one session are decided in the order in which they came; what no id tells
apart is answered in its order. What is no frame ends the door, for nothing after it can be read. Must never write
anything but whole frames.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeAlias

from turnkeeper.acs import PING_METHOD, AcsError, AcsErrorCode, JsonRejected, parse_object, rpc_id_of
from turnkeeper.acs.framing import MAX_HEADER_BYTES, FrameBroken, frame_length, render_frame
from turnkeeper.acs.strictjson import is_object
from turnkeeper.guardian.answers import render_error
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian

MAX_SKIPPED_BYTES: Final = 64 * 1024 * 1024
MAX_FRAMES_AT_ONCE: Final = 64
"""Frames that are read and not answered yet; no further one is read meanwhile."""
_SKIP_CHUNK: Final = 65_536
_END: Final = b"\r\n\r\n"

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Order: TypeAlias = tuple[str, object]
"""What frames share that are answered one after another: a session, or an id."""


class _Oversized(Exception):
    """A frame was skipped; the next one can be read."""


async def serve_frames(
    guardian: Guardian, door: Door, reader: asyncio.StreamReader, write: Write, *, max_body_bytes: int
) -> None:
    """Answers frames until the peer's input ends between two of them, and every frame is answered.

    Raises `FrameBroken` for input that is no frame or ends inside one, once the peer was told, and what `write` raises.
    """
    try:
        async with asyncio.TaskGroup() as group:
            await _read_frames(_Answering(guardian, door, write, group), reader, max_body_bytes)
    except BaseExceptionGroup as failed:
        # One failure is enough to end the door, and whoever serves it expects it as it is.
        raise failed.exceptions[0] from failed


async def _read_frames(answering: "_Answering", reader: asyncio.StreamReader, max_body_bytes: int) -> None:
    while True:
        try:
            body = await read_frame(reader, max_body_bytes)
        except _Oversized:
            await answering.settled()
            await answering.send(_error("too_large", f"the frame has more than {max_body_bytes} bytes"))
            continue
        except FrameBroken as broken:
            await answering.settled()
            await answering.send(_error("frame_broken", broken.message))
            raise
        if body is None:
            return
        await answering.take(body)


class _Answering:
    """Frames on their way to their answers."""

    def __init__(self, guardian: Guardian, door: Door, write: Write, group: asyncio.TaskGroup) -> None:
        self._guardian = guardian
        self._door = door
        self._write = write
        self._group = group
        self._writing = asyncio.Lock()
        self._running = set[asyncio.Task[None]]()
        self._last = dict[Order, asyncio.Task[None]]()

    async def take(self, body: bytes) -> None:
        """Begins to answer a frame as soon as there is room."""
        orders = _orders(body)
        if not orders:
            await self.settled()
            await self._answer(body, ())
            return
        while len(self._running) >= MAX_FRAMES_AT_ONCE:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        before = {self._last[order] for order in orders if order in self._last}
        task = self._group.create_task(self._answer(body, before))
        self._running.add(task)
        self._last.update(dict.fromkeys(orders, task))
        task.add_done_callback(lambda done: self._answered(done, orders))

    async def settled(self) -> None:
        """Returns once every frame before is answered."""
        if self._running:
            await asyncio.wait(self._running)

    async def send(self, answer: bytes) -> None:
        """Writes one frame, whole."""
        async with self._writing:
            await self._write(render_frame(answer))

    async def _answer(self, body: bytes, before: Collection[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        await self.send(await self._guardian.answer(body, self._door))

    def _answered(self, task: asyncio.Task[None], orders: Collection[Order]) -> None:
        self._running.discard(task)
        for order in orders:
            if self._last.get(order) is task:
                del self._last[order]


def _orders(body: bytes) -> tuple[Order, ...]:
    """What a frame shares with others; nothing for a batch, and for what is answered without an id."""
    try:
        document = parse_object(body)
    except JsonRejected:
        return ()
    rpc_id = rpc_id_of(document)
    if rpc_id is None:
        return ()
    by_id = ("id", rpc_id)
    session_id = _session_id(document)
    # A ping asks whether anybody is there, and does not wait for a step.
    return (by_id,) if session_id is None or document.get("method") == PING_METHOD else (by_id, ("session", session_id))


def _session_id(document: Mapping[str, object]) -> str | None:
    params = document.get("params")
    metadata = params.get("metadata") if is_object(params) else None
    session_id = metadata.get("session_id") if is_object(metadata) else None
    return session_id.lower() if isinstance(session_id, str) else None


async def read_frame(reader: asyncio.StreamReader, max_body_bytes: int) -> bytes | None:
    """The next frame's body; None where the input ends before it. Raises `FrameBroken`."""
    try:
        header = await reader.readuntil(_END)
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise FrameBroken("the input ends inside a header") from ended
        return None
    except asyncio.LimitOverrunError as overrun:
        raise FrameBroken(f"a header has more than {MAX_HEADER_BYTES} bytes") from overrun
    if len(header) > MAX_HEADER_BYTES + len(_END):
        raise FrameBroken(f"a header has more than {MAX_HEADER_BYTES} bytes")
    length = frame_length(header.removesuffix(_END))
    if length > max_body_bytes:
        await _skip(reader, length)
        raise _Oversized
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as ended:
        raise FrameBroken("the input ends inside a frame") from ended


async def _skip(reader: asyncio.StreamReader, length: int) -> None:
    if length > MAX_SKIPPED_BYTES:
        raise FrameBroken(f"a frame has {length} bytes")
    left = length
    while left > 0:
        skipped = await reader.read(min(left, _SKIP_CHUNK))
        if not skipped:
            raise FrameBroken("the input ends inside a frame")
        left -= len(skipped)


def _error(reason: str, message: str) -> bytes:
    return render_error(AcsError(AcsErrorCode.INVALID_REQUEST, reason, message), None, None)
