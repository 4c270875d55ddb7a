"""A runner that lies: each lie is refused or set right, written down, and shows in nobody else's turn."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.runners.remote_rig import NO_USAGE, POOL_TOKEN, TOKENS, Elsewhere, Runner, elsewhere, report
from tests.unit.turns.rig import Rig

from turnkeeper.runners.boxes import MAX_REFUSALS
from turnkeeper.runners.tokens import Holder, LeaseTokens
from turnkeeper.sandbox.protocol import MAX_FRAME_BYTES
from turnkeeper.turns.model import Turn, TurnStatus

SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
FALSE_COUNTS = {**dict.fromkeys(TOKENS, 0), "model_calls": 7}
FALSE_USAGE = {**NO_USAGE, **FALSE_COUNTS, "by_model": [{"model": "stub/model", "cost": None, **FALSE_COUNTS}]}
MESSAGE = "msg_01M8QRVN3CP9A40772AH5P31BW"


def play(tmp_path: Path, body: Callable[[Elsewhere, Runner], Awaitable[None]], **turn: Any) -> Turn:
    """One turn of a runner that has begun, and that reports properly in the end."""

    async def main() -> Turn:
        async with elsewhere(tmp_path) as far:
            turn_id, runner = await far.posted(**turn), far.runner()
            await runner.begin()
            await body(far, runner)
            if not (await far.made.store.turn(turn_id)).status.terminal:
                await runner.said("report", **report("the truth"))
            return await far.made.ended(turn_id)

    return asyncio.run(main())


async def data_of(made: Rig, turn_id: str, event_type: str) -> list[dict[str, Any]]:
    """What the turn's events of a type say."""
    events = await made.events(await made.store.turn(turn_id))
    return [orjson.loads(event.data) for event in events if event.type == event_type]


def delta(runner: Runner, worker_seq: int = 1, **changed: Any) -> dict[str, Any]:
    """An event that a runner may write."""
    data = {"turn_id": runner.lease["turn"]["id"], "message_id": MESSAGE, "offset": 0, "text": "x", **changed}
    return {"worker_seq": worker_seq, "type": "message.delta", "data": data}


def test_false_usage_is_not_counted_and_is_told(tmp_path: Path) -> None:
    async def body(far: Elsewhere, runner: Runner) -> None:
        await runner.said("report", **report("done", usage=FALSE_USAGE))
        (told,) = await data_of(far.made, runner.lease["turn"]["id"], "usage.mismatch")
        assert (told["reported"]["model_calls"], told["ledger"]["model_calls"]) == (7, 0)

    assert play(tmp_path, body).usage.by_model == ()


def test_a_budget_that_was_not_reached_is_not_believed(tmp_path: Path) -> None:
    async def body(far: Elsewhere, runner: Runner) -> None:
        ended = await runner.said("report", **report("done", stop_reason="budget_reached"))
        (told,) = await data_of(far.made, runner.lease["turn"]["id"], "report.normalized")
        assert (ended["stop_reason"], told["fields"]) == ("end_turn", ["stop_reason"])

    play(tmp_path, body)


def test_a_false_result_is_judged_like_any_other(tmp_path: Path) -> None:
    async def body(far: Elsewhere, runner: Runner) -> None:
        assert (await runner.said("submissions", value={"n": 1}))["accepted"]
        await runner.said("report", **report("done", result={"n": "one"}))
        assert [each.valid for each in await far.made.store.submissions(runner.lease["turn"]["id"])] == [True, False]

    turn = play(tmp_path, body, schema=SCHEMA)
    assert (turn.status, turn.result_json) == (TurnStatus.COMPLETED, '{"n":1}')


@pytest.mark.parametrize(
    "event_type", ["turn.completed", "turn.failed", "message.completed", "tool.completed", "budget.updated", "x"]
)
def test_a_foreign_type_is_refused_by_its_name_and_stored_nowhere(tmp_path: Path, event_type: str) -> None:
    async def body(far: Elsewhere, runner: Runner) -> None:
        forged = {**delta(runner), "type": event_type}
        refused = await runner.call("events", events=[delta(runner), forged])
        assert (refused.status_code, refused.json()["code"]) == (422, "event_not_allowed")
        assert event_type in refused.json()["detail"]
        assert (await runner.said("events", events=[delta(runner)]))["accepted_through"] == 1
        assert await data_of(far.made, runner.lease["turn"]["id"], event_type) == []

    assert play(tmp_path, body).text == "the truth"


def test_another_turns_id_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    async def body(far: Elsewhere, runner: Runner) -> None:
        other = await far.posted(text="another's")
        refused = await runner.call("events", events=[delta(runner, turn_id=other)])
        assert refused.json()["code"] == "event_not_allowed"
        for verb in ("report", "heartbeat", "steps", "submissions", "events", "started"):
            answer = await runner.call(verb, turn_id=other, **report())
            assert (answer.status_code, answer.json()["code"]) == (401, "runner_token_invalid")
        assert (await far.made.store.turn(other)).status is TurnStatus.QUEUED

    assert play(tmp_path, body).text == "the truth"


def test_a_token_that_was_made_elsewhere_opens_nothing(tmp_path: Path) -> None:
    async def body(far: Elsewhere, runner: Runner) -> None:
        holder = Holder(runner.lease["turn"]["id"], runner.lease["fence"])
        forged = LeaseTokens(b"another key").token("lease", holder)
        for token in (forged, POOL_TOKEN, runner.lease["gateway"]["token"], "tk_" + "a" * 43, "x"):
            assert (await runner.call("report", token=token, **report("forged"))).status_code == 401
        assert (await far.runner().take(token=runner.lease["token"])).status_code == 401
        assert (await far.runner().take(token="tkw_other")).status_code == 401

    assert play(tmp_path, body).text == "the truth"


def test_another_fence_than_the_leases_writes_nothing(tmp_path: Path) -> None:
    async def body(_: Elsewhere, runner: Runner) -> None:
        for fence in (0, runner.lease["fence"] - 1, runner.lease["fence"] + 1):
            refused = await runner.call("report", fence=fence, **report("old"))
            assert (refused.status_code, refused.json()["code"]) == (409, "stale_attempt")

    assert play(tmp_path, body).text == "the truth"


@pytest.mark.parametrize(
    "changed",
    [
        {"attempt": 1},
        {"idempotency_key": None},
        {"metadata": {}},
        {"status": "canceled", "stop_reason": "canceled"},
        {"status": "completed", "stop_reason": "timeout"},
        {"status": "failed", "stop_reason": "agent_error"},
        {"error": {"type": "t", "code": "c", "message": "m", "retryable": True}},
        {"output": {"text": "x", "more": 1}},
        {"output": "x"},
        {"result_error": "withheld"},
        {"duration_ms": -1},
        {"usage": {}},
        {"usage": {**NO_USAGE, "input_tokens": 5}},
        {"usage": {**NO_USAGE, "total_tokens": True}},
        {"usage": {**NO_USAGE, "cost": 0}},
    ],
)
def test_a_report_of_another_form_is_refused_and_may_be_sent_again(tmp_path: Path, changed: dict[str, Any]) -> None:
    async def body(_: Elsewhere, runner: Runner) -> None:
        refused = await runner.call("report", **report("false", **changed))
        assert (refused.status_code, refused.json()["code"]) == (422, "report_invalid")

    assert play(tmp_path, body).text == "the truth"


def test_a_report_that_lacks_one_of_the_seven_is_refused(tmp_path: Path) -> None:
    async def body(_: Elsewhere, runner: Runner) -> None:
        for name in report():
            part = {key: value for key, value in report().items() if key != name}
            assert (await runner.call("report", **part)).json()["code"] == "report_invalid"

    play(tmp_path, body)


def test_a_body_that_is_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    async def body(_: Elsewhere, runner: Runner) -> None:
        refused = await runner.call("submissions", value="x" * MAX_FRAME_BYTES)
        assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")

    assert play(tmp_path, body).text == "the truth"


def test_a_runner_that_is_refused_without_end_loses_its_turn(tmp_path: Path) -> None:
    async def body(far: Elsewhere, runner: Runner) -> None:
        for _ in range(MAX_REFUSALS + 1):
            await runner.call("heartbeat", beat=0)
        await far.made.ended(runner.lease["turn"]["id"])

    turn = play(tmp_path, body)
    assert (turn.status, turn.error and turn.error.code) == (TurnStatus.FAILED, "harness_protocol_error")


def test_another_sandboxes_name_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with elsewhere(tmp_path) as far:
            await far.posted()
            runner = far.runner()
            await runner.take()
            refused = await runner.call("started", sandbox_id="sbx_01M8QRVN3CP9A40772AH5P31BW")
            assert (refused.status_code, refused.json()["param"]) == (400, "/sandbox_id")

    asyncio.run(main())


def test_events_that_were_accepted_count_once_and_leave_no_gap(tmp_path: Path) -> None:
    async def body(_: Elsewhere, runner: Runner) -> None:
        first, second = delta(runner), delta(runner, 2, offset=1, text="yz")
        for _again in range(2):
            assert (await runner.said("events", events=[first, second]))["accepted_through"] == 2
        gap = await runner.call("events", events=[delta(runner, 3, offset=9)])
        assert (gap.status_code, gap.json()["code"]) == (400, "invalid_field")
        many = [delta(runner, seq, offset=seq) for seq in range(3, 260)]
        assert (await runner.call("events", events=many)).status_code == 400

    play(tmp_path, body)
