"""Budgets of tool calls and of running time, and the word to finish, as a worker keeps them (contract 8)."""

import asyncio
from pathlib import Path

from tests.unit.turns.rig import rig

from turnkeeper.sandbox.protocol import Cancel, Canceled, ToolRequest, ToolResult
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.turns.model import Budget
from turnkeeper.turns.running import WRAP_UP_NOTICE


async def tool(harness: ScriptedHarness, number: int) -> ToolResult:
    result = await harness.ask(ToolRequest(f"call_{number}", "shell", "{}"))
    assert isinstance(result, ToolResult)
    return result


def test_running_time_that_is_spent_ends_in_an_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            assert isinstance(await harness.receive(), Cancel)
            harness.send(Canceled("as far as I came"))

        async with rig(tmp_path, run) as made:
            turn = await made.run_turn(budget=Budget(max_active_ms=50))
            await made.settled(turn.session_id)
            assert (turn.status, turn.stop_reason, turn.text) == ("completed", "budget_reached", "as far as I came")
            assert (await made.types(turn)).count("budget.reached") == 1

    asyncio.run(main())


def test_a_tool_call_beyond_the_budget_does_not_run_and_the_agent_says_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[str] = []

        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            told.extend([(await tool(harness, number)).status for number in (1, 2)])
            assert not await harness.call_model()
            await harness.report("one is all I got")

        async with rig(tmp_path, run) as made:
            turn = await made.run_turn(budget=Budget(max_tool_calls=1))
            await made.settled(turn.session_id)
            assert told == ["ok", "canceled"]
            assert (turn.stop_reason, turn.text, turn.usage.tool_calls) == ("budget_reached", "one is all I got", 1)

    asyncio.run(main())


def test_the_agent_is_told_once_to_finish(tmp_path: Path) -> None:
    async def main() -> None:
        notices: list[str] = []

        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            for number in range(4):
                await harness.call_model()
                notices.append((await tool(harness, number)).notice)
            await harness.report("done")

        async with rig(tmp_path, run) as made:
            turn = await made.run_turn(budget=Budget(max_model_calls=4))
            await made.settled(turn.session_id)
            assert notices == ["", "", WRAP_UP_NOTICE, ""]
            assert turn.stop_reason == "end_turn"

    asyncio.run(main())
