"""The harness's end of the runner protocol: frames over two pipes, one question to the worker at a time."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

from turnkeeper.harness.hardening import FramePipes
from turnkeeper.sandbox.protocol import (
    MAX_FRAME_BYTES,
    Cancel,
    Compacted,
    CompactionAsked,
    CompactionRuled,
    Done,
    FromHarness,
    HarnessProtocolError,
    Report,
    ResponseDenied,
    SubagentReport,
    SubagentTask,
    SubmissionResult,
    Submit,
    SummaryRuled,
    TextDelta,
    ToHarness,
    ToolRequest,
    ToolResult,
    parse_to_harness,
    render_frame,
)


class WorkerGone(Exception):
    """The worker closed its side: nobody is left to report to."""


class FrameChannel(Protocol):
    """Frames out, frames in."""

    async def send(self, frame: FromHarness) -> None: ...
    async def receive(self) -> ToHarness: ...


class PipeChannel:
    """Frames over the pipes this process was started with."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, incoming: asyncio.BaseTransport
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._incoming = incoming

    @classmethod
    async def open(cls, pipes: FramePipes) -> "PipeChannel":
        """Attaches the pipes to the running loop."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_FRAME_BYTES + 1)
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipes.frames_in, "rb", 0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(pipes.frames_out, "wb", 0)
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, None, loop), incoming)

    def close(self) -> None:
        """Closes both pipes; what was sent still goes out."""
        self._incoming.close()
        self._writer.close()

    async def send(self, frame: FromHarness) -> None:
        """Raises `WorkerGone`, or `HarnessProtocolError` for a frame that is too large."""
        line = render_frame(frame)
        try:
            self._writer.write(line)
            await self._writer.drain()
        except ConnectionError as error:
            raise WorkerGone from error

    async def receive(self) -> ToHarness:
        """The worker's next frame. Raises `WorkerGone`, `HarnessProtocolError`."""
        try:
            line = await self._reader.readline()
        except ValueError as error:
            raise HarnessProtocolError("the worker sent a frame that is too long") from error
        if not line.endswith(b"\n"):
            raise WorkerGone
        return parse_to_harness(line)


class WorkerLink:
    """Questions to the worker and its answers. `listen` runs beside the turn and feeds it."""

    def __init__(self, channel: FrameChannel) -> None:
        self._channel = channel
        self._answers: asyncio.Queue[ToHarness] = asyncio.Queue()
        self._calls = 0
        self.run_subagent: Callable[[SubagentTask], Awaitable[SubagentReport]] | None = None

    async def listen(self) -> Cancel:
        """Passes answers on until the worker cancels. Raises `WorkerGone`, `HarnessProtocolError`."""
        while True:
            frame = await self._channel.receive()
            if isinstance(frame, Cancel):
                return frame
            self._answers.put_nowait(frame)

    async def tell(self, delta: TextDelta) -> None:
        """Says something that is not answered. Raises `WorkerGone`."""
        await self._channel.send(delta)

    async def call_tool(self, name: str, arguments: str) -> ToolResult:
        """What the agent gets for a call. Raises `HarnessProtocolError` when something else is answered."""
        self._calls += 1
        request = ToolRequest(call_id=f"call_{self._calls}", name=name, arguments=arguments)
        await self._channel.send(request)
        answer = await self._answers.get()
        if isinstance(answer, SubagentTask) and self.run_subagent is not None:
            await self._channel.send(await self.run_subagent(answer))
            answer = await self._answers.get()
        if not isinstance(answer, ToolResult) or answer.call_id != request.call_id:
            raise _unexpected(answer, "tool_result")
        return answer

    async def may_compact(self) -> bool:
        """Whether the context may be summarized. Raises `HarnessProtocolError` when something else is answered."""
        await self._channel.send(CompactionAsked())
        answer = await self._answers.get()
        if not isinstance(answer, CompactionRuled):
            raise _unexpected(answer, "compaction_ruled")
        return answer.allowed

    async def hand_in_summary(self, summary: str) -> str | None:
        """The summary to go on with; `None` where it was not taken. Raises `HarnessProtocolError`."""
        await self._channel.send(Compacted(summary))
        answer = await self._answers.get()
        if not isinstance(answer, SummaryRuled):
            raise _unexpected(answer, "summary_ruled")
        return answer.summary if answer.taken else None

    async def submit(self, value: str) -> SubmissionResult:
        """What became of a submitted value. Raises `HarnessProtocolError` when something else is answered."""
        await self._channel.send(Submit(value))
        answer = await self._answers.get()
        if not isinstance(answer, SubmissionResult):
            raise _unexpected(answer, "submission_result")
        return answer

    async def report(self, report: Report) -> Done | ResponseDenied:
        """Whether the report was taken. Raises `HarnessProtocolError` when something else is answered."""
        await self._channel.send(report)
        answer = await self._answers.get()
        if not isinstance(answer, Done | ResponseDenied):
            raise _unexpected(answer, "done")
        return answer


def _unexpected(frame: ToHarness, wanted: str) -> HarnessProtocolError:
    return HarnessProtocolError(f"the worker sent {frame.type} where {wanted} was due")
