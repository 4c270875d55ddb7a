"""The Guardian's record on a real PostgreSQL that is killed, stopped, or wanted by two Guardians at once."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import orjson
import pytest
from tests.integration.guardian_process import KEYRING, METHODS, TOOL_CALL, Client
from tests.integration.postgres_place import PostgresPlace, postgres_place

from turnkeeper.acs import Disposition, Verdict, build_client_hello
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import STORE_FAILED, Guardian
from turnkeeper.guardian.ports import StoreFailed
from turnkeeper.guardian.verify import verify_stored
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.shipped import default_rules
from turnkeeper.store.chain_postgres_link import PatientConnection
from turnkeeper.store.guardian_database import guardian_database
from turnkeeper.store.guardian_refusals import StoreInUse

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

CLIENTS = 6
KILLS = 2
DEADLINE_S = 60
DOOR = Door("http", KEYRING)


@pytest.fixture(scope="module")
def place() -> Iterator[PostgresPlace]:
    """One server; whoever kills it starts it again."""
    with postgres_place() as running:
        yield running


@dataclass
class Agent(Client):
    """A client in this process. `denied` counts the steps that the Guardian could not record."""

    url: str = ""
    denied: int = 0
    progress: asyncio.Event = field(default_factory=asyncio.Event)

    async def step(self, guardian: Guardian) -> Verdict:
        """One step; what its answer said is remembered."""
        request_id = str(uuid4())
        body = self.body("steps/toolCallRequest", TOOL_CALL, request_id)
        answer = self.session.answer(await guardian.answer(body, DOOR), request_id=request_id)
        assert isinstance(answer, Verdict)
        if answer.chain_hash is not None:
            self.decided[request_id] = answer.chain_hash
        else:
            assert (answer.decision, answer.reason_codes) == (Disposition.DENY, (STORE_FAILED,))
            self.denied += 1
        self.progress.set()
        return answer

    async def greet(self, guardian: Guardian) -> None:
        """Shakes hands."""
        request_id = str(uuid4())
        hello = build_client_hello(methods=METHODS, transports=["http"])
        answer = await guardian.answer(self.body("handshake/hello", hello, request_id), DOOR)
        self.session.answer(answer, request_id=request_id)

    async def until_decided(self, more: int) -> None:
        """Returns once so many more of its steps were decided."""
        wanted = len(self.decided) + more
        while len(self.decided) < wanted:
            await self._moved()

    async def until_denied(self) -> None:
        """Returns once one more of its steps could not be recorded."""
        wanted = self.denied + 1
        while self.denied < wanted:
            await self._moved()

    async def _moved(self) -> None:
        self.progress.clear()
        await self.progress.wait()


@asynccontextmanager
async def running(url: str) -> AsyncGenerator[Guardian, None]:
    """A Guardian over a database."""
    guardian = Guardian(store=guardian_database(url).store(), engine=CelEngine(default_rules()), clock=SystemClock())
    await guardian.start()
    try:
        yield guardian
    finally:
        await guardian.stop()


async def work(agent: Agent, guardian: Guardian) -> None:
    """Sends steps until it is told to stop."""
    while True:
        await agent.step(guardian)


@asynccontextmanager
async def load(guardian: Guardian) -> AsyncGenerator[list[Agent], None]:
    """Agents that send steps, until the end of the block."""
    agents = [Agent() for _ in range(CLIENTS)]
    for agent in agents:
        await agent.greet(guardian)
    tasks = [asyncio.create_task(work(agent, guardian)) for agent in agents]
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield agents
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def check_record(url: str, agents: list[Agent]) -> None:
    """Every decision that was answered is in the record, and every chain is whole."""
    with guardian_database(url).reader() as reader:
        for agent in agents:
            rows = {
                orjson.loads(row.request or b"")["params"]["request_id"]: row for row in reader.rows(agent.session_id)
            }
            for request_id, head in agent.decided.items():
                assert orjson.loads(rows[request_id].entry or b"")["entry_hash"] == head
        for summary in reader.sessions(limit=99):
            assert verify_stored(reader, summary, KEYRING).findings == ()


def test_a_killed_server_loses_no_answered_decision_and_the_guardian_goes_on_by_itself(place: PostgresPlace) -> None:
    async def main() -> None:
        async with running(place.url) as guardian, load(guardian) as agents:
            for _ in range(KILLS):
                await asyncio.gather(*(agent.until_decided(10) for agent in agents))
                place.kill()
                await asyncio.gather(*(agent.until_denied() for agent in agents))
                await asyncio.to_thread(place.start)
                await asyncio.gather(*(agent.until_decided(1) for agent in agents))
        check_record(place.url, agents)

    asyncio.run(main())


def test_a_connection_that_is_cut_costs_the_steps_in_flight_and_nothing_else(place: PostgresPlace) -> None:
    async def main() -> None:
        agent = Agent()
        async with running(place.url) as guardian:
            await agent.greet(guardian)
            await agent.step(guardian)
            place.cut("application_name LIKE 'turnkeeper%'")
            answers = [(await agent.step(guardian)).chain_hash is not None for _ in range(3)]
        assert answers == [False, True, True]
        check_record(place.url, [agent])

    asyncio.run(main())


def test_two_guardians_on_one_database_are_one_too_many(place: PostgresPlace) -> None:
    async def main() -> None:
        async with running(place.url) as first:
            await Agent().greet(first)
            with pytest.raises(StoreInUse, match="server process"):
                async with running(place.url):
                    pass
            assert len(place.writers()) == 1

    asyncio.run(main())


def test_a_guardian_whose_place_was_taken_denies_until_it_is_free_again(place: PostgresPlace) -> None:
    async def main() -> None:
        agent = Agent()
        async with running(place.url) as first:
            await agent.greet(first)
            await agent.step(first)
            place.cut("application_name = 'turnkeeper guardian'")
            async with running(place.url) as second:
                assert (await agent.step(second)).chain_hash is not None
                assert (await agent.step(first)).chain_hash is None
                assert (await agent.step(first)).chain_hash is None
            # What the second one added is known: the chain goes on from there.
            assert (await agent.step(first)).chain_hash is not None
        check_record(place.url, [agent])

    asyncio.run(main())


def test_a_server_that_says_nothing_is_given_up_and_taken_back_when_it_speaks(
    place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        agent = Agent()
        async with running(place.url) as guardian:
            await agent.greet(guardian)
            (writer,) = place.writers()
            os.kill(writer, signal.SIGSTOP)
            try:
                assert (await agent.step(guardian)).chain_hash is None
                # The lock is still the silent process's.
                assert (await agent.step(guardian)).chain_hash is None
            finally:
                os.kill(writer, signal.SIGCONT)
            while (await agent.step(guardian)).chain_hash is None:
                pass
        check_record(place.url, [agent])

    monkeypatch.setattr(PatientConnection, "answer_timeout_ms", 500)
    asyncio.run(main())


def test_a_database_that_is_away_is_a_refusal_at_the_start_without_its_password() -> None:
    url = "postgresql://ana:sesame@127.0.0.1:1/nowhere"
    with pytest.raises(StoreFailed, match="cannot be opened") as refused:
        guardian_database(url).store().open()
    assert "sesame" not in str(refused.value)
