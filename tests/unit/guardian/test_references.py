"""`request_id_ref`: a result belongs to a call of its own session (CORE-HOOK-12, CORE-HOOK-13)."""

from pathlib import Path
from uuid import uuid4

from tests.unit.guardian.kit import DENY_ALL, KEYRING, House, engine, findings, greeted, running
from tests.unit.guardian.samples import PAYLOADS
from tests.unit.guardian.test_wrapped_mcp import CALL, call, wrapping

from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.guardian.verify import verify_stored
from turnkeeper.store.chain_reader import SqliteChainReader

RESULT = dict(PAYLOADS["steps/toolCallResult"])
FEW_IDS = GuardianSettings(max_in_flight=4, max_remembered_ids=4)


def test_a_reference_to_a_call_of_the_session_is_no_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent, number = await greeted(here), str(uuid4())
        await agent.tool(request_id=number)
        assert (await agent.step("toolCallResult", RESULT | {"request_id_ref": number})).decision == "allow"
        assert findings(here) == []

    running(tmp_path, work)


def test_a_reference_to_nothing_to_another_session_or_to_another_hook_is_a_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent, other, number, message = await greeted(here), await greeted(here), str(uuid4()), str(uuid4())
        await other.tool(request_id=number)
        await agent.step("userMessage", PAYLOADS["steps/userMessage"], request_id=message)
        for reference in (str(uuid4()), number, message):
            assert (await agent.step("toolCallResult", RESULT | {"request_id_ref": reference})).decision == "allow"
        assert findings(here) == ["request_id_ref_unresolved"] * 3

    running(tmp_path, work)


def test_a_reference_to_a_refused_call_is_a_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent, number = await greeted(here), str(uuid4())
        await agent.refused("toolCallRequest", {}, request_id=number)
        await agent.step("toolCallResult", RESULT | {"request_id_ref": number})
        assert findings(here) == ["request_id_ref_unresolved"]

    running(tmp_path, work)


def test_an_unresolved_reference_is_recorded_even_when_the_answer_is_deny(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        answer = await agent.step("toolCallResult", RESULT | {"request_id_ref": str(uuid4())})
        assert (answer.decision, findings(here)) == ("deny", ["request_id_ref_unresolved"])

    running(tmp_path, work, policy=engine(DENY_ALL))


def test_an_old_call_is_found_in_the_store_also_after_a_restart(tmp_path: Path) -> None:
    number = str(uuid4())

    async def before(here: House) -> str:
        agent = await greeted(here)
        await agent.tool(request_id=number)
        for _ in range(9):
            await agent.tool()
        await agent.step("toolCallResult", RESULT | {"request_id_ref": number})
        return agent.session_id

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        await agent.step("toolCallResult", RESULT | {"request_id_ref": number})
        assert findings(here) == []
        await agent.step("toolCallResult", RESULT | {"request_id_ref": str(uuid4())})
        assert findings(here) == ["request_id_ref_unresolved"]

    session_id = running(tmp_path, before, settings=FEW_IDS)
    running(tmp_path, after, settings=FEW_IDS)


def test_a_reference_that_is_no_text_refers_to_nothing_and_verifies(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await wrapping(here)
        assert (await agent.step(CALL, call(1) | {"request_id_ref": ["a"]})).decision == "allow"
        with SqliteChainReader(here.path) as reader:
            (summary,) = reader.sessions(limit=9)
            assert verify_stored(reader, summary, KEYRING).intact

    running(tmp_path, work)
