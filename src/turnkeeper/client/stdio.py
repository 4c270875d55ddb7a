"""A Guardian as a child process that speaks `Content-Length` frames over its standard streams (ledger WIRE-14).

Answers for the child's life and for giving each answer to the request with its JSON-RPC id. Must never hand an answer
to two requests. A child that has died is started again at the next request: sessions live in its store.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from turnkeeper.acs import JsonRejected, RpcId, parse_object, rpc_id_of
from turnkeeper.acs.framing import FrameBroken, FrameReader, render_frame
from turnkeeper.client.errors import TransportFailed
from turnkeeper.client.transports import MAX_ANSWER_BYTES, TransportName

READ_BYTES: Final = 65_536
GRACE_S: Final = 5.0


class StdioTransport:
    """Requests to a child process; several may be on their way at once."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """`environment` is the child's whole environment; None gives it ours. Its errors go where ours go."""
        self._command = list(command)
        self._environment = None if environment is None else dict(environment)
        self._max_answer_bytes = max_answer_bytes
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[RpcId, asyncio.Future[bytes]] = {}
        self._starting = asyncio.Lock()

    @property
    def name(self) -> TransportName:
        """The standard's name."""
        return "stdio"

    @property
    def child(self) -> asyncio.subprocess.Process | None:
        """The Guardian's process, once there was a request; for whoever watches over it."""
        return self._child

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        """One frame out and the frame that answers it. Raises `TransportFailed`."""
        child = await self._running()
        rpc_id = rpc_id_of(parse_object(body))
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[rpc_id] = answered
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await _write(child, render_frame(body))
                return await answered
        except TimeoutError as error:
            raise TransportFailed("the Guardian did not answer over stdio") from error
        finally:
            if self._waiting.get(rpc_id) is answered:
                del self._waiting[rpc_id]

    async def close(self) -> None:
        """Closes the child's input and waits for it to end; a child that does not is killed."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()
        try:
            await asyncio.wait_for(child.wait(), GRACE_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        if self._reader is not None:
            await asyncio.wait({self._reader})

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._child is not None and self._child.returncode is None and not self._is_deaf():
                return self._child
            await self.close()
            try:
                child = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env=self._environment,
                )
            except OSError as error:
                raise TransportFailed(f"the Guardian cannot be started: {error.strerror}") from error
            self._child = child
            self._reader = asyncio.create_task(self._read(child))
            return child

    def _is_deaf(self) -> bool:
        return self._reader is None or self._reader.done()

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        frames, stream = FrameReader(self._max_answer_bytes), child.stdout
        problem = "the Guardian closed its output"
        try:
            while stream is not None and (chunk := await stream.read(READ_BYTES)):
                for body in frames.feed(chunk):
                    self._deliver(body)
        except FrameBroken as error:
            problem = error.message
            with suppress(ProcessLookupError):
                child.kill()
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            if not answered.done():
                answered.set_exception(TransportFailed(problem))

    def _deliver(self, body: bytes) -> None:
        answered = self._waiting.get(_answered_id(body))
        if answered is None and len(self._waiting) == 1:
            # An error about a request that could not be read has no id; with one request there is no doubt.
            answered = next(iter(self._waiting.values()))
        if answered is not None and not answered.done():
            answered.set_result(body)


def _answered_id(body: bytes) -> RpcId:
    try:
        return rpc_id_of(parse_object(body))
    except JsonRejected:
        return None


async def _write(child: asyncio.subprocess.Process, frame: bytes) -> None:
    if child.stdin is None:
        raise TransportFailed("the Guardian has no input")
    try:
        child.stdin.write(frame)
        await child.stdin.drain()
    except (ConnectionError, RuntimeError) as error:
        raise TransportFailed("the Guardian closed its input") from error
