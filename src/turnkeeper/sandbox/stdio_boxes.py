"""The two kinds of box over a box process: frames to a harness, calls to the tool box's agent.

Whoever is on the other side is hostile until proven otherwise, and is never proven otherwise: every line is bounded,
parsed strictly and paid for from a total; anything unexpected kills the box.
"""

import asyncio
import json
from pathlib import Path
from typing import Final, cast

from turnkeeper.clock import Clock
from turnkeeper.sandbox.box_process import BoxProcess, LineTooLong
from turnkeeper.sandbox.boxes import (
    MAX_OUTPUT_BYTES,
    BoxLimits,
    BoxLost,
    EndReason,
    SandboxUnavailable,
    ToolCall,
    ToolCallStatus,
    ToolOutcome,
)
from turnkeeper.sandbox.protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    FromHarness,
    HarnessProtocolError,
    Ready,
    ToHarness,
    parse_from_harness,
    render_frame,
)
from turnkeeper.sandbox.quota import WorkspaceQuota
from turnkeeper.sandbox.toolbox_agent import MAX_REQUEST_BYTES

MAX_HARNESS_BYTES: Final = 64 << 20
# The text escaped sixfold, and room for the other members.
MAX_ANSWER_BYTES: Final = 6 * MAX_OUTPUT_BYTES + 4096
ANSWER_GRACE_MS: Final = 5_000
MAX_TOOL_TIMEOUT_MS: Final = 24 * 3_600_000
_STATUSES: Final[dict[str, ToolCallStatus]] = {"ok": "ok", "error": "error", "timeout": "timeout"}


class StdioLoopBox:
    """A harness at the other end of a box's stdio."""

    def __init__(self, process: BoxProcess, sandbox_id: str, socket_dir: Path, gateway_socket: str) -> None:
        self._process = process
        self._received_bytes = 0
        self._ready: Ready | None = None
        self.sandbox_id = sandbox_id
        self.socket_dir = socket_dir
        self.gateway_socket = gateway_socket
        self.warm = False
        self.start_ms = 0

    @property
    def ready(self) -> Ready:
        """What the harness said it is."""
        assert self._ready is not None  # noqa: S101 - nobody gets a box before its Ready
        return self._ready

    @property
    def diagnostics(self) -> str:
        """The last of the box's stderr."""
        return self._process.diagnostics

    @property
    def end_reason(self) -> EndReason | None:
        """Why a lost box ended, where that is known."""
        return self._process.end_reason

    @property
    def is_alive(self) -> bool:
        """Whether the box still runs."""
        return self._process.is_alive

    async def wait_ready(self, timeout_ms: int) -> None:
        """Wait for `Ready`. Raises `SandboxUnavailable`; kill the box then."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                frame = await self.receive()
        except (TimeoutError, BoxLost, HarnessProtocolError) as error:
            what = str(error) or f"it said nothing within {timeout_ms} ms"
            raise SandboxUnavailable(f"the harness did not get ready: {what}", diagnostics=self.diagnostics) from error
        if not isinstance(frame, Ready) or frame.protocol != PROTOCOL_VERSION:
            raise SandboxUnavailable(f"the harness began with {frame.type!r} or speaks another protocol version")
        self._ready = frame

    async def ended(self) -> None:
        """Returns when the box has exited."""
        await self._process.ended()

    async def send(self, frame: ToHarness) -> None:
        """Hand a frame to the harness. Raises `BoxLost`."""
        await self._process.write(render_frame(frame))

    async def receive(self) -> FromHarness:
        """The next frame. Raises `BoxLost`, `HarnessProtocolError`; the box is gone then."""
        try:
            line = await self._process.read_line()
            self._pay_for(len(line))
            return parse_from_harness(line)
        except LineTooLong as error:
            await self.kill()
            raise HarnessProtocolError(f"a frame is over {MAX_FRAME_BYTES} bytes") from error
        except (BoxLost, HarnessProtocolError):
            await self.kill()
            raise

    async def kill(self) -> None:
        """End every process and wait. Raises `BoxNotGone`."""
        await self._process.kill()

    def _pay_for(self, received_bytes: int) -> None:
        self._received_bytes += received_bytes
        if self._received_bytes > MAX_HARNESS_BYTES:
            raise HarnessProtocolError(f"the harness wrote more than {MAX_HARNESS_BYTES} bytes in one turn")


class StdioToolBox:
    """The tool agent at the other end of a box's stdio."""

    def __init__(
        self, process: BoxProcess, sandbox_id: str, clock: Clock, limits: BoxLimits, quota: WorkspaceQuota
    ) -> None:
        self._process = process
        self._limits = limits
        self._quota = quota
        self._clock = clock
        self._turn = asyncio.Lock()
        self._last_call = 0
        self.sandbox_id = sandbox_id

    @property
    def diagnostics(self) -> str:
        """The last of the box's stderr."""
        return self._process.diagnostics

    @property
    def end_reason(self) -> EndReason | None:
        """Why a lost box ended, where that is known."""
        return self._process.end_reason

    async def wait_ready(self, timeout_ms: int) -> None:
        """Wait for the agent. Raises `SandboxUnavailable`; kill the box then."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._answer(0)
        except (TimeoutError, BoxLost) as error:
            what = str(error) or f"it said nothing within {timeout_ms} ms"
            raise SandboxUnavailable(f"the tool box did not get ready: {what}", diagnostics=self.diagnostics) from error

    async def call(self, request: ToolCall) -> ToolOutcome:
        """Run one tool. Raises `BoxLost`."""
        async with self._turn:
            try:
                return await self._call(request)
            except BaseException:
                # Also when the caller was canceled: an answer that comes later must not meet the next call.
                self._process.signal_kill()
                raise

    async def suspend(self) -> bool:
        """Stop every process inside, background ones too. False where it cannot be done, or a call is running."""
        return not self._turn.locked() and await self._process.suspend()

    async def resume(self) -> None:
        """Set going what `suspend` stopped."""
        await self._process.resume()

    async def kill(self) -> None:
        """End every process and wait. Raises `BoxNotGone`."""
        await self._process.kill()

    async def _call(self, request: ToolCall) -> ToolOutcome:
        self._last_call += 1
        timeout_ms = min(request.timeout_ms, MAX_TOOL_TIMEOUT_MS)
        started_ms = self._clock.monotonic_ms()
        if request.tool == "write_file" and self._quota.is_full:
            return ToolOutcome("error", self._quota.notice, None, False, 0)
        try:
            line = _render_call(self._last_call, request, timeout_ms)
        except (ValueError, TypeError, RecursionError):
            return ToolOutcome("error", "the arguments are too large, too deep or not JSON", None, False, 0)
        await self._process.write(line)
        try:
            async with asyncio.timeout((timeout_ms + ANSWER_GRACE_MS) / 1000):
                answer = await self._answer(self._last_call)
        except TimeoutError:
            self._process.signal_kill()
            answer = _Answer("timeout", "the tool box did not answer and was ended", None, truncated=False)
        await self._quota.look_again()
        duration_ms = self._clock.monotonic_ms() - started_ms
        status, text = self._with_notices(answer)
        return ToolOutcome(status, text, answer.exit_status, answer.truncated, duration_ms)

    def _with_notices(self, answer: "_Answer") -> tuple[ToolCallStatus, str]:
        """What the tool said, after what we have to say about it: a text is cut at its end."""
        notices: list[str] = []
        if self._process.ran_out_of_memory():
            notices.append(out_of_memory(self._limits))
        if self._quota.is_full:
            notices.append(self._quota.notice)
        if not notices:
            return answer.status, answer.text
        status: ToolCallStatus = "error" if answer.status == "ok" else answer.status
        return status, "".join(f"[{notice}]\n" for notice in notices) + answer.text

    async def _answer(self, call: int) -> "_Answer":
        try:
            return parse_answer(await self._process.read_line(), call)
        except (LineTooLong, ValueError, RecursionError) as error:
            raise BoxLost("the tool box answered what its agent never says", diagnostics=self.diagnostics) from error


def out_of_memory(limits: BoxLimits) -> str:
    """What an agent is told when the kernel ended something of its."""
    return f"the sandbox used up its memory of {limits.box_memory_bytes >> 20} MiB, and a process of it was ended"


class _Answer:
    def __init__(self, status: ToolCallStatus, text: str, exit_status: int | None, *, truncated: bool) -> None:
        self.status: ToolCallStatus = status
        self.text = text
        self.exit_status = exit_status
        self.truncated = truncated


def _render_call(call: int, request: ToolCall, timeout_ms: int) -> bytes:
    document = {
        "id": call,
        "tool": request.tool,
        "arguments": dict(request.arguments),
        "timeout_ms": timeout_ms,
        "max_output_bytes": min(request.max_output_bytes, MAX_OUTPUT_BYTES),
    }
    # ASCII only: a lone surrogate in an argument is then for the agent to refuse, and cannot break the line here.
    line = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_REQUEST_BYTES:
        raise ValueError(f"a call of {len(line)} bytes is over {MAX_REQUEST_BYTES}")
    return line


def parse_answer(line: bytes, call: int) -> _Answer:
    """A line of the tool box as the answer to this call. Raises `ValueError`, `RecursionError`."""
    document: object = json.loads(line)
    members = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    status, text, exit_status = (members.get(name) for name in ("status", "text", "exit_status"))
    known = _STATUSES.get(status) if isinstance(status, str) else None
    if known is None or members.get("id") != call or not isinstance(text, str) or not _is_exit_status(exit_status):
        raise ValueError("not an answer to this call")
    cut = text.encode()[:MAX_OUTPUT_BYTES].decode("utf-8", "ignore")
    return _Answer(known, cut, cast("int | None", exit_status), truncated=members.get("truncated") is not False)


def _is_exit_status(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 16)
