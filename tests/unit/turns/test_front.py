"""The front of the queue: its order, and every way a turn can end there."""

import asyncio
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from tests.unit.turns.rig import BY_USER, IMPATIENT, Rig, rig

from turnkeeper.acs import AcsErrorCode, Decision, Disposition, HandshakeRefused
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.testing.scripted_guardian import Fault, SignedError, deny
from turnkeeper.turns import payloads
from turnkeeper.turns.governor import GovernorSettings
from turnkeeper.turns.model import Budget, Turn
from turnkeeper.turns.ports import NewTurn

ASK = Decision(
    Disposition.ASK, "a person should look", ask_details={"question": "may it?", "approver_types": ["human"]}
)
SPENT = Budget(max_total_tokens=10)


async def ended_at_front(made: Rig, *, budget: Budget | None = None, schema: str | None = None) -> Turn:
    turn = await made.run_turn(budget=budget, schema=schema)
    await made.settled(turn.session_id)
    assert made.sandbox.loop_boxes == []
    return turn


def why(turn: Turn) -> tuple[str | None, str | None]:
    return turn.stop_reason, turn.error and turn.error.code


def turn_end(made: Rig) -> list[object]:
    return [entry.payload["outcome"] for entry in made.guardian.entries if entry.method == payloads.TURN_END]


def test_the_steps_before_a_turn_carry_no_turn_id_and_those_of_it_do(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            turn = await made.run_turn()
            await made.settled(turn.session_id)
            session_level = {payloads.SESSION_START, payloads.AGBOM_SNAPSHOT, payloads.AGENT_TRIGGER}
            for entry in made.guardian.entries:
                assert entry.turn_id == (None if entry.method in session_level else turn.id)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (payloads.SESSION_START, "session_start_denied"),
        (payloads.AGBOM_SNAPSHOT, "agbom_snapshot_denied"),
        (payloads.AGENT_TRIGGER, "agent_trigger_denied"),
    ],
)
def test_a_denial_before_turn_start_ends_the_turn_without_a_turn_end(tmp_path: Path, method: str, code: str) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.always(method, deny("not here"))
            turn = await ended_at_front(made)
            assert why(turn) == ("denied_before_start", code)
            assert payloads.TURN_START not in made.guardian.written()
            assert turn_end(made) == []

    asyncio.run(main())


def test_a_denied_session_is_closed_with_reason_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.always(payloads.SESSION_START, deny("no sessions today"))
            turn = await ended_at_front(made)
            async with asyncio.timeout(20):
                while payloads.SESSION_END not in made.guardian.written():
                    await made.wakeups.wait(turn.session_id, timeout_ms=100)
            assert made.guardian.entries[-1].payload == {"reason": "error"}
            assert (await made.store.session(turn.session_id)).status == "closed"

    asyncio.run(main())


def test_a_refused_handshake_ends_the_turn_and_the_session_without_a_step(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.greeting = HandshakeRefused(AcsErrorCode.SESSION_REFUSED, "scripted", "go away")
            turn = await ended_at_front(made)
            assert why(turn) == ("denied_before_start", "handshake_refused")
            assert await made.store.steps(turn.session_id) == ()

    asyncio.run(main())


def test_a_guardian_that_does_not_evaluate_a_gating_method_gets_no_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.methods -= {payloads.TOOL_CALL_REQUEST}
            session = await made.session()
            turn = await made.run_turn(session)
            again = await made.run_turn(session)
            for one in (turn, again):
                assert why(one) == (
                    "denied_before_start",
                    "method_not_evaluated",
                )
            assert made.guardian.written() == []

    asyncio.run(main())


def test_a_guardian_without_bills_of_materials_is_no_reason_to_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.methods -= {payloads.AGBOM_SNAPSHOT}
            assert (await made.run_turn()).status == "completed"
            assert payloads.AGBOM_SNAPSHOT not in made.guardian.written()

    asyncio.run(main())


def test_a_denied_turn_start_is_denied_at_start_with_its_turn_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.always(payloads.TURN_START, deny("too many turns", "turn_limit"))
            turn = await ended_at_front(made)
            assert turn.stop_reason == "denied_at_start"
            assert turn.error is not None
            assert "too many turns" in turn.error.message
            assert turn_end(made) == ["denied_at_start"]

    asyncio.run(main())


def test_an_answer_that_turn_start_does_not_permit_is_a_denial_with_turn_end_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.always(payloads.TURN_START, ASK)
            turn = await ended_at_front(made)
            assert why(turn) == (
                "denied_at_start",
                "disposition_not_permitted",
            )
            assert turn_end(made) == ["error"]

    asyncio.run(main())


def test_a_denied_user_message_is_denied_input_and_is_told_to_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.always(payloads.USER_MESSAGE, deny("no"))
            turn = await ended_at_front(made)
            assert turn.stop_reason == "denied_input"
            assert "message.received" not in await made.types(turn)
            assert turn_end(made) == ["error"]

    asyncio.run(main())


def test_a_silent_guardian_before_turn_start_means_no_turn_and_no_turn_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.down = True
            turn = await made.run_turn()
            assert (turn.status, turn.stop_reason) == ("failed", "guardian_unavailable")
            assert await made.store.steps(turn.session_id) == ()

    asyncio.run(main())


def test_a_turn_start_whose_answer_is_lost_is_resolved_before_its_turn_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.fail(payloads.TURN_START, *[Fault.LOSE_ANSWER] * 1_000)
            turn = await made.run_turn()
            made.guardian.heal()
            await made.settled(turn.session_id)
            assert turn.stop_reason == "guardian_unavailable"
            assert made.guardian.written(turn.id) == [payloads.TURN_START, payloads.TURN_END]
            assert "guardian.unavailable" in await made.types(turn)

    asyncio.run(main())


def test_a_turn_start_that_is_refused_for_good_has_no_turn_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.always(payloads.TURN_START, SignedError(AcsErrorCode.INVALID_PARAMS))
            turn = await ended_at_front(made)
            assert turn.stop_reason == "guardian_unavailable"
            assert payloads.TURN_END not in [envelope.method for envelope in made.guardian.received]

    asyncio.run(main())


@pytest.mark.parametrize("schema", [None, '{"type":"object"}'])
def test_the_platform_completes_a_turn_that_cannot_be_paid(tmp_path: Path, schema: str | None) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            turn = await ended_at_front(made, budget=SPENT, schema=schema)
            assert (turn.status, turn.stop_reason, turn.text) == ("completed", "budget_reached", "")
            assert turn.result_error == (None if schema is None else "not_submitted")
            assert orjson.loads(turn.terminal_data or "")["duration_ms"] == 0
            last = made.guardian.entries[-1].payload
            assert last == {"turn_id": turn.id, "outcome": "completed", "step_count": 0, "tool_call_count": 0}

    asyncio.run(main())


def test_a_denial_is_not_hidden_behind_an_empty_purse(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as made:
            made.guardian.always(payloads.TURN_START, deny("no"))
            assert (await ended_at_front(made, budget=SPENT)).stop_reason == "denied_at_start"

    asyncio.run(main())


def test_an_unpaid_head_ends_while_every_slot_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, _forever) as made:
            busy = [await made.post(await made.session()) for _ in range(made.bench.settings.slots)]
            for turn_id in busy:
                await made.until(turn_id, lambda turn: turn.status == "running")
            assert (await made.run_turn(budget=SPENT)).stop_reason == "budget_reached"

    asyncio.run(main())


def test_a_cancel_at_the_front_ends_the_turn_before_anything_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, start=False) as made:
            turn_id = await made.post(await made.session())
            claim = await made.store.claim("gone", slot=True)
            assert claim is not None
            await made.store.cancel_turn(turn_id, mode="graceful", by=BY_USER)
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            assert (turn.status, turn.stop_reason) == ("canceled", "canceled")
            assert made.guardian.received == []

    asyncio.run(main())


def test_a_turn_that_did_not_start_in_time_ends_at_the_front_with_nothing_asked(tmp_path: Path) -> None:
    """Row 3, of a turn that a worker held when it went away."""

    async def main() -> None:
        async with rig(tmp_path, start=False) as made:
            session = await made.session()
            past = made.bench.clock.now() - timedelta(seconds=1)
            new = NewTurn(session.id, "hi", '"hi"', None, "{}", None, 3, None, None, start_by=past)
            turn_id = (await made.store.accept_turn(new)).turn.id
            assert await made.store.claim("gone", slot=True) is not None
            made.again()
            made.work()
            turn = await made.ended(turn_id)
            assert (turn.status, turn.stop_reason) == ("failed", "queue_expired")
            assert made.guardian.received == []

    asyncio.run(main())


def test_an_operator_may_let_turns_go_on_without_a_guardian_and_it_shows(tmp_path: Path) -> None:
    async def main() -> None:
        lax = GovernorSettings(
            decision_timeout_ms=IMPATIENT.decision_timeout_ms, on_decision_failure="proceed", first_backoff_ms=5
        )
        async with rig(tmp_path, governor=lax) as made:
            made.guardian.always(payloads.USER_MESSAGE, SignedError(AcsErrorCode.INVALID_PARAMS))
            turn = await made.run_turn()
            assert turn.status == "completed"
            proceeded = [event for event in await made.events(turn) if event.type == "guardian.proceeded"]
            assert [orjson.loads(event.data)["hook"] for event in proceeded] == ["userMessage"]

    asyncio.run(main())


def test_a_session_without_a_handshake_shows_that_nobody_guarded_it(tmp_path: Path) -> None:
    async def main() -> None:
        lax = GovernorSettings(decision_timeout_ms=20, on_decision_failure="proceed", first_backoff_ms=5)
        async with rig(tmp_path, governor=lax) as made:
            made.guardian.down = True
            turn = await made.run_turn()
            assert turn.status == "completed"
            proceeded = [event for event in await made.events(turn) if event.type == "guardian.proceeded"]
            assert [orjson.loads(event.data)["hook"] for event in proceeded] == [
                "handshake",
                "agentTrigger",
                "turnStart",
                "userMessage",
                "agentResponse",
            ]

    asyncio.run(main())


async def _forever(harness: ScriptedHarness) -> None:
    await harness.begin()
    await harness.receive()
