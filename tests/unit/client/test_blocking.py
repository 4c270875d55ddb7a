"""The blocking half: made from the awaiting one, and the same to the Guardian."""

import threading

import pytest
from tests.unit.client.rig import SECRET, Rig
from tests.unit.client.sync_half import SOURCE, TARGET, blocking
from tests.unit.client.test_pending import ask
from tests.unit.client.test_steps import AGBOM, CHILD, DIGEST
from tests.unit.client.test_turn_scope import divide, run

from turnkeeper.acs import METHODS, Verdict
from turnkeeper.client import (
    Allowed,
    ClientSettings,
    Identity,
    InProcessTransport,
    Retrieved,
    ScopeOver,
    StepDenied,
    StepPending,
    SyncGuardianClient,
    TurnDenied,
)
from turnkeeper.client.bridge import THREAD_NAME, Bridge
from turnkeeper.client.steps import tool_call_request
from turnkeeper.testing.scripted_guardian import deny


def blocking_client(rig: Rig) -> SyncGuardianClient:
    """A blocking client of a rig."""
    transport = InProcessTransport(rig.wire)
    return SyncGuardianClient(
        transport, Identity.from_secret("agent", SECRET), settings=rig.settings, audit=rig.records.append
    )


def test_the_blocking_helpers_are_what_the_awaiting_ones_make() -> None:
    """Where this fails, run `python tests/unit/client/sync_half.py`."""
    assert TARGET.read_text() == blocking(SOURCE.read_text())


def test_a_blocking_turn_sends_what_an_awaiting_one_sends() -> None:
    rig = Rig()
    with blocking_client(rig) as guardian, guardian.session() as session, session.turn() as turn:
        assert turn.user_message("hello") == "hello"
        assert turn.call_tool("shell", {"command": "ls"}, run) == "ran ls"
        assert turn.agent_response("done") == "done"
    assert rig.sent()[1:] == [
        "sessionStart",
        "turnStart",
        "userMessage",
        "toolCallRequest",
        "toolCallResult",
        "agentResponse",
        "turnEnd",
        "sessionEnd",
    ]
    assert rig.scripted.received[-2].payload["step_count"] == 4


def test_an_exception_ends_the_turn_and_comes_out_as_it_was() -> None:
    rig = Rig()
    with (
        pytest.raises(ZeroDivisionError),
        blocking_client(rig) as guardian,
        guardian.session() as session,
        session.turn() as turn,
    ):
        turn.call_tool("divide", {"by": 0}, divide)
    assert rig.scripted.received[-2].payload["outcome"] == "error"
    assert rig.scripted.received[-1].payload == {"reason": "error"}


def test_an_interrupt_from_the_keyboard_ends_the_turn_as_interrupted() -> None:
    rig = Rig()
    with (
        pytest.raises(KeyboardInterrupt),
        blocking_client(rig) as guardian,
        guardian.session() as session,
        session.turn(),
    ):
        raise KeyboardInterrupt
    assert rig.scripted.received[-2].payload["outcome"] == "interrupted"


def test_denials_are_the_same_exceptions() -> None:
    rig = Rig()
    rig.scripted.next("steps/turnStart", deny("no"))
    rig.scripted.next("steps/toolCallRequest", deny("no"))
    with blocking_client(rig) as guardian, guardian.session() as session:
        with pytest.raises(TurnDenied):
            session.turn().__enter__()
        with session.turn() as turn, pytest.raises(StepDenied):
            turn.tool_call("shell", {}).__enter__()


def test_a_nested_turn_and_a_tool_call_by_hand() -> None:
    rig = Rig()
    with blocking_client(rig) as guardian, guardian.session() as session, session.turn(turn_id="outer") as outer:
        with session.turn("agent_loop", parent=outer) as inner, inner.tool_call("shell", {"command": "ls"}) as call:
            assert (call.name, call.arguments) == ("shell", {"command": "ls"})
            assert call.request_id is not None
            call.result("x")
        assert inner.head == session.head == outer.head
        assert (inner.session_id, outer.turn_id) == (session.session_id, "outer")
        outer.conclude("error")
        session.conclude("error")


def test_a_pending_step_can_be_resolved_by_another_call() -> None:
    rig = Rig(ClientSettings(pending="raise"))
    rig.scripted.next("steps/toolCallRequest", ask())
    with blocking_client(rig) as guardian, guardian.session() as session:
        with pytest.raises(StepPending) as waiting, session.turn() as turn:
            turn.settle(tool_call_request(turn.marks(), "shell", {}))
        pending = waiting.value.pending
        with session.turn() as turn:
            assert isinstance(turn.resubmit(pending), Allowed)
            assert isinstance(turn.resolve(pending), Allowed)
        assert isinstance(session.resubmit(pending), Allowed)
        assert isinstance(session.resolve(pending), Allowed)
        assert isinstance(guardian.resolve(pending), Allowed)


def test_a_session_can_be_gone_on_with() -> None:
    rig = Rig()
    with blocking_client(rig) as guardian, guardian.session() as session:
        again = guardian.attach(session.session_id)
        assert again.guarded
        assert again.stance == session.stance
        assert again.agent_trigger() == {}


def test_the_thread_ends_with_the_client() -> None:
    rig = Rig()
    with blocking_client(rig) as guardian, guardian.session():
        assert THREAD_NAME in {thread.name for thread in threading.enumerate()}
    guardian.close()
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ScopeOver):
        guardian.ping()


def test_the_bridge_is_not_to_be_used_from_its_own_thread() -> None:
    bridge = Bridge()

    async def inner() -> None:
        """Never run."""

    async def outer() -> None:
        with pytest.raises(ScopeOver):
            bridge.run(inner())

    bridge.run(outer())
    bridge.close()


def test_the_blocking_helpers_reach_every_method_of_the_standard() -> None:
    rig = Rig()
    with blocking_client(rig) as guardian, guardian.session() as session, session.turn() as turn:
        session.agbom_snapshot(AGBOM)
        session.agent_trigger("scheduled")
        turn.user_message("hello")
        turn.knowledge_retrieval("q", [Retrieved("v")])
        turn.memory_context_retrieval([Retrieved("v")])
        turn.memory_store("v")
        turn.tool_call_request("shell", {})
        turn.tool_call_result("shell", "x")
        turn.skill_register("s", DIGEST, [])
        turn.skill_load("s", DIGEST)
        turn.skill_unload("s", "session_end")
        turn.pre_compact(["e"])
        turn.post_compact("short", ["e"], derived_from=["p"])
        turn.subagent_start(CHILD, "step")
        turn.subagent_stop(CHILD, "completed")
        turn.agbom_changed(full_snapshot=AGBOM)
        turn.agent_response("done")
    assert {envelope.method for envelope in rig.scripted.received} == {"handshake/hello", *METHODS} - {"system/ping"}


def test_verdicts_are_there_for_who_wants_them() -> None:
    rig = Rig()
    with blocking_client(rig) as guardian, guardian.session() as session, session.turn() as turn:
        outcome = turn.ask(tool_call_request(turn.marks(), "shell", {}))
    assert isinstance(getattr(outcome, "verdict", None), Verdict)
