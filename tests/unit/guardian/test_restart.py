"""What survives a restart: terms, chain, counts, the end of a session."""

from pathlib import Path

import pytest
from tests.unit.guardian.kit import KEYRING, MESSAGE, House, greeted, running

from turnkeeper.acs import Refusal, ServerHello, build_client_hello
from turnkeeper.guardian.ports import StoreFailed
from turnkeeper.guardian.verify import verify_stored
from turnkeeper.store.chain_reader import SqliteChainReader


def test_negotiated_terms_survive(tmp_path: Path) -> None:
    methods = ["steps/toolCallRequest", "steps/sessionEnd"]

    async def before(here: House) -> str:
        agent = here.agent()
        await agent.hello(methods=methods)
        return agent.session_id

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        assert (await agent.refused("userMessage", MESSAGE)).reason == "method_not_negotiated"
        assert (await agent.tool()).decision == "allow"
        again = await agent.hello(methods=methods)
        assert isinstance(again, ServerHello)
        assert list(again.methods_evaluated) == methods

    session_id = running(tmp_path, before)
    running(tmp_path, after)


def test_a_chain_goes_on_where_it_stood(tmp_path: Path) -> None:
    async def some_steps(here: House, session_id: str = "") -> str:
        agent = here.agent(session_id=session_id) if session_id else await greeted(here)
        for _ in range(3):
            await agent.tool()
        return agent.session_id

    session_id = running(tmp_path, some_steps)
    for _ in range(2):
        running(tmp_path, lambda here: some_steps(here, session_id))
    with SqliteChainReader(tmp_path / "guardian.db") as reader:
        (summary,) = reader.sessions(limit=2)
        report = verify_stored(reader, summary, KEYRING)
    assert report.findings == ()
    assert report.sessions[0].entries == summary.progress.entries == 9


def test_an_ended_session_stays_ended(tmp_path: Path) -> None:
    async def before(here: House) -> str:
        agent = await greeted(here)
        await agent.step("sessionEnd", {"reason": "completed"})
        return agent.session_id

    async def after(here: House) -> None:
        assert (await here.agent(session_id=session_id).tool()).reason_codes == ("session_closed",)

    session_id = running(tmp_path, before)
    running(tmp_path, after)


def test_refused_requests_stay_used(tmp_path: Path) -> None:
    async def before(here: House) -> tuple[str, bytes]:
        agent = await greeted(here)
        await agent.refused("userMessage", {"content": []})
        return agent.session_id, agent.sent[-1]

    async def after(here: House) -> None:
        answer = await here.agent(session_id=session_id).post(body)
        assert isinstance(answer, Refusal)
        assert answer.code == -32005

    session_id, body = running(tmp_path, before)
    running(tmp_path, after)


def test_names_that_stand_twice_in_a_hello_are_kept_once(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        hello = await agent.hello(methods=["system/ping", "steps/turnStart"] * 5_000)
        assert isinstance(hello, ServerHello)
        assert hello.methods_evaluated == ("system/ping", "steps/turnStart")

    running(tmp_path, work)


def test_a_hello_without_profiles_gets_none(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        payload = build_client_hello(methods=[], transports=["stdio"])
        del payload["profiles_supported"]
        hello = await agent.post(agent.body("handshake/hello", payload))
        assert isinstance(hello, ServerHello)
        assert "profiles_accepted" not in hello.document
        assert hello.methods_evaluated == ()

    running(tmp_path, work)


def test_a_guardian_whose_store_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    async def nothing(here: House) -> None:
        raise AssertionError("it started")

    with pytest.raises(StoreFailed):
        running(tmp_path / "nowhere", nothing)
