"""The worker's side of the runner protocol, opposite a real harness: in this process over pipes, or in its own."""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.gateway_rig import LIMITS, Rig, gateway_rig

from turnkeeper.harness.channel import PipeChannel
from turnkeeper.harness.hardening import FramePipes
from turnkeeper.harness.loop import serve
from turnkeeper.sandbox.gateway import GatewayLimits
from turnkeeper.sandbox.protocol import (
    MAX_FRAME_BYTES,
    Canceled,
    Compacted,
    CompactionAsked,
    CompactionRuled,
    Done,
    FromHarness,
    Report,
    ResponseDenied,
    Start,
    SubmissionResult,
    Submit,
    SummaryRuled,
    ToHarness,
    ToolRequest,
    ToolResult,
    ToolSpec,
    parse_from_harness,
    render_frame,
)
from turnkeeper.sandbox.providers import Provider
from turnkeeper.testing.memory_meter import MemoryMeter
from turnkeeper.testing.scripted_model import Script

DEADLINE_S = 60
SHELL = ToolSpec("shell", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
ACCEPTED = SubmissionResult(submission=1, accepted=True, closed=False, attempts_left=3)


def refused(*errors: str, left: int = 2) -> SubmissionResult:
    """A submission that was not valid."""
    return SubmissionResult(1, accepted=False, closed=False, attempts_left=left, errors=list(errors))


CLOSED = SubmissionResult(submission=4, accepted=False, closed=True, attempts_left=0)


def ran(request: ToolRequest) -> ToolResult:
    """A tool that says it ran."""
    return ToolResult(request.call_id, "ok", f"ran {request.arguments}")


@dataclass(slots=True)
class Worker:
    """What the worker answers. Lists are used up; the last entry stays. `frames` is everything the harness said."""

    tool: Callable[[ToolRequest], ToHarness] = ran
    submissions: list[SubmissionResult] = field(default_factory=lambda: [ACCEPTED])
    verdicts: list[Done | ResponseDenied] = field(default_factory=lambda: [Done()])
    may_compact: bool = True
    summary: Callable[[str], SummaryRuled] = lambda written: SummaryRuled(taken=True, summary=written)
    frames: list[FromHarness] = field(default_factory=list[FromHarness])
    exit_status: int | None = None

    def answer(self, frame: FromHarness) -> ToHarness | None:
        """The answer to a frame, where one is due."""
        if isinstance(frame, ToolRequest):
            return self.tool(frame)
        if isinstance(frame, CompactionAsked):
            return CompactionRuled(self.may_compact)
        if isinstance(frame, Compacted):
            return self.summary(frame.summary)
        if isinstance(frame, Submit):
            return self.submissions.pop(0) if len(self.submissions) > 1 else self.submissions[0]
        if isinstance(frame, Report):
            return self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        return None

    @property
    def reports(self) -> list[Report]:
        """Every report."""
        return [frame for frame in self.frames if isinstance(frame, Report)]

    @property
    def report(self) -> Report:
        """The last report."""
        return self.reports[-1]

    @property
    def requests(self) -> list[ToolRequest]:
        """The tools that were asked for."""
        return [frame for frame in self.frames if isinstance(frame, ToolRequest)]

    @property
    def submitted(self) -> list[str]:
        """The values that were submitted."""
        return [frame.value for frame in self.frames if isinstance(frame, Submit)]

    @property
    def canceled(self) -> Canceled | None:
        """The acknowledgment of a cancel."""
        found = [frame for frame in self.frames if isinstance(frame, Canceled)]
        return found[-1] if found else None


@dataclass(slots=True)
class Side:
    """The worker's two ends."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def receive(self) -> FromHarness | None:
        """The next frame; None when the harness is gone."""
        line = await asyncio.wait_for(self.reader.readline(), DEADLINE_S)
        return parse_from_harness(line) if line else None

    async def send(self, frame: ToHarness) -> None:
        """Sends a frame."""
        self.writer.write(render_frame(frame))
        await self.writer.drain()


async def converse(side: Side, worker: Worker) -> None:
    """Answers until the harness is gone."""
    while (frame := await side.receive()) is not None:
        worker.frames.append(frame)
        answer = worker.answer(frame)
        if answer is not None:
            await side.send(answer)


@dataclass(slots=True)
class Inside:
    """A harness in this process, on real pipes."""

    side: Side
    serving: asyncio.Task[int]
    channel: PipeChannel
    back: asyncio.BaseTransport

    @classmethod
    async def open(cls) -> "Inside":
        """Starts serving; the harness is warm, so `ready` comes at once."""
        to_harness, from_worker = os.pipe()
        to_worker, from_harness = os.pipe()
        channel = await PipeChannel.open(FramePipes(to_harness, from_harness))
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_FRAME_BYTES + 1)
        back, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(to_worker, "rb", 0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(from_worker, "wb", 0)
        )
        writer = asyncio.StreamWriter(transport, protocol, None, loop)

        async def serving() -> int:
            try:
                return await serve(channel)
            finally:
                channel.close()

        return cls(Side(reader, writer), asyncio.ensure_future(serving()), channel, back)

    async def close(self) -> int:
        """Closes the worker's side and waits for the harness's exit status."""
        self.side.writer.close()
        try:
            return await asyncio.wait_for(self.serving, DEADLINE_S)
        finally:
            self.back.close()


def start_frame(socket: Path, **members: object) -> Start:
    """A start with what a test does not care about filled in."""
    common: dict[str, object] = {
        "turn_id": "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB",
        "attempt": 1,
        "instructions": "Be brief.",
        "input": "hello",
        "model": "m1",
        "gateway_socket": str(socket),
    }
    return Start(**(common | members))  # pyright: ignore[reportArgumentType] - the members are the test's


def play(
    folder: Path,
    script: Script,
    worker: Worker | None = None,
    *,
    meter: MemoryMeter | None = None,
    limits: GatewayLimits = LIMITS,
    provider_for: Callable[[str], Provider] | None = None,
    **members: object,
) -> tuple[Worker, Rig]:
    """One whole turn against a harness in this process."""
    worker = worker or Worker()

    async def main() -> Rig:
        async with gateway_rig(folder, script, meter=meter, limits=limits, provider_for=provider_for) as rig:
            inside = await Inside.open()
            await inside.side.send(start_frame(rig.handle.path, **members))
            await converse(inside.side, worker)
            worker.exit_status = await inside.close()
        return rig

    return worker, asyncio.run(main())


async def harness_process(*, stderr: int | None = None) -> asyncio.subprocess.Process:
    """The harness as a program, as a box starts it."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-m",
        "turnkeeper.harness",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        limit=MAX_FRAME_BYTES + 1,
        env={},
    )


def side_of(process: asyncio.subprocess.Process) -> Side:
    """The worker's ends of a harness process."""
    assert process.stdout is not None
    assert process.stdin is not None
    return Side(process.stdout, process.stdin)
