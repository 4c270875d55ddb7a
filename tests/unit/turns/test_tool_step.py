"""Governed tool calls: nothing runs and nothing is told that was not allowed."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import orjson
import pytest
from tests.unit.turns.rig import SETTINGS, Rig, rig, script

from turnkeeper.sandbox.protocol import ToolRequest, ToolResult
from turnkeeper.testing.recording_sandbox import ScriptedBoxLost, ScriptedHarness, ScriptedOutcome
from turnkeeper.testing.scripted_guardian import Fault, deny
from turnkeeper.turns import payloads
from turnkeeper.turns.applied import arguments_of
from turnkeeper.turns.box_ports import BoxEndReason
from turnkeeper.turns.model import Turn

SHELL = ToolRequest("call-1", "shell", '{"command":"ls"}')


class Told:
    """A harness that makes calls and keeps what it was told."""

    def __init__(self, *requests: ToolRequest) -> None:
        self.requests = requests
        self.results: list[ToolResult] = []

    async def __call__(self, harness: ScriptedHarness) -> None:
        await harness.begin()
        for request in self.requests:
            result = await harness.ask(request)
            assert isinstance(result, ToolResult)
            self.results.append(result)
        await harness.report("done")


async def completed(made: Rig, turn: Turn) -> list[dict[str, object]]:
    return [orjson.loads(event.data) for event in await made.events(turn) if event.type == "tool.completed"]


def test_an_allowed_call_runs_between_two_questions(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(SHELL)
        async with rig(tmp_path, told) as made:
            turn = await made.run_turn()
            assert told.results == [ToolResult("call-1", "ok", "shell ran with ['command']")]
            assert [name for name in await made.types(turn) if name.startswith("tool.")] == [
                "tool.requested",
                "tool.decided",
                "tool.started",
                "tool.completed",
            ]
            asked = [entry for entry in made.guardian.entries if entry.method.startswith("steps/toolCall")]
            assert arguments_of(asked[0].payload, {"command": "ls"}) == {"command": "ls"}
            assert asked[1].payload["request_id_ref"] == asked[0].request_id
            assert made.sandbox.left_behind == []

    asyncio.run(main())


def test_a_denied_call_does_not_run_and_the_agent_hears_why(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(SHELL)
        async with rig(tmp_path, told) as made:
            made.guardian.always(payloads.TOOL_CALL_REQUEST, deny("no shells"))
            turn = await made.run_turn()
            assert told.results == [ToolResult("call-1", "denied", "denied: no shells")]
            assert made.sandbox.calls == []
            assert (turn.status, turn.usage.tool_calls) == ("completed", 0)
            assert [call["status"] for call in await completed(made, turn)] == ["denied"]

    asyncio.run(main())


def test_a_call_without_a_decision_does_not_run(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(SHELL)
        async with rig(tmp_path, told) as made:
            made.guardian.fail(payloads.TOOL_CALL_REQUEST, *[Fault.GARBAGE] * 1_000)
            turn_id = await made.post(await made.session())
            async with asyncio.timeout(20):
                while not told.results:
                    await made.wakeups.wait("queue", timeout_ms=50)
            made.guardian.heal()
            turn = await made.ended(turn_id)
            assert told.results[0].status == "denied"
            assert made.sandbox.calls == []
            await made.settled(turn.session_id)
            assert made.guardian.entries[-1].payload["tool_call_count"] == 1

    asyncio.run(main())


def test_a_denied_result_is_withheld_from_the_agent_and_from_the_events(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(SHELL)
        async with rig(tmp_path, told) as made:
            made.sandbox.tool = _secret
            made.guardian.always(payloads.TOOL_CALL_RESULT, deny("it holds a key"))
            turn = await made.run_turn()
            assert told.results == [ToolResult("call-1", "denied", "denied: it holds a key")]
            assert "s3cret" not in "".join(event.data for event in await made.events(turn))
            assert turn.usage.tool_calls == 1

    asyncio.run(main())


def test_unknown_tools_and_broken_arguments_never_leave_the_agent(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(
            ToolRequest("1", "rm_rf", "{}"),
            ToolRequest("2", "write_file", "{}"),
            ToolRequest("3", "shell", "{"),
            ToolRequest("4", "shell", "[1]"),
            ToolRequest("5", "shell", '{"a":1,"a":2}'),
            ToolRequest("6", "shell", '{"a":' + "[" * 60 + "]" * 60 + "}"),
            ToolRequest("7", "shell", '{"a":"' + "x" * 300_000 + '"}'),
        )
        async with rig(tmp_path, told) as made:
            turn = await made.run_turn()
            assert {result.status for result in told.results} == {"error"}
            assert payloads.TOOL_CALL_REQUEST not in made.guardian.written()
            assert "tool.requested" not in await made.types(turn)

    asyncio.run(main())


def test_numbers_no_signature_covers_are_shown_to_the_guardian_as_text(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(ToolRequest("1", "shell", '{"big":12345678901234567890,"list":[1,9007199254740993],"ok":1.5}'))
        async with rig(tmp_path, told) as made:
            await made.run_turn()
            asked = next(entry for entry in made.guardian.entries if entry.method == payloads.TOOL_CALL_REQUEST)
            shown = cast("dict[str, dict[str, object]]", asked.payload["arguments"])
            assert {name: argument["value"] for name, argument in shown.items()} == {
                "big": "12345678901234567890",
                "list": "[1,9007199254740993]",
                "ok": 1.5,
            }
            assert made.sandbox.calls[0][1]["big"] == 12345678901234567890

    asyncio.run(main())


def test_an_output_that_is_longer_than_an_agent_gets_is_cut_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(SHELL)
        limits = replace(SETTINGS, tool_output_bytes=64, inline_bytes=64)
        async with rig(tmp_path, told, settings=limits) as made:
            made.sandbox.tool = _long
            turn = await made.run_turn()
            assert told.results[0].content == "y" * 64
            assert [(call["truncated"], call["artifact_id"]) for call in await completed(made, turn)] == [(True, None)]

    asyncio.run(main())


def test_a_lost_tool_box_is_an_unknown_outcome_and_the_next_call_gets_another_box(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(SHELL, replace(SHELL, call_id="call-2"))
        async with rig(tmp_path, told) as made:
            made.sandbox.tool = _LostOnce()
            turn = await made.run_turn()
            assert [call["status"] for call in await completed(made, turn)] == ["unknown", "ok"]
            assert len(made.sandbox.tool_boxes) == 2
            assert made.sandbox.left_behind == []

    asyncio.run(main())


@pytest.mark.parametrize(("reason", "loss", "word"), [("oom", "oom", "memory"), ("quota", "killed", "quota")])
def test_a_tool_box_that_was_ended_says_why(tmp_path: Path, reason: BoxEndReason, loss: str, word: str) -> None:
    async def main() -> None:
        told = Told(SHELL, replace(SHELL, call_id="call-2"))
        async with rig(tmp_path, told) as made:
            lost = _LostOnce()

            async def tool(name: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
                if len(made.sandbox.calls) == 1:
                    made.sandbox.tool_boxes[0].end_reason = reason
                return await lost(name, arguments)

            made.sandbox.tool = tool
            turn = await made.run_turn()
            assert [call["status"] for call in await completed(made, turn)] == ["error", "ok"]
            assert word in told.results[0].content
            losses = [event for event in await made.events(turn) if event.type == "sandbox.lost"]
            assert [orjson.loads(event.data)["reason"] for event in losses] == [loss]

    asyncio.run(main())


def test_the_tools_of_one_session_share_its_workspace(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, script(_one_call)) as made:
            session = await made.session()
            await made.run_turn(session)
            await made.run_turn(session)
            assert {box.workspace for box in made.sandbox.tool_boxes} == {tmp_path / "workspaces" / session.id}

    asyncio.run(main())


async def _one_call(harness: ScriptedHarness) -> None:
    await harness.ask(SHELL)
    await harness.report("done")


async def _secret(tool: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
    return ScriptedOutcome(text="s3cret")


async def _long(tool: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
    return ScriptedOutcome(text="y" * 100)


class _LostOnce:
    def __init__(self) -> None:
        self._lost = False

    async def __call__(self, tool: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
        if not self._lost:
            self._lost = True
            raise ScriptedBoxLost("out of memory")
        return ScriptedOutcome(text="fine")
