"""Requirements of the Observed Agent that no other test shows, asked of the client library."""

import json
from pathlib import Path
from typing import Final, cast

import pytest
from tests.unit.client.rig import Rig
from tests.unit.guardian.kit import IN_PROCESS, KEYRING, House, running

from turnkeeper.acs import PING_METHOD, Disposition, Verdict
from turnkeeper.client import ClientSettings, GuardianClient, Identity, InProcessTransport, StepDenied
from turnkeeper.testing.scripted_guardian import Fault, deny

TOOL_CALL: Final = "steps/toolCallRequest"
LEAK: Final = "sk-test-0001"
MINIMUM: Final = ("sessionStart", "userMessage", "toolCallRequest", "toolCallResult", "agentResponse", "sessionEnd")


async def one_tool_call(guardian: GuardianClient) -> list[str]:
    """A small session; what comes back is what the tool did."""
    ran: list[str] = []
    async with guardian.session() as session, session.turn() as turn:
        await turn.user_message("list the folder")
        try:
            async with turn.tool_call("shell", {"command": "ls"}) as call:
                ran.append(str(call.arguments["command"]))
                await call.result("a b c")
        except StepDenied:
            pass
        await turn.agent_response("done")
    return ran


@pytest.mark.requirement("CORE-HOOK-01")
def test_one_session_of_the_client_sends_the_minimum_set() -> None:
    rig = Rig()
    rig.run(one_tool_call)
    assert [hook for hook in rig.sent() if hook in MINIMUM] == list(MINIMUM)


@pytest.mark.requirement("CORE-HOOK-02")
def test_a_shell_command_of_the_client_is_a_tool_call() -> None:
    rig = Rig()
    rig.scripted.always(TOOL_CALL, deny("no shell", "no_shell"))
    assert rig.run(one_tool_call) == []
    assert "toolCallRequest" in rig.sent()


@pytest.mark.requirement("CORE-HS-17")
def test_a_session_after_an_unguarded_one_shakes_hands_again() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> tuple[bool, bool]:
        rig.scripted.down = True
        async with guardian.session() as first:
            unguarded = not first.guarded
        rig.scripted.heal()
        async with guardian.session() as second:
            return unguarded, second.guarded

    assert rig.run(work) == (True, True)


@pytest.mark.requirement("CORE-HON-05")
@pytest.mark.parametrize("posture", ["proceed", "deny"])
def test_a_denial_in_time_blocks_whatever_the_posture(posture: str) -> None:
    rig = Rig()
    rig.scripted.on_decision_failure = posture
    rig.scripted.always(TOOL_CALL, deny("no shell", "no_shell"))
    assert rig.run(one_tool_call) == []
    assert rig.records == []


@pytest.mark.requirement("CORE-HON-08")
def test_a_body_that_is_no_answer_is_no_decision_to_the_client() -> None:
    rig = Rig()
    rig.scripted.fail(TOOL_CALL, *[Fault.GARBAGE] * 3)
    assert rig.run(one_tool_call) == []
    assert rig.audited() == [("decision_failure", "blocked")]


@pytest.mark.requirement("TRACE-10")
def test_a_failure_shows_no_byte_of_an_answer() -> None:
    page = b"<html>" + LEAK.encode() + b"</html>"

    async def gateway(_: bytes) -> bytes:
        return page

    rig = Rig(answer=gateway)
    rig.run(one_tool_call)
    events = [record.failure_event for record in rig.records if record.failure_event is not None]
    assert events
    assert LEAK not in json.dumps([*events, *(dict(record.document) for record in rig.records)])


@pytest.mark.requirement("CORE-PING-01")
def test_the_client_names_and_sends_pings(tmp_path: Path) -> None:
    assert PING_METHOD in ClientSettings().methods_implemented

    async def work(here: House) -> object:
        wire = InProcessTransport(lambda body: here.guardian.answer(body, IN_PROCESS))
        async with GuardianClient(wire, Identity("agent", KEYRING)) as guardian:
            return await guardian.ping(echo="here")

    verdict = running(tmp_path, work)
    assert isinstance(verdict, Verdict)
    assert verdict.decision is Disposition.ALLOW
    assert cast("dict[str, object]", verdict.result["payload"])["echo"] == "here"
