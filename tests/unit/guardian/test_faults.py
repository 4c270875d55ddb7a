"""Faults of ours after authentication: a signed DENY, nothing half done, and the Guardian goes on by itself."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.guardian.kit import (
    ALLOW_ALL,
    IN_PROCESS,
    KEYRING,
    TOOL_CALL,
    Agent,
    House,
    engine,
    greeted,
    house,
    running,
)
from tests.unit.guardian.stores import Failing, until

from turnkeeper.acs import Decision, Disposition, PolicyReference, Refusal, ServerHello, Verdict
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.guardian.verify import verify_stored
from turnkeeper.policy.facts import Facts
from turnkeeper.store.chain_reader import SqliteChainReader


def assert_intact(here: House, agent: Agent) -> None:
    with SqliteChainReader(here.path) as reader:
        (summary,) = [found for found in reader.sessions(limit=99) if found.session_id == agent.session_id]
        report = verify_stored(reader, summary, KEYRING)
    assert report.findings == ()


def test_a_step_that_cannot_be_recorded_is_denied_and_may_be_sent_again(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agent = await greeted(here)
        body = agent.body("steps/toolCallRequest", TOOL_CALL)
        failing.store.failing_commits = 1
        lost = await agent.post(body)
        assert isinstance(lost, Verdict)
        assert (lost.decision, lost.reason_codes, lost.chain_hash) == ("deny", ("store_failed",), None)
        again = await agent.post(body)
        assert isinstance(again, Verdict)
        assert again.decision == "allow"
        assert_intact(here, agent)

    running(tmp_path, work, wrap=failing)


def test_an_audit_hook_that_cannot_be_recorded_gets_a_signed_error(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.turn_start("t")
        failing.store.failing_commits = 1
        refusal = await agent.refused("turnEnd", {"turn_id": "t", "outcome": "completed"}, turn_id="t")
        assert (refusal.code, refusal.reason) == (-32603, "store_failed")
        assert (await agent.turn_end("t")).reason_codes == ()

    running(tmp_path, work, wrap=failing)


def test_a_hello_that_cannot_be_recorded_opens_no_session(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agent = here.agent()
        failing.store.failing_commits = 1
        lost = await agent.hello()
        assert isinstance(lost, Refusal)
        assert lost.code == -32603
        assert (await agent.refused("toolCallRequest", TOOL_CALL)).reason == "session_unknown"
        assert isinstance(await agent.hello(), ServerHello)

    running(tmp_path, work, wrap=failing)


def test_everything_that_builds_on_a_failed_commit_is_denied_with_it(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agents = [await greeted(here) for _ in range(3)]
        failing.store.gate.clear()
        failing.store.failing_commits = 1
        first = asyncio.create_task(agents[0].tool())
        await until(lambda: failing.store.waiting)
        rest = [asyncio.create_task(agent.tool()) for agent in agents for _ in range(4)]
        await until(lambda: here.guardian.in_flight == 13)
        failing.store.gate.set()
        verdicts = await asyncio.gather(first, *rest)
        assert {verdict.reason_codes for verdict in verdicts} == {("store_failed",)}
        assert [(await agent.tool()).decision for agent in agents] == ["allow"] * 3
        for agent in agents:
            assert_intact(here, agent)

    running(tmp_path, work, wrap=failing)


def test_a_commit_that_fails_after_it_was_durable_leaves_a_chain_that_goes_on(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agent = await greeted(here)
        failing.store.failing_commits, failing.store.fails_after_commit = 1, True
        request_id = "3d3f7b0e-7d0b-4a39-9d55-4f3bb0f3a001"
        lost = await agent.tool(request_id=request_id)
        assert lost.reason_codes == ("store_failed",)
        repeated = await agent.refused("toolCallRequest", TOOL_CALL, request_id=request_id)
        assert repeated.recorded is not None
        assert repeated.recorded.decision == "allow"
        assert (await agent.tool()).decision == "allow"
        assert_intact(here, agent)

    running(tmp_path, work, wrap=failing)


def test_under_load_steps_share_commits(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agents = [await greeted(here) for _ in range(20)]
        before = len(failing.store.batches)
        failing.store.gate.clear()
        steps = [asyncio.create_task(agent.tool()) for agent in agents]
        await until(lambda: here.guardian.in_flight == 20)
        failing.store.gate.set()
        await asyncio.gather(*steps)
        assert len(failing.store.batches) - before <= 2

    running(tmp_path, work, wrap=failing)


def test_an_answer_waits_for_its_commit(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agent = await greeted(here)
        failing.store.gate.clear()
        step = asyncio.create_task(agent.tool())
        await until(lambda: failing.store.waiting)
        assert not step.done()
        failing.store.gate.set()
        assert (await step).decision == "allow"

    running(tmp_path, work, wrap=failing)


def test_a_step_whose_sender_has_gone_is_recorded_all_the_same(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agent = await greeted(here)
        failing.store.gate.clear()
        body = agent.body("steps/toolCallRequest", TOOL_CALL)
        gone = asyncio.create_task(here.guardian.answer(body, IN_PROCESS))
        await until(lambda: failing.store.waiting)
        gone.cancel()
        failing.store.gate.set()
        await agent.tool()
        replay = await agent.post(body)
        assert isinstance(replay, Refusal)
        assert replay.code == -32005
        assert_intact(here, agent)

    running(tmp_path, work, wrap=failing)


def test_a_session_that_cannot_be_loaded_gets_a_denial_and_is_loaded_later(tmp_path: Path) -> None:
    failing = Failing()
    session_id = running(tmp_path, _open_session)

    async def work(here: House) -> None:
        agent = here.agent(session_id=session_id)
        failing.store.failing_loads = 1
        assert (await agent.tool()).reason_codes == ("store_failed",)
        assert (await agent.tool()).decision == "allow"

    running(tmp_path, work, wrap=failing)


async def _open_session(here: House) -> str:
    return (await greeted(here)).session_id


def test_more_requests_than_may_be_in_flight_are_denied_and_leave_nothing(tmp_path: Path) -> None:
    failing = Failing()

    async def work(here: House) -> None:
        agent = await greeted(here)
        failing.store.gate.clear()
        waiting = [asyncio.create_task(agent.tool()) for _ in range(4)]
        await until(lambda: here.guardian.in_flight == 4)
        body = agent.body("steps/toolCallRequest", TOOL_CALL)
        refused = await agent.post(body)
        assert isinstance(refused, Verdict)
        assert (refused.decision, refused.reason_codes) == ("deny", ("overloaded",))
        failing.store.gate.set()
        await asyncio.gather(*waiting)
        assert isinstance(await agent.post(body), Verdict)

    running(tmp_path, work, wrap=failing, settings=GuardianSettings(max_in_flight=4))


def test_after_stop_a_step_is_denied_as_shutting_down(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            agent = await greeted(here)
        late = await agent.tool()
        assert (late.decision, late.reason_codes) == ("deny", ("shutting_down",))

    asyncio.run(main())


def test_stop_lets_what_is_in_flight_become_durable(tmp_path: Path) -> None:
    failing = Failing()

    async def main() -> None:
        async with house(tmp_path, wrap=failing) as here:
            agent = await greeted(here)
            failing.store.gate.clear()
            step = asyncio.create_task(agent.tool())
            await until(lambda: failing.store.waiting)
            stop = asyncio.create_task(here.guardian.stop())
            failing.store.gate.set()
            await stop
            assert (await step).decision == "allow"

    asyncio.run(main())


class Panic(BaseException):
    """What a foreign binding raises."""


class BrokenEngine:
    """An engine that does one wrong thing."""

    reference = PolicyReference(policy_id="broken")

    def __init__(self, fault: BaseException | object) -> None:
        self._fault = fault

    def evaluate(self, facts: Facts) -> Decision:
        """Raises or returns the fault."""
        if isinstance(self._fault, BaseException):
            raise self._fault
        return self._fault  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("fault", [ValueError("secret"), Panic("secret"), RecursionError("secret"), None, "allow"])
def test_an_engine_that_fails_denies_and_tells_nothing(tmp_path: Path, fault: object) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        verdict = await agent.tool()
        assert (verdict.decision, verdict.reason_codes) == ("deny", ("evaluation_failed",))
        assert verdict.chain_hash is not None
        assert b"secret" not in agent.answers[-1]
        assert b'"policy_id":"broken"' in agent.answers[-1]
        end = await agent.step("sessionEnd", {"reason": "completed"})
        assert (end.decision, end.reason_codes) == ("allow", ("evaluation_failed",))

    running(tmp_path, work, policy=BrokenEngine(fault))


@pytest.mark.parametrize(
    ("decision", "code"),
    [
        (Decision(Disposition.MODIFY, "m", modifications={"modified_content": "x"}), "evaluation_failed"),
        (Decision(Disposition.DEFER, "d", defer_details={"reason": "low_confidence"}), "evaluation_failed"),
    ],
)
def test_a_disposition_we_cannot_give_is_a_denial(tmp_path: Path, decision: Decision, code: str) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.tool()).reason_codes == (code,)
        start = await agent.turn_start("t")
        assert (start.decision, start.reason_codes) == ("deny", ("disposition_not_permitted",))

    running(tmp_path, work, policy=BrokenEngine(decision))


def test_a_rule_against_an_audit_hook_is_replaced_and_noted(tmp_path: Path) -> None:
    policy = ALLOW_ALL.replace(b"[]", b"[{id: a, decision: deny, reasoning: No., hooks: [sessionEnd]}]")

    async def work(here: House) -> None:
        agent = await greeted(here)
        end = await agent.step("sessionEnd", {"reason": "completed"})
        assert (end.decision, end.reason_codes) == ("allow", ("disposition_not_permitted", "policy_denied"))
        assert end.chain_hash is not None
        with SqliteChainReader(here.path) as reader:
            (found,) = reader.findings(limit=9)
        assert found.finding.code == "disposition_not_permitted"

    running(tmp_path, work, policy=engine(policy))
