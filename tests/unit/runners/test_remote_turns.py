"""Turns that runners elsewhere take and bring to their endings."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
from tests.unit.runners.remote_rig import Elsewhere, elsewhere, report

from turnkeeper.testing.scripted_guardian import deny
from turnkeeper.turns import payloads
from turnkeeper.turns.model import TurnStatus

SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'


def play(tmp_path: Path, body: Callable[[Elsewhere], Awaitable[None]]) -> None:
    """A worker with runners, for one test."""

    async def main() -> None:
        async with elsewhere(tmp_path) as far:
            await body(far)

    asyncio.run(main())


def test_a_runner_takes_a_turn_asks_for_its_call_and_reports(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, runner = await far.posted(text="look"), far.runner()
        await runner.begin()
        assert (runner.lease["turn"]["id"], runner.lease["turn"]["input"]) == (turn_id, "look")
        assert await runner.asked() == {"decision": "allow", "reason": None, "arguments": {}}
        assert (await runner.shown("a file"))["output"] == "a file"
        ended = await runner.said("report", **report("a file is there"))
        turn = await far.made.ended(turn_id)
        assert ended == {"event_id": turn.terminal_event_id, "status": "completed", "stop_reason": "end_turn"}
        assert (turn.text, turn.attempt, turn.usage.tool_calls) == ("a file is there", 1, 1)

    play(tmp_path, body)


def test_a_turn_of_a_pool_waits_for_a_runner_and_is_run_by_no_box_here(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id = await far.posted()
        here = await far.made.run_turn()
        assert (await far.made.store.turn(turn_id)).status is TurnStatus.QUEUED
        runner = far.runner()
        await runner.begin()
        await runner.said("report", **report())
        assert here.status is TurnStatus.COMPLETED
        assert (await far.made.ended(turn_id)).status is TurnStatus.COMPLETED

    play(tmp_path, body)


def test_a_runner_gets_no_turn_that_is_run_here(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        await far.made.stop()
        await far.made.post(await far.made.session())
        far.made.work()
        assert (await far.runner().take(wait_ms=200)).status_code == 204

    play(tmp_path, body)


def test_two_runners_that_race_have_one_turn_each(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turns = {await far.posted(), await far.posted()}
        runners = [far.runner() for _ in range(3)]
        answers = await asyncio.gather(*(runner.take(wait_ms=3_000) for runner in runners))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 204]
        assert {runner.lease["turn"]["id"] for runner in runners if runner.lease} == turns

    play(tmp_path, body)


def test_a_denied_call_has_its_reason_and_is_not_run(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        far.made.guardian.always(payloads.TOOL_CALL_REQUEST, deny("no shells"))
        turn_id, runner = await far.posted(), far.runner()
        await runner.begin()
        assert await runner.asked() == {"decision": "deny", "reason": "denied: no shells", "arguments": None}
        assert (await runner.shown("made up"))["decision"] == "deny"
        await runner.said("report", **report())
        assert (await far.made.ended(turn_id)).usage.tool_calls == 0

    play(tmp_path, body)


def test_the_same_step_sent_again_is_asked_once(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, runner = await far.posted(), far.runner()
        await runner.begin()
        first = await runner.asked("1", arguments={"command": "ls"})
        assert await runner.asked("1", arguments={"command": "ls"}) == first
        assert (await runner.asked("1", arguments={"command": "rm"}))["decision"] == "deny"
        await runner.said("report", **report())
        assert (await far.made.ended(turn_id)).usage.tool_calls == 1

    play(tmp_path, body)


def test_a_value_is_judged_when_it_is_submitted_and_reported_as_it_was_written(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, runner = await far.posted(schema=SCHEMA), far.runner()
        await runner.begin()
        refused = await runner.said("submissions", value={"n": "x"})
        assert (refused["accepted"], refused["attempts_left"]) == (False, 2)
        assert (await runner.said("submissions", value={"n": 1}))["accepted"]
        await runner.said("report", **report(result={"n": 1}))
        turn = await far.made.ended(turn_id)
        assert (turn.result_json, turn.result_error) == ('{"n":1}', None)

    play(tmp_path, body)


def test_a_value_that_only_the_report_has_is_submitted_by_it(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        for value, result_json, error in (({"n": 2}, '{"n":2}', None), ({"n": "x"}, None, "invalid")):
            turn_id, runner = await far.posted(schema=SCHEMA), far.runner()
            await runner.begin()
            await runner.said("report", **report(result=value))
            turn = await far.made.ended(turn_id)
            assert (turn.result_json, turn.result_error) == (result_json, error)
            (submitted,) = await far.made.store.submissions(turn_id)
            assert orjson.loads(submitted.value_json) == value

    play(tmp_path, body)


def test_an_answer_that_the_guardian_refuses_may_be_given_again(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        far.made.guardian.next(payloads.AGENT_RESPONSE, deny("say less"))
        turn_id, runner = await far.posted(), far.runner()
        await runner.begin()
        denied = await runner.said("report", **report("too much"))
        assert (denied["denied"], denied["repair_attempts_left"]) == (True, 2)
        assert (await runner.said("report", **report("less")))["status"] == "completed"
        assert (await far.made.ended(turn_id)).text == "less"

    play(tmp_path, body)


def test_the_same_report_again_has_the_same_event(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        await far.posted()
        runner = far.runner()
        await runner.begin()
        both = await asyncio.gather(*(runner.said("report", **report()) for _ in range(2)))
        assert both[0] == both[1] == await runner.said("report", **report())

    play(tmp_path, body)


def test_a_failed_report_ends_the_turn_and_its_words_stay_in_the_log(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, runner = await far.posted(), far.runner()
        await runner.begin()
        error = {"type": "agent_error", "code": "mine", "message": "my secret", "retryable": False}
        failed = report(status="failed", stop_reason="agent_error", error=error)
        assert (await runner.said("report", **failed))["stop_reason"] == "agent_error"
        turn = await far.made.ended(turn_id)
        assert turn.error is not None
        assert "secret" not in turn.error.message

    play(tmp_path, body)
