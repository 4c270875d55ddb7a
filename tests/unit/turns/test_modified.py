"""What a Guardian changes is what happens: nothing goes on as it was sent after a MODIFY."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.turns.dispositions import modify, redact
from tests.unit.turns.rig import SETTINGS, Rig, rig, script

from turnkeeper.acs import Decision
from turnkeeper.sandbox.protocol import Submit, ToolRequest, ToolResult
from turnkeeper.testing.recording_sandbox import HarnessScript, ScriptedHarness
from turnkeeper.turns import payloads
from turnkeeper.turns.front import Front
from turnkeeper.turns.model import Turn
from turnkeeper.turns.tool_step import MAX_ARGUMENTS

SCHEMA = '{"type":"object","required":["n"]}'
BIG = 12345678901234567890


async def data_of(made: Rig, turn: Turn, event_type: str) -> list[dict[str, Any]]:
    return [orjson.loads(event.data) for event in await made.events(turn) if event.type == event_type]


def calling(told: list[ToolResult], arguments: str = '{"command":"rm"}', name: str = "shell") -> HarnessScript:
    """A harness that makes one call and keeps what it was told."""

    async def run(harness: ScriptedHarness) -> None:
        result = await harness.ask(ToolRequest("c1", name, arguments))
        assert isinstance(result, ToolResult)
        told.append(result)
        await harness.report("done")

    return script(run)


def submitting(value: str, text: str = "done") -> HarnessScript:
    """A harness that submits a value and reports it."""

    async def run(harness: ScriptedHarness) -> None:
        await harness.ask(Submit(value))
        await harness.report(text, result=value)

    return script(run)


def test_a_tool_runs_with_the_arguments_that_the_guardian_made_of_them(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[ToolResult] = []
        async with rig(tmp_path, calling(told, f'{{"command":"rm","big":{BIG}}}')) as made:
            made.guardian.always(payloads.TOOL_CALL_REQUEST, modify(parameter_overrides={"command": "ls"}))
            turn = await made.run_turn()
            assert made.sandbox.calls == [("shell", {"command": "ls", "big": BIG})]
            (decided,) = await data_of(made, turn, "tool.decided")
            assert (decided["decision"], decided["modified_input"]) == ("modify", {"command": "ls", "big": BIG})
            (requested,) = await data_of(made, turn, "tool.requested")
            assert requested["input"]["command"] == "rm"
            assert (turn.status, turn.usage.tool_calls) == ("completed", 1)

    asyncio.run(main())


@pytest.mark.parametrize(
    "decision",
    [
        modify(parameter_overrides={"other": "x"}),
        redact("/tool/name"),
        modify(modified_content="x"),
        modify(parameter_overrides={"command": "ls"}, redactions=[{"path": "/arguments/command/value"}]),
    ],
)
def test_a_call_whose_change_cannot_be_made_does_not_run(tmp_path: Path, decision: Decision) -> None:
    async def main() -> None:
        told: list[ToolResult] = []
        async with rig(tmp_path, calling(told)) as made:
            made.guardian.always(payloads.TOOL_CALL_REQUEST, decision)
            turn = await made.run_turn()
            assert (told[0].status, made.sandbox.calls) == ("denied", [])
            (decided,) = await data_of(made, turn, "tool.decided")
            assert (decided["decision"], decided["modified_input"]) == ("deny", None)

    asyncio.run(main())


def test_an_agent_reads_the_output_that_the_guardian_let_through(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[ToolResult] = []
        async with rig(tmp_path, calling(told)) as made:
            made.guardian.always(payloads.TOOL_CALL_RESULT, redact("/outputs/0/value"))
            turn = await made.run_turn()
            assert told == [ToolResult("c1", "ok", "[REDACTED]")]
            (completed,) = await data_of(made, turn, "tool.completed")
            assert (completed["output"], completed["modified"], completed["status"]) == ("[REDACTED]", True, "ok")

    asyncio.run(main())


def test_a_changed_output_is_cut_where_any_other_is(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[ToolResult] = []
        async with rig(tmp_path, calling(told)) as made:
            longer = "x" * (SETTINGS.tool_output_bytes + 1)
            made.guardian.always(payloads.TOOL_CALL_RESULT, modify(modified_content=longer))
            turn = await made.run_turn()
            assert told[0].content == longer[:-1]
            assert (await data_of(made, turn, "tool.completed"))[0]["truncated"] is True

    asyncio.run(main())


def test_an_agent_and_everybody_later_sees_the_input_that_was_let_through(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[tuple[str, list[str]]] = []

        async def reads(harness: ScriptedHarness) -> None:
            start = await harness.begin()
            seen.append((start.input, [item.text for item in start.history]))
            await harness.report("done")

        async with rig(tmp_path, reads) as made:
            made.guardian.next(payloads.USER_MESSAGE, modify(modified_content="as changed"))
            session = await made.session()
            first = await made.ended(await made.post(session, "my secret"))
            await made.ended(await made.post(session, "second"))
            assert seen == [("as changed", []), ("second", ["as changed", "done"])]
            (received,) = await data_of(made, first, "message.received")
            assert received["parts"] == [{"type": "text", "text": "as changed"}]

    asyncio.run(main())


def test_the_answer_that_leaves_is_the_one_that_the_guardian_made_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, submitting('{"n":1}', "my secret")) as made:
            redactions = [
                {"path": "/content/0/value", "replacement": "no secret"},
                {"path": "/content/1/value", "replacement": '{"n": 2}'},
            ]
            made.guardian.always(payloads.AGENT_RESPONSE, modify(redactions=redactions))
            turn = await made.run_turn(schema=SCHEMA)
            assert (turn.text, turn.result_json, turn.result_error) == ("no secret", '{"n":2}', None)
            assert [data["text"] for data in await data_of(made, turn, "message.completed")] == ["no secret"]
            assert [submission.published for submission in await made.store.submissions(turn.id)] == [False]

    asyncio.run(main())


@pytest.mark.parametrize(
    "decision",
    [
        modify(redactions=[{"path": "/content/1/value", "replacement": '{"m":2}'}]),
        redact("/content/1/value"),
        modify(modified_content="nothing to see"),
    ],
)
def test_a_result_that_is_no_longer_valid_is_not_given(tmp_path: Path, decision: Decision) -> None:
    async def main() -> None:
        async with rig(tmp_path, submitting('{"n":1}')) as made:
            made.guardian.always(payloads.AGENT_RESPONSE, decision)
            turn = await made.run_turn(schema=SCHEMA)
            assert (turn.status, turn.result_json, turn.result_error) == ("completed", None, "invalid")

    asyncio.run(main())


def test_an_answer_whose_change_cannot_be_made_is_withheld(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, submitting('{"n":1}', "my secret")) as made:
            made.guardian.always(payloads.AGENT_RESPONSE, redact("/content/1/name"))
            turn = await made.run_turn(schema=SCHEMA, repairs=0)
            assert (turn.stop_reason, turn.text, turn.result_json) == ("denied_output", "", None)
            assert turn.error is not None
            assert "modify_unsupported" in turn.error.message

    asyncio.run(main())


@pytest.mark.parametrize("crash", ["at the front", "while it starts"])
def test_an_input_that_was_changed_before_a_crash_stays_changed_after_it(tmp_path: Path, crash: str) -> None:
    async def main() -> None:
        seen: list[str] = []
        begun = asyncio.Event()

        async def never_begins(_: ScriptedHarness) -> None:
            begun.set()
            await asyncio.Event().wait()

        async def reads(harness: ScriptedHarness) -> None:
            seen.append((await harness.begin()).input)
            await harness.report("done")

        scripts = (reads,) if crash == "at the front" else (never_begins, reads)
        async with rig(tmp_path, *scripts, start=False) as made:
            made.guardian.next(payloads.USER_MESSAGE, modify(modified_content="as changed"))
            turn_id = await made.post(await made.session(), "my secret")
            if crash == "at the front":
                await _walk_and_vanish(made)
            else:
                made.work()
                await begun.wait()
                await made.stop()
            made.again()
            made.work()
            assert (await made.ended(turn_id)).status == "completed"
            assert (seen, made.guardian.written().count(payloads.USER_MESSAGE)) == (["as changed"], 1)

    asyncio.run(main())


def test_a_call_of_too_many_arguments_is_answered_here(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[ToolResult] = []
        arguments: Sequence[str] = [f'"a{number}":1' for number in range(MAX_ARGUMENTS + 1)]
        async with rig(tmp_path, calling(told, f"{{{','.join(arguments)}}}")) as made:
            await made.run_turn()
            assert told[0].status == "error"
            assert payloads.TOOL_CALL_REQUEST not in made.guardian.written()

    asyncio.run(main())


async def _walk_and_vanish(made: Rig) -> None:
    """A worker that got to the end of the front and was never heard of again."""
    claim = await made.store.claim("gone", slot=True)
    assert claim is not None
    front = Front(made.store, made.bench.governor, made.bench.ids, clock=made.bench.clock, sandbox_kind="none")
    assert await front.walk(claim) is None
