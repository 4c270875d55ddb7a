"""A running turn: reports, repairs, and harnesses that lie, flood, fall silent or vanish."""

import asyncio
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from tests.unit.turns.rig import IMPATIENT, SETTINGS, Rig, answer, rig, script

from turnkeeper.acs import AcsErrorCode, RequestEnvelope
from turnkeeper.sandbox.protocol import (
    Canceled,
    FromHarness,
    HarnessProtocolError,
    Ready,
    Report,
    ResponseDenied,
    Started,
    Submit,
    ToolRequest,
)
from turnkeeper.testing.recording_sandbox import ScriptedFailure, ScriptedHarness
from turnkeeper.testing.scripted_guardian import Decision, SignedError, deny
from turnkeeper.turns import payloads
from turnkeeper.turns.model import AgentLimits, Budget, Turn

SCHEMA = '{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}},"additionalProperties":false}'


def outcome(made: Rig) -> object:
    ends = [entry.payload["outcome"] for entry in made.guardian.entries if entry.method == payloads.TURN_END]
    assert len(ends) == 1
    return ends[0]


async def ended(made: Rig, *, schema: str | None = None, budget: Budget | None = None, repairs: int = 3) -> Turn:
    turn = await made.run_turn(schema=schema, budget=budget, repairs=repairs)
    await made.settled(turn.session_id)
    assert made.sandbox.left_behind == []
    return turn


async def submitting(harness: ScriptedHarness, *values: str) -> None:
    await harness.begin()
    await harness.call_model()
    for value in values:
        await harness.ask(Submit(value))


def test_the_agents_last_valid_value_is_the_result_token_for_token(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await submitting(harness, '{"n": 1}', '{ "n" :\n 2 }', '{"n":"no"}')
            await harness.report("two", result='{"n":2}')

        async with rig(tmp_path, run) as made:
            turn = await ended(made, schema=SCHEMA)
            assert (turn.stop_reason, turn.result_json, turn.result_error) == ("end_turn", '{"n":2}', None)
            assert b'"result":{"n":2}' in (turn.terminal_data or "").encode()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("values", "error"), [((), "not_submitted"), (('{"n":"no"}',), "invalid"), (("{",), "invalid")]
)
def test_without_a_valid_value_the_workers_own_count_says_why(
    tmp_path: Path, values: tuple[str, ...], error: str
) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await submitting(harness, *values)
            lie = "invalid" if error == "not_submitted" else "not_submitted"
            await harness.ask(Report("completed", "end_turn", "no value", None, lie, {}, 0))

        async with rig(tmp_path, run) as made:
            turn = await ended(made, schema=SCHEMA)
            assert (turn.status, turn.result_json, turn.result_error) == ("completed", None, error)
            assert "report.normalized" in await made.types(turn)

    asyncio.run(main())


def test_a_reported_value_that_is_not_valid_is_no_result(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            await harness.report("here", result='{"n":"no"}')

        async with rig(tmp_path, run) as made:
            assert (await ended(made, schema=SCHEMA)).result_error == "invalid"

    asyncio.run(main())


def test_a_budget_that_stopped_the_turn_is_known_from_the_ledger_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            while await harness.call_model():
                pass
            await harness.report("as far as I came")

        async with rig(tmp_path, run) as made:
            turn = await ended(made, budget=Budget(max_model_calls=2))
            assert (turn.stop_reason, turn.text) == ("budget_reached", "as far as I came")
            assert turn.usage.by_model[0].model_calls == 2

    asyncio.run(main())


def test_a_harness_cannot_claim_a_budget_that_was_not_reached(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            await harness.ask(Report("completed", "budget_reached", "tired", None, None, {}, 0))

        async with rig(tmp_path, run) as made:
            turn = await ended(made, budget=Budget(max_model_calls=2))
            assert turn.stop_reason == "end_turn"
            assert "report.normalized" in await made.types(turn)

    asyncio.run(main())


def test_usage_is_the_ledgers_and_a_differing_report_leaves_a_note(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            await harness.call_model(input_tokens=10, output_tokens=5)
            usage: dict[str, object] = {"input_tokens": 1, "model_calls": 1, "secret": "text"}
            await harness.ask(Report("completed", "end_turn", "ok", None, None, usage, 0))

        async with rig(tmp_path, run) as made:
            turn = await ended(made)
            assert turn.usage.by_model[0].input_tokens == 10
            note = next(event for event in await made.events(turn) if event.type == "usage.mismatch")
            assert orjson.loads(note.data)["reported"] == {"input_tokens": 1, "model_calls": 1}

    asyncio.run(main())


def test_a_denied_answer_may_be_repaired(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            denied = await harness.report("rude")
            assert isinstance(denied, ResponseDenied)
            await harness.report(f"polite, because {denied.reasons[0]}")

        async with rig(tmp_path, run) as made:
            made.guardian.next(payloads.AGENT_RESPONSE, deny("mind your language"))
            turn = await ended(made)
            assert turn.text == "polite, because mind your language"
            assert "rude" not in "".join(event.data for event in await made.events(turn))

    asyncio.run(main())


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_an_answer_that_stays_denied_is_withheld(tmp_path: Path, schema: str | None) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await submitting(harness, *(['{"n":1}'] if schema else []))
            frame: object = None
            while frame is None or isinstance(frame, ResponseDenied):
                frame = await harness.report("rude", result='{"n":1}' if schema else None)

        async with rig(tmp_path, run) as made:
            made.guardian.always(payloads.AGENT_RESPONSE, deny("no"))
            turn = await ended(made, schema=schema, repairs=2)
            assert (turn.stop_reason, turn.text, turn.result_json) == ("denied_output", "", None)
            assert turn.result_error == ("withheld" if schema else None)
            assert made.guardian.written().count(payloads.AGENT_RESPONSE) == 3
            assert outcome(made) == "error"

    asyncio.run(main())


def test_an_answer_without_a_decision_is_withheld(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.always(payloads.AGENT_RESPONSE, SignedError(AcsErrorCode.INTERNAL_ERROR))
            turn = await made.run_turn()
            assert (turn.stop_reason, turn.text) == ("guardian_unavailable", "")
            assert "message.completed" not in await made.types(turn)

    asyncio.run(main())


def test_the_guardian_sees_text_and_result_before_anybody_else(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await submitting(harness, '{"n":12345678901234567890}')
            await harness.report("big", result='{"n":12345678901234567890}')

        async with rig(tmp_path, run) as made:
            seen: list[object] = []

            def look(envelope: RequestEnvelope) -> Decision:
                seen.append(envelope.payload["content"])
                return deny("seen enough")

            made.guardian.always(payloads.AGENT_RESPONSE, look)
            await ended(made, schema=SCHEMA, repairs=0)
            text, result = seen[0]  # type: ignore[misc]
            assert (text["value"], result["value"]) == ("big", '{"n":12345678901234567890}')

    asyncio.run(main())


def test_a_long_text_is_cut_at_a_character_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            await harness.report("ä" * 100)

        async with rig(tmp_path, run, settings=replace(SETTINGS, text_bytes=51)) as made:
            turn = await ended(made)
            assert turn.text == "ä" * 25
            assert "report.normalized" in await made.types(turn)

    asyncio.run(main())


def test_what_a_failing_harness_says_goes_no_further_than_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            await harness.ask(Report("failed", "agent_error", "leak", None, None, {}, 0, error="leak"))

        async with rig(tmp_path, run) as made:
            turn = await ended(made)
            assert (turn.status, turn.stop_reason, turn.text) == ("failed", "agent_error", "")
            assert "leak" not in "".join(event.data for event in await made.events(turn))
            assert outcome(made) == "error"

    asyncio.run(main())


def test_a_model_error_is_told_in_the_gateways_words(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.begin()
            harness.gateway.last_error = ScriptedFailure("rate_limited", "the provider is busy", retryable=True)
            await harness.ask(Report("failed", "model_error", "", None, None, {}, 0, error="made up"))

        async with rig(tmp_path, run) as made:
            error = (await ended(made)).error
            assert error is not None
            assert (error.code, error.message, error.retryable) == ("rate_limited", "the provider is busy", True)

    asyncio.run(main())


@pytest.mark.parametrize(
    "frame",
    [Ready("again", "1"), Started("trn_00000000000000000000000000"), Canceled("nobody asked")],
    ids=["ready", "started", "canceled"],
)
def test_a_frame_out_of_turn_costs_the_harness_its_box(tmp_path: Path, frame: FromHarness) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            harness.send(frame)
            await harness.receive()

        async with rig(tmp_path, script(run)) as made:
            turn = await ended(made)
            assert (turn.stop_reason, turn.error and turn.error.code) == ("sandbox_lost", "harness_protocol_error")

    asyncio.run(main())


def test_a_frame_that_no_protocol_has_costs_the_harness_its_box(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            harness.corrupt(HarnessProtocolError("not JSON"))
            await harness.receive()

        async with rig(tmp_path, script(run)) as made:
            turn = await ended(made)
            assert (turn.stop_reason, turn.error and turn.error.code) == ("sandbox_lost", "harness_protocol_error")

    asyncio.run(main())


def test_a_flood_of_calls_ends_at_its_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            while True:
                await harness.ask(ToolRequest("c", "no such tool", "{}"))

        async with rig(tmp_path, script(run), settings=replace(SETTINGS, max_frames=50)) as made:
            turn = await ended(made)
            assert turn.stop_reason == "sandbox_lost"
            assert "tool.requested" not in await made.types(turn)

    asyncio.run(main())


def test_a_harness_that_vanishes_is_a_lost_sandbox(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await harness.call_model()

        async with rig(tmp_path, script(run)) as made:
            turn = await ended(made)
            assert (turn.status, turn.stop_reason) == ("failed", "sandbox_lost")
            assert "sandbox.lost" in await made.types(turn)
            assert turn.usage.by_model[0].model_calls == 1

    asyncio.run(main())


def test_a_harness_that_says_nothing_runs_into_the_time_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            await asyncio.Event().wait()

        async with rig(tmp_path, script(run)) as made:
            made.limits = AgentLimits(timeout_ms=50)
            turn = await ended(made)
            assert (turn.stop_reason, outcome(made)) == ("timeout", "error")

    asyncio.run(main())


def test_an_agent_that_ignores_its_spent_budget_loses_its_sandbox(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            while await harness.call_model():
                pass
            await asyncio.Event().wait()

        async with rig(tmp_path, script(run)) as made:
            turn = await ended(made, budget=Budget(max_model_calls=1))
            assert (turn.stop_reason, turn.error and turn.error.code) == ("sandbox_lost", "budget_stop_ignored")

    asyncio.run(main())


def test_a_sandbox_that_does_not_come_up_is_tried_three_times(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.sandbox.failing_starts = 2
            assert (await ended(made)).status == "completed"
            made.sandbox.failing_starts = 3
            turn = await made.run_turn()
            assert (turn.stop_reason, turn.attempt, turn.tries) == ("sandbox_unavailable", 0, 3)

    asyncio.run(main())


def test_a_harness_that_starts_another_turn_is_not_started(tmp_path: Path) -> None:
    async def main() -> None:
        async def impostor(harness: ScriptedHarness) -> None:
            await harness.receive()
            harness.send(Started("trn_00000000000000000000000000"))
            await harness.receive()

        async with rig(tmp_path, impostor, answer) as made:
            turn = await ended(made)
            assert (turn.status, turn.tries) == ("completed", 2)

    asyncio.run(main())


def test_counts_of_a_turn_end_are_those_of_the_guardian(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(harness: ScriptedHarness) -> None:
            for number in range(3):
                await harness.ask(ToolRequest(f"c{number}", "shell", '{"command":"true"}'))
            await harness.report("done")

        async with rig(tmp_path, script(run), governor=IMPATIENT) as made:
            made.guardian.next(payloads.TOOL_CALL_REQUEST, deny("not this one"))
            turn = await ended(made)
            steps, tool_calls = made.guardian.window_counts(turn.id)
            end = made.guardian.entries[-1].payload
            assert (end["step_count"], end["tool_call_count"]) == (steps, tool_calls) == (7, 3)
            assert turn.usage.tool_calls == 2

    asyncio.run(main())
