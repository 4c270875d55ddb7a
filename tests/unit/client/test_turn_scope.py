"""A turn is begun, counted and ended whatever happens inside it."""

import asyncio

import pytest
from tests.unit.client.rig import Rig

from turnkeeper.acs import RequestEnvelope
from turnkeeper.client import GuardianClient, ScopeOver, StepDenied, TurnDenied
from turnkeeper.testing.scripted_guardian import Fault, deny


def run(command: str) -> str:
    """A tool that works."""
    return f"ran {command}"


def fail(**_: object) -> None:
    """A tool that must not be called."""
    pytest.fail("a denied tool ran")


def divide(by: int) -> float:
    """A tool that may fail."""
    return 1 / by


def turn_end(rig: Rig) -> RequestEnvelope:
    """The one turnEnd that was sent."""
    (end,) = [envelope for envelope in rig.scripted.received if envelope.method == "steps/turnEnd"]
    return end


def test_a_turn_that_ends_well_is_completed_with_its_counts() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            await turn.user_message("hello")
            await turn.call_tool("shell", {"command": "ls"}, run)
            await turn.agent_response("done")

    rig.run(work)
    assert rig.sent() == [
        "handshake/hello",
        "sessionStart",
        "turnStart",
        "userMessage",
        "toolCallRequest",
        "toolCallResult",
        "agentResponse",
        "turnEnd",
        "sessionEnd",
    ]
    end = turn_end(rig)
    assert end.payload == {"turn_id": end.turn_id, "outcome": "completed", "step_count": 4, "tool_call_count": 1}


def test_every_step_between_start_and_end_carries_the_turn_and_no_other_does() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn(turn_id="turn-1") as turn:
            await turn.user_message("hello")

    rig.run(work)
    assert [envelope.turn_id for envelope in rig.scripted.received] == [None, None, "turn-1", "turn-1", "turn-1", None]


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (ValueError("x"), "error", "error"),
        (asyncio.CancelledError(), "interrupted", "cancelled"),
        (KeyboardInterrupt(), "interrupted", "cancelled"),
        (TimeoutError(), "error", "timeout"),
    ],
)
def test_what_is_raised_inside_goes_through_and_the_turn_and_session_still_end(
    error: BaseException, outcome: str, reason: str
) -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        with pytest.raises(type(error)):
            async with guardian.session() as session, session.turn():
                raise error

    rig.run(work)
    assert turn_end(rig).payload["outcome"] == outcome
    assert rig.scripted.received[-1].payload == {"reason": reason}


def test_a_denied_start_ends_the_turn_as_denied_at_start() -> None:
    rig = Rig()
    rig.scripted.next("steps/turnStart", deny("not today", "quota"))

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session:
            with pytest.raises(TurnDenied, match="not today") as denied:
                async with session.turn():
                    pytest.fail("the body of a denied turn ran")
            assert denied.value.reason_codes == ("quota",)

    rig.run(work)
    assert turn_end(rig).payload["outcome"] == "denied_at_start"


def test_a_start_that_nobody_decided_ends_the_turn_as_an_error() -> None:
    """The Guardian denied nothing, so nothing may say that it did."""
    rig = Rig()
    rig.scripted.fail("steps/turnStart", *[Fault.LOSE_REQUEST] * 3)

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session:
            with pytest.raises(TurnDenied):
                await session.turn().__aenter__()

    rig.run(work)
    assert turn_end(rig).payload["outcome"] == "error"


def test_a_cancellation_while_a_step_is_on_its_way_still_ends_the_turn() -> None:
    rig = Rig()
    asked, never = asyncio.Event(), asyncio.Event()

    async def stuck(body: bytes) -> bytes:
        if b'"method":"steps/userMessage"' in body:
            asked.set()
            await never.wait()
        return await rig.scripted.exchange(body, timeout_ms=0)

    async def one_turn(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            await turn.user_message("hello")

    async def work(guardian: GuardianClient) -> None:
        running = asyncio.create_task(one_turn(guardian))
        await asked.wait()
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    rig.answer = stuck
    rig.scripted.default_timeout_ms = 60_000
    rig.run(work)
    # Nobody knows whether the message was written, so no count is given.
    assert turn_end(rig).payload.keys() == {"turn_id", "outcome"}
    assert turn_end(rig).payload["outcome"] == "interrupted"


def test_cancelling_again_and_again_does_not_stop_the_turn_end() -> None:
    rig = Rig()
    ending, go_on = asyncio.Event(), asyncio.Event()

    async def slow_end(body: bytes) -> bytes:
        if b'"method":"steps/turnEnd"' in body:
            ending.set()
            await go_on.wait()
        return await rig.scripted.exchange(body, timeout_ms=0)

    async def one_turn(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn():
            pass

    async def work(guardian: GuardianClient) -> None:
        running = asyncio.create_task(one_turn(guardian))
        await ending.wait()
        for _ in range(5):
            running.cancel()
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait({running})
        assert running.cancelled()

    rig.answer = slow_end
    rig.run(work)
    assert rig.sent()[-2:] == ["turnEnd", "sessionEnd"]


def test_a_denied_step_raises_and_the_agent_may_go_on() -> None:
    rig = Rig()
    rig.scripted.next("steps/toolCallRequest", deny("no shell", "tool_forbidden"))

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            with pytest.raises(StepDenied, match="no shell"):
                await turn.call_tool("shell", {"command": "ls"}, fail)
            assert await turn.agent_response("I may not") == "I may not"

    rig.run(work)
    assert turn_end(rig).payload["outcome"] == "completed"


def test_a_turn_cannot_be_used_before_or_after() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session:
            turn = session.turn()
            with pytest.raises(ScopeOver):
                await turn.user_message("too early")
            async with turn:
                pass
            with pytest.raises(ScopeOver):
                await turn.user_message("too late")

    rig.run(work)


def test_a_nested_turn_names_its_parent_in_every_step() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with (
            guardian.session() as session,
            session.turn(turn_id="outer") as outer,
            session.turn("agent_loop", turn_id="inner", parent=outer) as inner,
        ):
            await inner.agent_response("done")

    rig.run(work)
    inner = [envelope for envelope in rig.scripted.received if envelope.turn_id == "inner"]
    assert inner[0].payload["parent_turn_id"] == "outer"
    assert all(envelope.metadata["parent_turn_id"] == "outer" for envelope in inner)


def test_an_action_that_fails_is_reported_as_failed() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            with pytest.raises(ZeroDivisionError):
                await turn.call_tool("divide", {"by": 0}, divide)

    rig.run(work)
    (result,) = [envelope for envelope in rig.scripted.received if envelope.method == "steps/toolCallResult"]
    (request,) = [envelope for envelope in rig.scripted.received if envelope.method == "steps/toolCallRequest"]
    assert result.payload["exit_status"] == "failure"
    assert result.payload["outputs"] == [{"value": "ZeroDivisionError: division by zero"}]
    assert result.payload["request_id_ref"] == request.request_id


def test_an_action_that_reports_nothing_is_reported_all_the_same() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn, turn.tool_call("noop", {}) as call:
            assert call.arguments == {}

    rig.run(work)
    assert "toolCallResult" in rig.sent()


def test_the_outcome_can_be_said() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session:
            session.conclude("abandoned")
            async with session.turn() as turn:
                turn.conclude("deferred")

    rig.run(work)
    assert turn_end(rig).payload["outcome"] == "deferred"
    assert rig.scripted.received[-1].payload == {"reason": "abandoned"}
