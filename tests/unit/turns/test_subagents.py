"""Subagents: a session and a chain of their own, the turn's budget, and an end whatever becomes of the turn."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from tests.unit.turns.rig import Rig, rig
from tests.unit.turns.test_pauses import ASK, COLD, WARM, YES, defer, paused

from turnkeeper.acs import Decision
from turnkeeper.events.envelope import Event
from turnkeeper.ids import uuid_of
from turnkeeper.sandbox.protocol import SubagentReport, SubagentTask, ToolRequest, ToolResult
from turnkeeper.testing.recording_sandbox import ScriptedHarness, ScriptedOutcome, ToolFunction
from turnkeeper.testing.scripted_guardian import ALLOW, Fault, deny
from turnkeeper.turns import payloads
from turnkeeper.turns.model import Budget, CanceledBy, Subagent, Turn, TurnStatus
from turnkeeper.turns.permissions import Permission
from turnkeeper.turns.subagents import MAX_SUBAGENTS

READER = Subagent("reader", "Reads files.", "You read.", ("shell",))
DELEGATE = ToolRequest("call-1", "reader", '{"task":"read the notes"}')
SHELL = ToolRequest("call-2", "shell", '{"command":"cat notes"}')

Loop = Callable[[ScriptedHarness, SubagentTask], Awaitable[str]]


class Delegating:
    """A harness that hands out one task and keeps what it was told; `loop` is what its subagent does."""

    def __init__(self, loop: Loop | None = None, request: ToolRequest = DELEGATE) -> None:
        self.loop = loop or reading
        self.request = request
        self.task: SubagentTask | None = None
        self.result: ToolResult | None = None

    async def __call__(self, harness: ScriptedHarness) -> None:
        await harness.begin()
        answer = await harness.ask(self.request)
        if isinstance(answer, SubagentTask):
            self.task = answer
            text = await self.loop(harness, answer)
            answer = await harness.ask(SubagentReport(answer.thread_id, "end_turn", text))
        assert isinstance(answer, ToolResult)
        self.result = answer
        await harness.report("done")


async def reading(harness: ScriptedHarness, task: SubagentTask) -> str:
    assert await harness.call_model()
    result = await harness.ask(SHELL)
    assert isinstance(result, ToolResult)
    return f"the notes say: {result.content}"


async def run(made: Rig, *, budget: Budget | None = None) -> Turn:
    made.subagents = (READER,)
    return await made.run_turn(budget=budget)


def of(events: list[Event], event_type: str) -> list[Event]:
    return [event for event in events if event.type == event_type]


def data(event: Event) -> dict[str, object]:
    return cast("dict[str, object]", orjson.loads(event.data))


def chains(made: Rig, turn: Turn) -> tuple[list[str], list[str]]:
    """The methods in the turn's own chain, and in those of its subagents."""
    own = uuid_of(turn.session_id)
    names = [(entry.session_id == own, entry.method.removeprefix("steps/")) for entry in made.guardian.entries]
    return [name for is_own, name in names if is_own], [name for is_own, name in names if not is_own]


def test_a_subagent_lives_in_a_chain_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Delegating()
        async with rig(tmp_path, agent) as made:
            turn = await run(made)
            await made.settled(turn.session_id)
            own, its = chains(made, turn)
            assert its == [
                "sessionStart",
                "agbom/snapshot",
                "turnStart",
                "userMessage",
                "toolCallRequest",
                "toolCallResult",
                "agentResponse",
                "turnEnd",
                "sessionEnd",
            ]
            assert own[5:] == [
                "toolCallRequest",
                "subagentStart",
                "subagentStop",
                "toolCallResult",
                "agentResponse",
                "turnEnd",
            ]
            assert agent.result == ToolResult("call-1", "ok", "the notes say: shell ran with ['command']")

    asyncio.run(main())


def test_what_a_subagent_does_carries_its_thread_and_what_its_agent_does_does_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Delegating()) as made:
            turn = await run(made)
            events = await made.events(turn)
            started, ended = of(events, "subagent.started")[0], of(events, "subagent.ended")[0]
            requested = of(events, "tool.requested")
            assert [event.thread_id for event in requested] == [None, started.thread_id]
            assert [data(event)["kind"] for event in requested] == ["subagent", "builtin"]
            assert data(started)["tool_call_id"] == data(requested[0])["tool_call_id"]
            assert [event.thread_id for event in of(events, "model.called")] == [started.thread_id]
            assert (ended.source, data(ended)["outcome"]) == ("sandbox", "completed")
            usage = cast("dict[str, object]", data(ended)["usage"])
            assert (usage["model_calls"], usage["tool_calls"], usage["total_tokens"]) == (1, 1, 15)
            assert turn.usage.tool_calls == 2

    asyncio.run(main())


def test_the_stop_states_the_last_head_of_the_subagents_chain(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Delegating()) as made:
            turn = await run(made)
            await made.settled(turn.session_id)
            steps = await made.store.thread_steps(turn.session_id)
            stop = next(entry for entry in made.guardian.entries if entry.method == payloads.SUBAGENT_STOP)
            assert stop.payload["final_chain_hash"] == steps[-1].chain_hash
            assert (stop.payload["outcome"], stop.payload["subagent_step_count"]) == ("completed", len(steps))
            start = next(entry for entry in made.guardian.entries if entry.method == payloads.SUBAGENT_START)
            assert start.payload["parent_session_id"] == uuid_of(turn.session_id)
            assert start.payload["subagent_session_id"] == uuid_of(steps[0].thread_id or "")

    asyncio.run(main())


def test_a_denied_start_runs_nothing_and_the_agent_hears_why(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Delegating()
        async with rig(tmp_path, agent) as made:
            made.guardian.always(payloads.SUBAGENT_START, deny("no helpers"))
            turn = await run(made)
            assert agent.task is None
            assert agent.result == ToolResult("call-1", "denied", "denied: no helpers")
            assert chains(made, turn)[1] == []
            assert of(await made.events(turn), "subagent.started") == []
            assert payloads.SUBAGENT_STOP not in made.guardian.written()

    asyncio.run(main())


def test_a_call_that_a_subagent_was_denied_did_not_run(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Delegating()
        async with rig(tmp_path, agent) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ALLOW, deny("not yours"))
            turn = await run(made)
            assert made.sandbox.calls == []
            assert agent.result is not None
            assert agent.result.content == "the notes say: denied: not yours"
            assert turn.status is TurnStatus.COMPLETED

    asyncio.run(main())


def test_an_answer_that_is_denied_in_the_subagents_chain_reaches_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Delegating()
        async with rig(tmp_path, agent) as made:
            made.guardian.next(payloads.AGENT_RESPONSE, deny("says too much"))
            turn = await run(made)
            assert agent.result == ToolResult("call-1", "denied", "denied: says too much")
            events = await made.events(turn)
            assert data(of(events, "subagent.ended")[0])["outcome"] == "failed"
            assert [event.thread_id for event in of(events, "message.completed")] == [None]

    asyncio.run(main())


def test_a_subagent_cannot_wait_for_an_answer(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Delegating()
        async with rig(tmp_path, agent) as made:
            made.permissions = cast("dict[str, Permission]", {"shell": "ask"})
            turn = await run(made)
            assert made.sandbox.calls == []
            assert agent.result is not None
            assert "cannot wait" in agent.result.content
            assert of(await made.events(turn), "approval.requested") == []

    asyncio.run(main())


@pytest.mark.parametrize("word", [ASK, defer()], ids=["ask", "defer"])
def test_what_the_guardian_would_have_wait_is_denied_in_a_subagent(tmp_path: Path, word: Decision) -> None:
    async def main() -> None:
        agent = Delegating()
        async with rig(tmp_path, agent) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ALLOW, word)
            turn = await run(made)
            assert made.sandbox.calls == []
            assert agent.result is not None
            assert "cannot wait" in agent.result.content
            types = await made.types(turn)
            assert not {"turn.paused", "turn.deferred", "approval.requested"} & set(types)

    asyncio.run(main())


@pytest.mark.parametrize("settings", [WARM, COLD], ids=["warm", "cold"])
def test_a_task_that_a_person_is_asked_about_is_handed_out_after_a_yes(tmp_path: Path, settings: Any) -> None:
    async def main() -> None:
        agent = Delegating()
        async with rig(tmp_path, agent, settings=settings) as made:
            made.subagents = (READER,)
            made.permissions = cast("dict[str, Permission]", {"reader": "ask"})
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=settings is COLD)
            assert payloads.SUBAGENT_START not in made.guardian.written()
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert agent.result == ToolResult("call-1", "ok", "the notes say: shell ran with ['command']")
            own, its = chains(made, turn)
            assert (own.count("subagentStart"), own.count("subagentStop"), its[-1]) == (1, 1, "sessionEnd")

    asyncio.run(main())


def test_a_subagent_has_no_tool_that_it_was_not_given_and_no_subagent(tmp_path: Path) -> None:
    async def greedy(harness: ScriptedHarness, task: SubagentTask) -> str:
        told = [await harness.ask(ToolRequest("c", name, "{}")) for name in ("write_file", "reader", "submit_result")]
        return " / ".join(result.content for result in told if isinstance(result, ToolResult))

    async def main() -> None:
        agent = Delegating(greedy)
        async with rig(tmp_path, agent) as made:
            made.tools = ("shell", "write_file")
            await run(made)
            assert agent.task is not None
            assert [spec.name for spec in agent.task.tools] == ["shell"]
            told = "unknown tool: write_file / unknown tool: reader / unknown tool: submit_result"
            assert agent.result is not None
            assert agent.result.content == told

    asyncio.run(main())


def test_subagents_draw_on_the_turns_budget(tmp_path: Path) -> None:
    async def eager(harness: ScriptedHarness, task: SubagentTask) -> str:
        assert await harness.call_model()
        assert not await harness.call_model()
        return "as far as I came"

    async def main() -> None:
        agent = Delegating(eager)
        async with rig(tmp_path, agent) as made:
            turn = await run(made, budget=Budget(max_model_calls=1))
            assert turn.stop_reason == "budget_reached"
            ended = of(await made.events(turn), "subagent.ended")
            assert data(ended[0])["outcome"] == "budget_reached"

    asyncio.run(main())


def test_a_cancel_ends_the_subagent_before_its_parent_in_both_chains(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Delegating(hanging)) as made:
            made.subagents = (READER,)
            held = asyncio.Event()
            made.sandbox.tool = holding(held)
            turn_id = await made.post(await made.session())
            async with asyncio.timeout(60):
                await held.wait()
            await made.store.cancel_turn(turn_id, mode="graceful", by=CanceledBy("user", None))
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            closings = [
                (event.type, event.thread_id is None)
                for event in await made.events(turn)
                if event.type in {"tool.completed", "subagent.ended", "turn.canceled"}
            ]
            assert closings == [
                ("tool.completed", False),
                ("subagent.ended", False),
                ("tool.completed", True),
                ("turn.canceled", True),
            ]
            own, its = chains(made, turn)
            assert own[-2:] == ["subagentStop", "turnEnd"]
            assert its[-2:] == ["turnEnd", "sessionEnd"]

    asyncio.run(main())


def test_a_crash_closes_the_subagent_in_the_platforms_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Delegating(hanging)) as made:
            made.subagents = (READER,)
            turn_id = await made.post(await made.session())
            held = asyncio.Event()
            made.sandbox.tool = holding(held)
            async with asyncio.timeout(60):
                await held.wait()
            await made.stop()
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            ended = of(await made.events(turn), "subagent.ended")
            assert [(event.source, data(event)["outcome"]) for event in ended] == [("platform", "failed")]
            calls = of(await made.events(turn), "tool.completed")
            assert [(data(call)["status"], call.thread_id is None) for call in calls] == [
                ("unknown", False),
                ("unknown", True),
            ]
            own, its = chains(made, turn)
            assert (own.count("subagentStart"), own.count("subagentStop")) == (1, 1)
            assert its[-2:] == ["turnEnd", "sessionEnd"]

    asyncio.run(main())


def test_a_start_whose_answer_was_lost_with_the_worker_has_its_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Delegating()) as made:
            made.subagents = (READER,)
            made.guardian.fail(payloads.SUBAGENT_START, *[Fault.LOSE_ANSWER] * 50)
            turn = await made.ended(await made.post(await made.session()))
            made.guardian.heal()
            await made.settled(turn.session_id)
            own, its = chains(made, turn)
            assert its == []
            assert (own.count("subagentStart"), own.count("subagentStop")) == (1, 1)

    asyncio.run(main())


def test_the_next_turn_does_not_remember_what_a_subagent_did_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Delegating()) as made:
            turn = await run(made)
            remembered = await made.store.history(turn.session_id, without=None, limit=100)
            assert {event.thread_id for event in remembered} == {None}
            assert [data(event)["name"] for event in remembered if event.type == "tool.requested"] == ["reader"]

    asyncio.run(main())


def test_a_turn_hands_out_a_bounded_number_of_tasks(tmp_path: Path) -> None:
    async def many(harness: ScriptedHarness) -> None:
        await harness.begin()
        for number in range(MAX_SUBAGENTS + 1):
            answer = await harness.ask(ToolRequest(f"c{number}", "reader", '{"task":"again"}'))
            if isinstance(answer, SubagentTask):
                answer = await harness.ask(SubagentReport(answer.thread_id, "end_turn", "ok"))
            told.append(cast("ToolResult", answer).status)
        await harness.report("done")

    told: list[str] = []

    async def main() -> None:
        async with rig(tmp_path, many) as made:
            await run(made)
            assert told == ["ok"] * MAX_SUBAGENTS + ["error"]

    asyncio.run(main())


def test_a_report_of_another_thread_breaks_the_protocol(tmp_path: Path) -> None:
    async def lying(harness: ScriptedHarness, task: SubagentTask) -> str:
        harness.send(SubagentReport("thr_00000000000000000000000000", "end_turn", "not mine"))
        return ""

    async def main() -> None:
        async with rig(tmp_path, Delegating(lying)) as made:
            turn = await run(made)
            assert turn.error is not None
            assert turn.error.code == "harness_protocol_error"
            assert data(of(await made.events(turn), "subagent.ended")[0])["outcome"] == "failed"

    asyncio.run(main())


async def hanging(harness: ScriptedHarness, task: SubagentTask) -> str:
    harness.send(SHELL)
    await asyncio.Event().wait()
    return ""


def holding(held: asyncio.Event) -> ToolFunction:
    """A tool that never ends, and says when it runs."""

    async def run_for_ever(tool: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
        held.set()
        await asyncio.Event().wait()
        return ScriptedOutcome()

    return run_for_ever
