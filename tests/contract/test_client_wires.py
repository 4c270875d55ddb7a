"""One suite for every wire: what an agent of ours does is what the real Guardian finds nothing against."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.contract.client_rig import WIRES, Ends, ends

from turnkeeper.acs import Verdict
from turnkeeper.client import ClientSettings, GuardianClient, PostureRules, Retrieved, SessionNotStarted


@pytest.fixture(params=WIRES)
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ends]:
    """Both ends of each wire in turn."""
    with ends(tmp_path, request.param) as found:
        yield found


def list_files(command: str) -> str:
    """A tool."""
    return f"files of {command}"


async def two_turns(guardian: GuardianClient) -> None:
    """A session of two turns that carry data of every kind."""
    async with guardian.session(intent={"raw": "tidy up"}) as session:
        for text in ("hello", "again"):
            async with session.turn() as turn:
                await turn.user_message(text)
                await turn.knowledge_retrieval("q", [Retrieved("found", "wiki")])
                await turn.memory_context_retrieval([Retrieved("known")], store="notes")
                assert await turn.call_tool("shell", {"command": "ls"}, list_files) == "files of ls"
                await turn.memory_store("note", store="notes")
                assert await turn.agent_response("done") == "done"


@pytest.mark.parametrize("producer", ["none", "deterministic"])
def test_an_honest_session_leaves_no_finding_and_no_record(here: Ends, producer: str) -> None:
    """Counts, turn ids and lineage are what the Guardian counted and derived itself."""
    here.settings = ClientSettings(provenance="deterministic" if producer == "deterministic" else "none")
    here.run(two_turns)
    assert here.findings() == []
    assert here.records == []


def test_steps_asked_at_once_reach_one_chain_in_one_order(here: Ends) -> None:
    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            calls = (turn.call_tool("shell", {"command": f"c{number}"}, list_files) for number in range(10))
            assert await asyncio.gather(*calls) == [f"files of c{number}" for number in range(10)]

    here.settings = ClientSettings(witness_head=True)
    here.run(work)
    assert here.findings() == []


def test_sessions_side_by_side_do_not_wait_for_each_other(here: Ends) -> None:
    async def work(guardian: GuardianClient) -> None:
        await asyncio.gather(*(two_turns(guardian) for _ in range(4)))

    here.run(work)
    assert here.findings() == []


def test_a_ping_is_answered_and_proven(here: Ends) -> None:
    async def work(guardian: GuardianClient) -> None:
        answer = await guardian.ping(echo="hello")
        assert isinstance(answer, Verdict)
        assert answer.result["payload"] == answer.result["payload"] | {"status": "ok", "echo": "hello"}  # type: ignore[operator]

    here.run(work)


def test_a_session_goes_on_in_a_later_process_under_its_saved_terms(here: Ends) -> None:
    session_id = str(uuid4())

    async def first(guardian: GuardianClient) -> None:
        await guardian.session(session_id=session_id).__aenter__()

    async def later(guardian: GuardianClient) -> None:
        session = await guardian.attach(session_id)
        async with session.turn() as turn:
            await turn.agent_response("back again")

    here.run(first)
    here.run(later)
    assert here.findings() == []


def test_a_key_the_guardian_does_not_know_starts_no_session_where_the_agent_refuses(here: Ends) -> None:
    stranger = replace(here, secret=b"x" * 32, settings=ClientSettings(posture=PostureRules(startup="refuse")))
    with pytest.raises(SessionNotStarted, match="-32004"):
        stranger.run(two_turns)
    (record,) = here.records
    assert (record.event, record.outcome) == ("session_not_started", "blocked")
