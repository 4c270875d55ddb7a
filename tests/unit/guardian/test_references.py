"""`request_id_ref`: a result belongs to a call of its own session (CORE-HOOK-12, CORE-HOOK-13)."""

from pathlib import Path
from uuid import uuid4

from tests.unit.guardian.kit import DENY_ALL, House, engine, findings, greeted, running
from tests.unit.guardian.samples import PAYLOADS

from turnkeeper.guardian.settings import GuardianSettings

RESULT = dict(PAYLOADS["steps/toolCallResult"])
FEW_IDS = GuardianSettings(max_in_flight=4, max_remembered_ids=4)


def test_a_reference_to_a_call_of_the_session_is_no_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent, call = await greeted(here), str(uuid4())
        await agent.tool(request_id=call)
        assert (await agent.step("toolCallResult", RESULT | {"request_id_ref": call})).decision == "allow"
        assert findings(here) == []

    running(tmp_path, work)


def test_a_reference_to_nothing_to_another_session_or_to_another_hook_is_a_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent, other, call, message = await greeted(here), await greeted(here), str(uuid4()), str(uuid4())
        await other.tool(request_id=call)
        await agent.step("userMessage", PAYLOADS["steps/userMessage"], request_id=message)
        for reference in (str(uuid4()), call, message):
            assert (await agent.step("toolCallResult", RESULT | {"request_id_ref": reference})).decision == "allow"
        assert findings(here) == ["request_id_ref_unresolved"] * 3

    running(tmp_path, work)


def test_a_reference_to_a_refused_call_is_a_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent, call = await greeted(here), str(uuid4())
        await agent.refused("toolCallRequest", {}, request_id=call)
        await agent.step("toolCallResult", RESULT | {"request_id_ref": call})
        assert findings(here) == ["request_id_ref_unresolved"]

    running(tmp_path, work)


def test_an_unresolved_reference_is_recorded_even_when_the_answer_is_deny(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        answer = await agent.step("toolCallResult", RESULT | {"request_id_ref": str(uuid4())})
        assert (answer.decision, findings(here)) == ("deny", ["request_id_ref_unresolved"])

    running(tmp_path, work, policy=engine(DENY_ALL))


def test_an_old_call_is_found_in_the_store_also_after_a_restart(tmp_path: Path) -> None:
    call = str(uuid4())

    async def before(here: House) -> str:
        agent = await greeted(here)
        await agent.tool(request_id=call)
        for _ in range(9):
            await agent.tool()
        await agent.step("toolCallResult", RESULT | {"request_id_ref": call})
        return agent.session_id

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        await agent.step("toolCallResult", RESULT | {"request_id_ref": call})
        assert findings(here) == []
        await agent.step("toolCallResult", RESULT | {"request_id_ref": str(uuid4())})
        assert findings(here) == ["request_id_ref_unresolved"]

    session_id = running(tmp_path, before, settings=FEW_IDS)
    running(tmp_path, after, settings=FEW_IDS)
