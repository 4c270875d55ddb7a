"""How long a runner has a turn: heartbeats, cancels, pauses, and what becomes of it when it is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import orjson
from tests.unit.runners.remote_rig import SETTINGS_ELSEWHERE, TTL_MS, Elsewhere, Json, Runner, elsewhere, report
from tests.unit.turns.rig import BY_USER

from turnkeeper.testing.scripted_guardian import deny
from turnkeeper.turns import payloads
from turnkeeper.turns.approvals import ApprovalAnswer, DecidedBy
from turnkeeper.turns.model import AgentLimits, Turn, TurnStatus
from turnkeeper.turns.ports import PageRequest
from turnkeeper.turns.workbench import WorkerSettings

ANY = PageRequest()
YES = ApprovalAnswer("approve", DecidedBy("user", "somebody"))
PATIENT = replace(SETTINGS_ELSEWHERE, cancel_grace_ms=30_000)


def play(
    tmp_path: Path,
    body: Callable[[Elsewhere], Awaitable[None]],
    *,
    settings: WorkerSettings = SETTINGS_ELSEWHERE,
    ttl_ms: int = TTL_MS,
) -> None:
    """A worker with runners, for one test."""

    async def main() -> None:
        async with elsewhere(tmp_path, settings=settings, ttl_ms=ttl_ms) as far:
            await body(far)

    asyncio.run(main())


async def beaten_until_told(runner: Runner) -> dict[str, object]:
    """Heartbeats until one brings word of a cancel."""
    for beat in range(1, 1_000):
        told = (await runner.said("heartbeat", beat=beat))["cancel"]
        if told["requested"]:
            return dict(told)
        await asyncio.sleep(0)
    raise AssertionError("no word of the cancel came")


async def lost(far: Elsewhere, turn: Turn) -> list[str]:
    """The reasons for which the turn's sandboxes were lost."""
    events = [event for event in await far.made.events(turn) if event.type == "sandbox.lost"]
    return [orjson.loads(event.data)["reason"] for event in events]


def test_a_heartbeat_is_the_one_after_the_last(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        await far.posted()
        runner = far.runner()
        await runner.begin()
        first = await runner.said("heartbeat", beat=1)
        assert (first["cancel"]["requested"], first["budget_left"], first["messages"]) == (False, True, [])
        for beat in (1, 3):
            stale = await runner.call("heartbeat", beat=beat)
            assert (stale.status_code, stale.json()["code"], stale.json()["beat"]) == (412, "stale_beat", 2)
        await runner.said("heartbeat", beat=2)

    play(tmp_path, body)


def test_a_lease_that_nobody_beats_is_lost_with_its_turn(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, runner = await far.posted(), far.runner()
        await runner.begin()
        turn = await far.made.ended(turn_id)
        assert (turn.status, turn.stop_reason) == (TurnStatus.FAILED, "sandbox_lost")
        assert await lost(far, turn) == ["lease_expired"]
        late = await runner.call("report", **report())
        assert (late.status_code, late.json()["code"]) == (409, "stale_attempt")

    play(tmp_path, body, ttl_ms=300)


def test_a_lost_turn_with_another_attempt_goes_to_another_runner(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, asleep, other = await far.posted(attempts=2), far.runner(), far.runner()
        await asleep.begin()
        await other.begin()
        assert (other.lease["attempt"], other.lease["fence"] > asleep.lease["fence"]) == (2, True)
        for call in (asleep.call("report", **report("old")), asleep.call("heartbeat", beat=1), asleep.call("events")):
            assert (await call).json()["code"] == "stale_attempt"
        await other.said("report", **report("new"))
        turn = await far.made.ended(turn_id)
        assert (turn.text, turn.attempt, await lost(far, turn)) == ("new", 2, ["lease_expired"])

    play(tmp_path, body, ttl_ms=2_000)


def test_a_cancel_comes_with_a_heartbeat_and_is_acknowledged(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, runner = await far.posted(), far.runner()
        await runner.begin()
        await far.made.store.cancel_turn(turn_id, mode="graceful", by=BY_USER)
        told = await beaten_until_told(runner)
        assert (told["mode"], told["deadline"] is not None) == ("graceful", True)
        refused = await runner.call("submissions", value=1)
        assert (refused.status_code, refused.json()["code"]) == (409, "cancel_requested")
        ended = await runner.said("report", **report("so far", status="canceled", stop_reason="canceled"))
        assert (ended["status"], ended["stop_reason"]) == ("canceled", "canceled")
        assert "sandbox" in {event.source for event in await far.made.events(await far.made.ended(turn_id))}

    play(tmp_path, body, settings=PATIENT)


def test_a_question_that_waits_for_a_person_is_answered_when_the_turn_is_canceled(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, runner = await far.made.post(await far.session(permissions={"shell": "ask"})), far.runner()
        await runner.begin()
        payload: Json = {"tool_call_id": "1", "name": "shell", "arguments": {}}
        asking = asyncio.create_task(runner.call("steps", hook="toolCallRequest", payload=payload))
        await far.made.until(turn_id, lambda turn: turn.status is TurnStatus.PAUSED)
        await far.made.store.cancel_turn(turn_id, mode="graceful", by=BY_USER)
        assert (await asking).json()["code"] == "stale_attempt"

    play(tmp_path, body, settings=replace(SETTINGS_ELSEWHERE, pause_warm_ms=60_000))


def test_a_cancel_that_nobody_acknowledges_ends_the_turn_all_the_same(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        turn_id, runner = await far.posted(), far.runner()
        await runner.begin()
        await far.made.store.cancel_turn(turn_id, mode="immediate", by=BY_USER)
        assert (await far.made.ended(turn_id)).status is TurnStatus.CANCELED
        late = await runner.call("report", **report("too late"))
        assert late.json()["code"] == "stale_attempt"

    play(tmp_path, body)


def test_a_turn_that_waits_for_a_person_is_leased_again_with_the_call_it_waited_for(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        session = await far.session(permissions={"shell": "ask"})
        turn_id, runner, other = await far.made.post(session), far.runner(), far.runner()
        await runner.begin()
        payload = {"tool_call_id": "1", "name": "shell", "arguments": {"command": "ls"}}
        paused = await runner.call("steps", hook="toolCallRequest", payload=payload)
        assert (paused.status_code, paused.json()) == (202, {"paused": True})
        (approval,) = (await far.made.store.approvals(ANY)).items
        await far.made.store.decide_approval(approval.id, YES)
        await other.begin()
        pending = other.lease["turn"]["pending"]
        assert (pending["name"], orjson.loads(pending["arguments"])) == ("shell", {"command": "ls"})
        assert (await other.asked("2", {"command": "ls"}))["decision"] == "allow"
        await other.shown("a file", "2")
        await other.said("report", **report())
        assert (await far.made.ended(turn_id)).attempt == 1

    play(tmp_path, body, settings=replace(SETTINGS_ELSEWHERE, pause_warm_ms=0))


def test_a_runner_that_leaves_while_it_waits_is_given_nothing(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        leaving, staying = far.runner(), far.runner()
        waiting = asyncio.create_task(leaving.take())
        while not far.pools.free():
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        turn_id = await far.posted()
        await staying.begin()
        assert staying.lease["turn"]["id"] == turn_id
        await staying.said("report", **report())

    play(tmp_path, body)


def test_a_turn_that_is_refused_at_the_front_costs_no_runner(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        far.made.guardian.next(payloads.TURN_START, deny("not now"))
        waiting = asyncio.create_task(far.runner().take())
        refused = await far.made.ended(await far.posted())
        turn_id = await far.posted()
        assert refused.stop_reason == "denied_at_start"
        assert (await waiting).json()["turn"]["id"] == turn_id

    play(tmp_path, body)


def test_time_that_is_over_ends_a_runners_turn_too(tmp_path: Path) -> None:
    async def body(far: Elsewhere) -> None:
        far.made.limits = AgentLimits(timeout_ms=200)
        turn_id, runner = await far.posted(), far.runner()
        await runner.begin()
        assert (await far.made.ended(turn_id)).stop_reason == "timeout"

    play(tmp_path, body)
