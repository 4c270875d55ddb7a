"""Tools that a client has itself: asked about like ours, run by nobody here, told to its agent only when allowed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import orjson
from tests.unit.turns.rig import Rig, rig, script

from turnkeeper.sandbox.protocol import ToolAsked, ToolRan, ToolRequest, ToolResult, ToolRuled, Ungoverned
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.testing.scripted_guardian import deny
from turnkeeper.turns import payloads
from turnkeeper.turns.model import HarnessChoice, StopReason, Turn

ASKED: Final = ToolAsked("t1", "Bash", '{"command":"ls"}')
RAN: Final = ToolRan("t1", "ok", "a file")


def play(
    tmp_path: Path,
    body: Callable[[ScriptedHarness], Awaitable[None]],
    look: Callable[[Rig, Turn], Awaitable[None]],
    *,
    harness: HarnessChoice | None = None,
    prepare: Callable[[Rig], None] = lambda _: None,
) -> None:
    """One turn of a client whose runner is `body`."""

    async def main() -> None:
        async with rig(tmp_path, script(body)) as made:
            made.tools, made.harness = (), harness or HarnessChoice("claude-code")
            prepare(made)
            await look(made, await made.run_turn())
            assert made.sandbox.left_behind == []

    asyncio.run(main())


async def tool_events(made: Rig, turn: Turn) -> list[tuple[str, str]]:
    """The events of the turn's calls, with how the finished ones ended."""
    events = [event for event in await made.events(turn) if event.type.startswith("tool.")]
    return [(event.type, orjson.loads(event.data).get("status", "")) for event in events]


def test_a_clients_call_is_asked_twice_and_run_by_nobody_here(tmp_path: Path) -> None:
    async def body(harness: ScriptedHarness) -> None:
        assert await harness.ask(ASKED) == ToolRuled("t1", allowed=True, arguments='{"command": "ls"}')
        assert await harness.ask(RAN) == ToolResult("t1", "ok", "a file")
        await harness.report("done")

    async def look(made: Rig, turn: Turn) -> None:
        assert (turn.status, turn.usage.tool_calls, made.sandbox.calls) == ("completed", 1, [])
        steps = [entry.method for entry in made.guardian.entries if entry.method.startswith("steps/toolCall")]
        assert steps == [payloads.TOOL_CALL_REQUEST, payloads.TOOL_CALL_RESULT]
        assert await tool_events(made, turn) == [
            ("tool.requested", ""),
            ("tool.decided", ""),
            ("tool.started", ""),
            ("tool.completed", "ok"),
        ]

    play(tmp_path, body, look)


def test_a_denied_call_is_ruled_out_with_its_reason_and_has_no_output(tmp_path: Path) -> None:
    async def body(harness: ScriptedHarness) -> None:
        assert await harness.ask(ASKED) == ToolRuled("t1", allowed=False, reason="denied: no shells")
        told = await harness.ask(RAN)
        assert isinstance(told, ToolResult)
        assert told.status == "denied"
        await harness.report("done")

    async def look(made: Rig, turn: Turn) -> None:
        assert (turn.status, turn.usage.tool_calls) == ("completed", 0)

    play(tmp_path, body, look, prepare=lambda made: made.guardian.always(payloads.TOOL_CALL_REQUEST, deny("no shells")))


def test_a_denied_output_is_withheld_from_the_agent_and_from_the_events(tmp_path: Path) -> None:
    async def body(harness: ScriptedHarness) -> None:
        await harness.ask(ASKED)
        assert await harness.ask(RAN) == ToolResult("t1", "denied", "denied: it holds a key")
        await harness.report("done")

    async def look(made: Rig, turn: Turn) -> None:
        assert "a file" not in "".join(event.data for event in await made.events(turn))

    play(
        tmp_path,
        body,
        look,
        prepare=lambda made: made.guardian.always(payloads.TOOL_CALL_RESULT, deny("it holds a key")),
    )


def test_calls_may_be_open_side_by_side_and_those_left_open_are_closed(tmp_path: Path) -> None:
    async def body(harness: ScriptedHarness) -> None:
        for number in ("t1", "t2", "t3"):
            await harness.ask(ToolAsked(number, "Read", "{}"))
        assert await harness.ask(ToolRan("t2", "error", "no such file")) == ToolResult("t2", "error", "no such file")
        await harness.report("done")

    async def look(made: Rig, turn: Turn) -> None:
        ends = [status for name, status in await tool_events(made, turn) if name == "tool.completed"]
        assert sorted(ends) == ["error", "unknown", "unknown"]

    play(tmp_path, body, look)


def test_a_call_that_no_hook_asked_about_fails_the_turn(tmp_path: Path) -> None:
    async def body(harness: ScriptedHarness) -> None:
        harness.send(Ungoverned("Bash"))
        await harness.receive()

    async def look(made: Rig, turn: Turn) -> None:
        assert turn.stop_reason is StopReason.AGENT_ERROR
        last = orjson.loads((await made.events(turn))[-1].data)
        assert last["error"]["code"] == "ungoverned_tool_call"

    play(tmp_path, body, look)


def test_a_loop_without_tools_of_its_own_may_not_speak_as_a_client(tmp_path: Path) -> None:
    async def body(harness: ScriptedHarness) -> None:
        await harness.ask(ASKED)

    async def look(made: Rig, turn: Turn) -> None:
        del made
        assert turn.stop_reason is StopReason.SANDBOX_LOST

    play(tmp_path, body, look, harness=HarnessChoice("command", ("/opt/loop",)))


def test_a_client_has_none_of_our_tools(tmp_path: Path) -> None:
    async def body(harness: ScriptedHarness) -> None:
        told = await harness.ask(ToolRequest("1", "shell", "{}"))
        assert told == ToolResult("1", "error", "unknown tool: shell")
        await harness.report("done")

    async def look(made: Rig, turn: Turn) -> None:
        del turn
        assert made.sandbox.calls == []

    play(tmp_path, body, look)


def test_a_box_is_ordered_for_the_agents_harness_and_workspace(tmp_path: Path) -> None:
    async def body(harness: ScriptedHarness) -> None:
        await harness.report("done")

    async def look(made: Rig, turn: Turn) -> None:
        (order,) = made.sandbox.orders
        assert (order.harness.kind, order.workspace.name) == ("claude-code", turn.session_id)

    play(tmp_path, body, look)
