"""Turns that wait for a person or for the app (contract 6, rows 15, 16 and 23 to 27), on a worker and a store."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from tests.unit.turns.dispositions import modify
from tests.unit.turns.rig import BY_USER, DEADLINE_S, SETTINGS, Rig, rig

from turnkeeper.acs import Decision, Disposition
from turnkeeper.sandbox.protocol import Start, ToolRequest, ToolResult
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.testing.scripted_guardian import ALLOW, deny
from turnkeeper.turns import payloads
from turnkeeper.turns.approvals import Approval, ApprovalAnswer, DecidedBy
from turnkeeper.turns.model import ClientTool, Turn
from turnkeeper.turns.pausing import ToolAnswer
from turnkeeper.turns.ports import PageRequest

ANA = DecidedBy("user", "ana")
YES = ApprovalAnswer("approve", ANA)
NO = ApprovalAnswer("deny", ANA, note="not on a Friday")
WARM = replace(SETTINGS, pause_warm_ms=15_000)
COLD = replace(SETTINGS, pause_warm_ms=0)
ASK = Decision(
    Disposition.ASK,
    "a person decides",
    ask_details={"approver": {"type": "human", "id": ""}, "question": "May it?", "timeout_seconds": 600},
)


def defer(**changes: Any) -> Decision:
    details = {
        "reason": "pending_dependency",
        "resolution_method": "human_approval",
        "resolution_timeout_ms": 600_000,
        "timeout_decision": "deny",
    }
    return Decision(Disposition.DEFER, "later", defer_details={**details, **changes})


class Calls:
    """A harness that makes one call, or the one that its turn was paused for, and keeps what it was told."""

    def __init__(self, request: ToolRequest | None = None) -> None:
        self.request = request or ToolRequest("call-1", "shell", '{"command":"ls"}')
        self.starts: list[Start] = []
        self.results: list[ToolResult] = []

    async def __call__(self, harness: ScriptedHarness) -> None:
        start = await harness.begin()
        self.starts.append(start)
        request = self.request
        if start.pending is not None:
            request = ToolRequest("again", start.pending.name, start.pending.arguments)
        else:
            await harness.call_model()
        result = await harness.ask(request)
        assert isinstance(result, ToolResult)
        self.results.append(result)
        await harness.report("done")


async def two_calls(harness: ScriptedHarness) -> None:
    """A harness whose first call works in the workspace, and whose second one is to wait."""
    await harness.begin()
    for number in range(2):
        await harness.ask(ToolRequest(f"call-{number}", "shell", f'{{"command":"ls {number}"}}'))
    await harness.report("done")


async def paused(made: Rig, turn_id: str, *, parked: bool, kind: str | None = None) -> Approval:
    """The question that the turn waits for, once its worker has let go of it if it is to be `parked`."""
    session_id = (await made.store.turn(turn_id)).session_id
    async with asyncio.timeout(DEADLINE_S):
        with made.wakeups.watch(session_id) as watch:
            while not (found := await _pending(made, session_id, kind)):
                await watch.wait(timeout_ms=200)
    if parked:
        await made.freed(turn_id)
    return found[0]


async def _pending(made: Rig, session_id: str, kind: str | None) -> list[Approval]:
    page = await made.store.approvals(PageRequest(), status="pending", session_id=session_id)
    return [approval for approval in page.items if kind in {None, approval.kind}]


async def data(made: Rig, turn: Turn, *types: str) -> list[dict[str, Any]]:
    return [orjson.loads(event.data) for event in await made.events(turn) if event.type in types]


def windows(made: Rig, turn_id: str) -> list[tuple[str, object]]:
    """The turn's turnStarts and turnEnds with what they say."""
    told = {payloads.TURN_START: "triggered_by", payloads.TURN_END: "outcome"}
    entries = [entry for entry in made.guardian.entries if entry.turn_id == turn_id and entry.method in told]
    return [(entry.method, entry.payload[told[entry.method]]) for entry in entries]


@pytest.mark.parametrize("settings", [WARM, COLD], ids=["row 23", "row 24"])
def test_an_asked_call_runs_once_after_a_yes(tmp_path: Path, settings: Any) -> None:
    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=settings) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=settings is COLD)
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            assert (turn.status, turn.attempt, len(made.sandbox.calls)) == ("completed", 1, 1)
            assert [result.status for result in calls.results] == ["ok"]
            again = [entry for entry in made.guardian.entries if entry.method == payloads.TOOL_CALL_REQUEST]
            assert again[1].payload == {**again[0].payload, "request_id_ref": again[0].request_id}
            await made.settled(turn.session_id)
            assert windows(made, turn_id) == [
                (payloads.TURN_START, "user_message"),
                (payloads.TURN_END, "completed"),
            ]
            resumed = await data(made, turn, "turn.resumed")
            assert [one["status"] for one in resumed] == ["running" if settings is WARM else "starting"]

    asyncio.run(main())


class TwoCalls(Calls):
    """The same call twice: the second is made while there is a box already."""

    async def __call__(self, harness: ScriptedHarness) -> None:
        start = await harness.begin()
        if start.pending is None:
            await harness.call_model()
            await harness.ask(self.request)
        result = await harness.ask(ToolRequest("call-2", "shell", self.request.arguments))
        assert isinstance(result, ToolResult)
        self.results.append(result)
        await harness.report("done")


@pytest.mark.parametrize(("settings", "then"), [(WARM, "sandbox.resumed"), (COLD, "sandbox.released")])
def test_a_tool_box_stands_still_while_its_turn_waits(tmp_path: Path, settings: Any, then: str) -> None:
    """And runs the call, or is gone where nobody answers for long."""

    async def main() -> None:
        calls = TwoCalls()
        async with rig(tmp_path, calls, settings=settings) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ALLOW, ASK)
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=settings is COLD)
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            assert (turn.status, [result.status for result in calls.results]) == ("completed", ["ok"])
            types = await made.types(turn)
            assert types.index("turn.paused") < types.index("sandbox.suspended") < types.index(then)
            assert types.count("sandbox.suspended") == 1

    asyncio.run(main())


@pytest.mark.parametrize("settings", [WARM, COLD], ids=["row 23", "row 24"])
def test_a_deferred_call_goes_on_in_a_window_of_its_own(tmp_path: Path, settings: Any) -> None:
    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=settings) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, defer())
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=settings is COLD)
            assert asked.kind == "deferral"
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert windows(made, turn_id) == [
                (payloads.TURN_START, "user_message"),
                (payloads.TURN_END, "deferred"),
                (payloads.TURN_START, "auto_continuation"),
                (payloads.TURN_END, "completed"),
            ]
            assert (len(made.sandbox.calls), turn.status) == (1, "completed")
            assert (await made.types(turn)).count("turn.completed") == 1
            ends = [entry.payload for entry in made.guardian.entries if entry.method == payloads.TURN_END]
            # The first window has userMessage and the deferred call; the second the call again, its result, the answer.
            assert [(end["step_count"], end["tool_call_count"]) for end in ends] == [(2, 1), (3, 1)]

    asyncio.run(main())


def test_a_turn_goes_on_after_everything_was_restarted(tmp_path: Path) -> None:
    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, defer())
            turn_id = await made.post(await made.session(), "count the lines")
            asked = await paused(made, turn_id, parked=True)
            await made.stop()
            await made.store.decide_approval(asked.id, YES)
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            assert (turn.status, len(made.sandbox.calls)) == ("completed", 1)
            again = calls.starts[1]
            assert again.pending is not None
            assert (again.pending.arguments, [item.text for item in again.history]) == (
                '{"command":"ls"}',
                ["count the lines"],
            )
            assert turn.usage.by_model[0].model_calls == 1

    asyncio.run(main())


@pytest.mark.parametrize("answer", [ASK, defer()], ids=["asked", "deferred"])
def test_a_turn_whose_workspace_is_gone_does_not_go_on_in_an_empty_one(tmp_path: Path, answer: Decision) -> None:
    """Row 24a."""

    async def main() -> None:
        async with rig(tmp_path, two_calls, settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ALLOW, answer)
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            shutil.rmtree(made.bench.workspaces / asked.session_id)
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert turn.error is not None
            assert (turn.status, turn.stop_reason, turn.error.code) == ("failed", "sandbox_lost", "workspace_lost")
            assert len(made.sandbox.calls) == 1
            ends = [outcome for method, outcome in windows(made, turn_id) if method == payloads.TURN_END]
            assert ends == (["error"] if answer is ASK else ["deferred"])

    asyncio.run(main())


def test_a_worker_that_dies_while_it_holds_a_waiting_turn_takes_nothing_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=WARM) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=False)
            await made.stop()
            made.again()
            made.work()
            await made.freed(turn_id)
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            assert (turn.status, len(made.sandbox.calls)) == ("completed", 1)

    asyncio.run(main())


def test_a_no_is_told_to_the_agent_and_nothing_is_sent_again(tmp_path: Path) -> None:
    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, defer())
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            await made.store.decide_approval(asked.id, NO)
            turn = await made.ended(turn_id)
            assert calls.results == [ToolResult("again", "denied", "denied: not on a Friday")]
            assert (turn.status, made.sandbox.calls) == ("completed", [])
            assert made.guardian.written(turn_id).count(payloads.TOOL_CALL_REQUEST) == 1
            decided = await data(made, turn, "tool.decided")
            assert [(one["decision"], one["decided_by"]) for one in decided] == [
                ("defer", "guardian"),
                ("deny", "approval"),
            ]

    asyncio.run(main())


def test_a_question_that_nobody_answers_denies_its_step(tmp_path: Path) -> None:
    """Row 25."""

    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, defer(resolution_timeout_ms=1))
            turn = await made.run_turn()
            assert calls.results[0].content == "denied: nobody answered in time"
            assert (turn.status, made.sandbox.calls) == ("completed", [])
            assert [one["cause"] for one in await data(made, turn, "turn.resumed")] == ["expiry"]
            assert [one["outcome"] for one in await data(made, turn, "approval.resolved")] == ["expired"]

    asyncio.run(main())


def test_a_deferral_that_is_to_be_asked_about_becomes_a_question(tmp_path: Path) -> None:
    """Row 25a."""

    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, defer(resolution_timeout_ms=1, timeout_decision="ask"))
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True, kind="ask")
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            assert (turn.status, len(made.sandbox.calls)) == ("completed", 1)
            assert [one["reason"] for one in await data(made, turn, "turn.paused")] == ["approval"]

    asyncio.run(main())


@pytest.mark.parametrize("answer", [ASK, defer()], ids=["asked", "deferred"])
@pytest.mark.parametrize("settings", [WARM, COLD], ids=["held", "parked"])
def test_a_turn_can_be_canceled_while_it_waits(tmp_path: Path, settings: Any, answer: Decision) -> None:
    """Row 27."""

    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=settings) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, answer)
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=settings is COLD)
            await made.store.cancel_turn(turn_id, mode="graceful", by=BY_USER)
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert (turn.status, made.sandbox.calls) == ("canceled", [])
            assert (await made.store.approval(asked.id)).status == "canceled"
            ends = [outcome for method, outcome in windows(made, turn_id) if method == payloads.TURN_END]
            assert ends == (["interrupted"] if answer is ASK else ["deferred"])
            assert [one["status"] for one in await data(made, turn, "tool.completed")] == ["canceled"]
            assert made.sandbox.left_behind == []

    asyncio.run(main())


@pytest.mark.parametrize("settings", [WARM, COLD], ids=["held", "parked"])
def test_a_denied_continuation_ends_the_turn(tmp_path: Path, settings: Any) -> None:
    """Row 23a."""

    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=settings) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, defer())
            made.guardian.next(payloads.TURN_START, ALLOW, deny("not any more"))
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=settings is COLD)
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            await made.settled(turn.session_id)
            assert (turn.status, turn.stop_reason, made.sandbox.calls) == ("failed", "denied_at_start", [])
            ends = [outcome for method, outcome in windows(made, turn_id) if method == payloads.TURN_END]
            assert ends == ["deferred", "denied_at_start"]

    asyncio.run(main())


def test_a_guardian_that_is_down_when_a_turn_would_go_on_fails_it_and_its_windows_balance(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, defer())
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            await made.settled((await made.store.turn(turn_id)).session_id)
            made.guardian.down = True
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            made.guardian.heal()
            await made.settled(turn.session_id)
            assert (turn.status, turn.stop_reason) == ("failed", "guardian_unavailable")
            opened = [method for method, _ in windows(made, turn_id)]
            assert opened.count(payloads.TURN_START) == opened.count(payloads.TURN_END)

    asyncio.run(main())


def test_deferrals_are_bounded_whatever_the_guardian_says(tmp_path: Path) -> None:
    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=WARM) as made:
            made.guardian.always(payloads.TOOL_CALL_REQUEST, defer())
            turn_id = await made.post(await made.session())
            for _ in range(8):
                asked = await paused(made, turn_id, parked=False)
                await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            assert [result.status for result in calls.results] == ["denied"]
            assert len(await data(made, turn, "turn.deferred")) == 8

    asyncio.run(main())


def test_time_that_a_turn_waits_is_not_counted(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            before = await made.store.turn(turn_id)
            await made.bench.waiter.sleep(300)
            assert (await made.store.turn(turn_id)).usage.sandbox_ms == before.usage.sandbox_ms == before.active_ms
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            resumed = (await data(made, turn, "turn.resumed"))[0]
            assert turn.started_at is not None
            assert turn.ended_at is not None
            assert turn.duration_ms is not None
            whole_ms = (turn.ended_at - turn.started_at).total_seconds() * 1_000
            assert turn.duration_ms <= whole_ms - int(resumed["paused_ms"]) + 5
            assert turn.usage.sandbox_ms == turn.duration_ms

    asyncio.run(main())


def test_the_agents_permissions_ask_before_the_guardian_does(tmp_path: Path) -> None:
    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls, settings=COLD) as made:
            made.permissions = {"*": "ask"}
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            assert (asked.kind, asked.origin) == ("policy", "agent_policy")
            assert payloads.TOOL_CALL_REQUEST not in made.guardian.written(turn_id)
            await made.store.decide_approval(asked.id, YES)
            turn = await made.ended(turn_id)
            assert (turn.status, len(made.sandbox.calls)) == ("completed", 1)
            assert made.guardian.written(turn_id).count(payloads.TOOL_CALL_REQUEST) == 1

    asyncio.run(main())


def test_a_forbidden_tool_never_leaves_the_agent(tmp_path: Path) -> None:
    async def main() -> None:
        calls = Calls()
        async with rig(tmp_path, calls) as made:
            made.permissions = {"shell": "deny", "*": "allow"}
            turn = await made.run_turn()
            assert calls.results[0].content == "denied: the agent's permissions forbid shell"
            assert payloads.TOOL_CALL_REQUEST not in made.guardian.written(turn.id)
            assert [one["decided_by"] for one in await data(made, turn, "tool.decided")] == ["agent_policy"]

    asyncio.run(main())


def test_a_remembered_yes_is_not_asked_for_again_until_it_is_taken_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=COLD) as made:
            made.permissions = {"shell": "ask"}
            session = await made.session()
            first = await made.post(session)
            asked = await paused(made, first, parked=True)
            await made.store.decide_approval(asked.id, replace(YES, remember="session"))
            await made.ended(first)
            second = await made.run_turn(session)
            assert [one["decided_by"] for one in await data(made, second, "tool.decided")] == ["rule", "guardian"]
            await made.store.remove_approval_rule(session.id, asked.id)
            third = await made.post(session)
            assert (await paused(made, third, parked=True)).turn_id == third

    asyncio.run(main())


def test_other_arguments_are_another_step(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, Calls(), settings=COLD) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, ASK)
            turn_id = await made.post(await made.session())
            asked = await paused(made, turn_id, parked=True)
            await made.store.decide_approval(asked.id, replace(YES, modified_input_json='{"command":"ls -l"}'))
            turn = await made.ended(turn_id)
            assert [arguments for _, arguments in made.sandbox.calls] == [{"command": "ls -l"}]
            again = [entry for entry in made.guardian.entries if entry.method == payloads.TOOL_CALL_REQUEST][1]
            assert "request_id_ref" not in again.payload
            modified = [one for one in await data(made, turn, "tool.decided") if one["decision"] == "modify"]
            assert [one["modified_input"] for one in modified] == [{"command": "ls -l"}]

    asyncio.run(main())


@pytest.mark.parametrize("settings", [WARM, COLD], ids=["held", "parked"])
def test_a_tool_that_the_app_runs_waits_for_the_app(tmp_path: Path, settings: Any) -> None:
    async def main() -> None:
        calls = Calls(ToolRequest("c", "get_weather", '{"city":"Ulm"}'))
        async with rig(tmp_path, calls, settings=settings) as made:
            made.client_tools = (ClientTool("get_weather", "The weather.", {"type": "object"}),)
            turn_id = await made.post(await made.session())
            await made.until(turn_id, lambda turn: turn.status == "paused")
            waiting = await made.store.open_pause(turn_id)
            assert waiting is not None
            assert waiting.reason == "client_tool"
            if settings is COLD:
                await made.freed(turn_id)
            await made.store.answer_tool(turn_id, waiting.call.tool_call_id, ToolAnswer("rain", None))
            turn = await made.ended(turn_id)
            assert [(result.status, result.content) for result in calls.results] == [("ok", "rain")]
            assert (turn.status, turn.usage.tool_calls, made.sandbox.calls) == ("completed", 1, [])
            assert "get_weather" in [tool.name for tool in calls.starts[0].tools]
            told = [entry for entry in made.guardian.entries if entry.method == payloads.TOOL_CALL_RESULT]
            assert cast("list[dict[str, object]]", told[0].payload["outputs"])[0]["value"] == "rain"

    asyncio.run(main())


def test_an_app_that_does_not_answer_fails_its_turn(tmp_path: Path) -> None:
    """Row 26."""

    async def main() -> None:
        calls = Calls(ToolRequest("c", "get_weather", "{}"))
        async with rig(tmp_path, calls, settings=replace(COLD, pause_expiry_ms=1)) as made:
            made.client_tools = (ClientTool("get_weather", "The weather.", {"type": "object"}),)
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            assert (turn.status, turn.stop_reason) == ("failed", "pause_expired")
            assert [outcome for _, outcome in windows(made, turn.id)][-1] == "error"
            assert [one["status"] for one in await data(made, turn, "tool.completed")] == ["timeout"]

    asyncio.run(main())


def test_an_app_is_asked_for_what_the_guardian_made_of_the_call(tmp_path: Path) -> None:
    async def main() -> None:
        calls = Calls(ToolRequest("c", "get_weather", '{"city":"Ulm"}'))
        async with rig(tmp_path, calls, settings=WARM) as made:
            made.client_tools = (ClientTool("get_weather", "The weather.", {"type": "object"}),)
            made.guardian.next(payloads.TOOL_CALL_REQUEST, modify(parameter_overrides={"city": "Bonn"}))
            turn_id = await made.post(await made.session())
            await made.until(turn_id, lambda turn: turn.status == "paused")
            waiting = await made.store.open_pause(turn_id)
            assert waiting is not None
            assert waiting.call.input_json == '{"city":"Bonn"}'
            await made.store.answer_tool(turn_id, waiting.call.tool_call_id, ToolAnswer("rain", None))
            assert (await made.ended(turn_id)).status == "completed"

    asyncio.run(main())
