import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sandbox.box_parts import PRELUDE, run

from turnkeeper.clock import SystemClock
from turnkeeper.sandbox import stdio_boxes
from turnkeeper.sandbox.box_process import BoxProcess, Launch
from turnkeeper.sandbox.boxes import MAX_OUTPUT_BYTES, BoxLimits, BoxLost, SandboxUnavailable, ToolCall
from turnkeeper.sandbox.protocol import MAX_FRAME_BYTES, HarnessProtocolError
from turnkeeper.sandbox.quota import WorkspaceQuota
from turnkeeper.sandbox.stdio_boxes import MAX_ANSWER_BYTES, StdioLoopBox, StdioToolBox

READY = '{"id": 0, "status": "ok", "text": "", "exit_status": null, "truncated": false}'
GOOD: dict[str, object] = {"id": 1, "status": "ok", "text": "fine", "exit_status": 0, "truncated": False}


def python(script: str) -> Launch:
    """A process that stands for a box and runs this text."""
    return Launch((sys.executable, "-I", "-S", "-c", script), sys.executable)


def tool_box(process: BoxProcess) -> StdioToolBox:
    """A tool box over this process."""
    quota = WorkspaceQuota(Path("/nonexistent"), BoxLimits(), process.signal_kill)
    return StdioToolBox(process, "sbx_1", SystemClock(), BoxLimits(), quota)


def with_agent(answer: str, use: Callable[[StdioToolBox], Awaitable[None]]) -> None:
    """Use a tool box whose agent answers the first call with this line, `MANY` in it being more text than allowed."""
    line = f"{answer!r}.replace('MANY', 'a' * {MAX_OUTPUT_BYTES + 10})"
    script = f"print({READY!r}, flush=True); input(); print({line}, flush=True); input()"

    async def work() -> None:
        process = await BoxProcess.spawn(python(script), max_line_bytes=MAX_ANSWER_BYTES)
        box = tool_box(process)
        try:
            await box.wait_ready(10_000)
            await use(box)
        finally:
            await box.kill()

    run(work())


def test_a_good_answer_is_taken() -> None:
    async def use(box: StdioToolBox) -> None:
        outcome = await box.call(ToolCall("shell", {}))
        assert (outcome.status, outcome.text, outcome.exit_status, outcome.truncated) == ("ok", "fine", 0, False)

    with_agent(json.dumps(GOOD), use)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "fine",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps({}),
        json.dumps({**GOOD, "id": 2}),
        json.dumps({**GOOD, "id": "1"}),
        json.dumps({**GOOD, "status": "denied"}),
        json.dumps({**GOOD, "status": ["ok"]}),
        json.dumps({**GOOD, "text": None}),
        json.dumps({**GOOD, "text": "\ud800"}),
        json.dumps({**GOOD, "exit_status": True}),
        json.dumps({**GOOD, "exit_status": 1.5}),
        json.dumps({**GOOD, "exit_status": 10**20}),
    ],
    ids=lambda answer: answer[:70],
)
def test_an_answer_that_no_agent_gives_is_a_lost_box(answer: str) -> None:
    async def use(box: StdioToolBox) -> None:
        with pytest.raises(BoxLost):
            await box.call(ToolCall("shell", {}))
        with pytest.raises(BoxLost):
            await box.call(ToolCall("shell", {}))

    with_agent(answer, use)


def test_an_answer_over_the_limit_is_cut() -> None:
    async def use(box: StdioToolBox) -> None:
        assert len((await box.call(ToolCall("shell", {}))).text) == MAX_OUTPUT_BYTES

    with_agent(json.dumps({**GOOD, "text": "MANY"}), use)


def test_an_endless_answer_is_a_lost_box() -> None:
    script = f"print({READY!r}, flush=True); input()\nwhile True: print('a' * 100000, end='')"

    async def work() -> None:
        box = tool_box(await BoxProcess.spawn(python(script), max_line_bytes=MAX_ANSWER_BYTES))
        await box.wait_ready(10_000)
        with pytest.raises(BoxLost):
            await box.call(ToolCall("shell", {}))
        await box.kill()

    run(work())


def test_a_tool_box_that_never_gets_ready_is_unavailable() -> None:
    async def work() -> None:
        process = await BoxProcess.spawn(python("input()"), max_line_bytes=100)
        box = tool_box(process)
        with pytest.raises(SandboxUnavailable, match="did not get ready"):
            await box.wait_ready(100)
        await box.kill()

    run(work())


def test_a_harness_pays_for_every_byte_from_one_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_boxes, "MAX_HARNESS_BYTES", 10_000)
    script = PRELUDE + "while True: submit('a' * 1000)"

    async def work() -> int:
        process = await BoxProcess.spawn(python(script), max_line_bytes=MAX_FRAME_BYTES)
        box = StdioLoopBox(process, "sbx_1", Path("/nowhere"), "/run/gateway/gateway.sock")
        await box.wait_ready(10_000)
        frames = [await box.receive() for _ in range(9)]
        with pytest.raises(HarnessProtocolError, match="10000 bytes in one turn"):
            await box.receive()
        return len(frames)

    assert run(work()) == 9


@given(st.binary(max_size=300))
def test_no_line_of_a_tool_box_raises_anything_but_value_errors(line: bytes) -> None:
    try:
        stdio_boxes.parse_answer(line, 1)
    except (ValueError, RecursionError):
        return
    pytest.fail("bytes passed for an answer")
