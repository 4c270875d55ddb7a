"""Engines that are asked over a wire, in the path of a step: heard before it, and about the session as it stands.

The engine here is one more at the port that Cedar uses: it shows what Rego or OPA would have to provide.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.guardian.kit import MESSAGE, TOOL_CALL, Agent, House, engine, findings, greeted, running
from tests.unit.guardian.test_approvals import again, answer, asked, verified

from turnkeeper.acs import Decision, Disposition, PolicyReference
from turnkeeper.guardian.pipeline import MAX_HEARINGS
from turnkeeper.policy.facts import Facts
from turnkeeper.policy.hosted import ENGINE_TIMEOUT, ComposedEngine, EngineUnavailable

REFERENCE = PolicyReference("house", "sha256:0", "rego", "main")
HOOKS = frozenset({"toolCallRequest", "turnEnd"})
ALLOW = Decision(Disposition.ALLOW, policy_references=(REFERENCE,))
ASK = {"approver": {"type": "human", "id": "operators"}, "question": "Run it?", "timeout_seconds": 60}
REDACTED = {"parameter_overrides": {"command": "pwd"}}
PATIENCE_S = 30

Word = Callable[[Facts], Awaitable[Decision]]


class Rego:
    """An engine whose word is a function's. `asked` is what it was asked about."""

    name = "rego"
    reference = REFERENCE

    def __init__(self, word: Word | Decision = ALLOW) -> None:
        self.word = word
        self.asked: list[Facts] = []

    def concerns(self, facts: Facts) -> bool:
        """Tool calls and ends of turns."""
        return facts.hook in HOOKS

    async def evaluate(self, facts: Facts) -> Decision:
        """The word."""
        self.asked.append(facts)
        return self.word if isinstance(self.word, Decision) else await self.word(facts)

    async def close(self) -> None:
        """Nothing to give back."""


def serving(folder: Path, rego: Rego, work: Callable[[House, Agent], Awaitable[None]]) -> None:
    """Runs some work with an agent of a Guardian whose rules allow, and which asks the engine too."""

    async def main(here: House) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work(here, await greeted(here))

    running(folder, main, policy=ComposedEngine(engine(), (rego,)))


def test_a_step_is_decided_by_what_the_engine_said_about_it(tmp_path: Path) -> None:
    async def word(facts: Facts) -> Decision:
        if facts.session.tool_calls < 3:
            return ALLOW
        return Decision(Disposition.DENY, "Two are enough.", ("too_many",), (REFERENCE,))

    async def work(here: House, agent: Agent) -> None:
        assert [(await agent.tool()).decision for _ in range(3)] == ["allow", "allow", "deny"]
        assert verified(here, agent) == set()

    serving(tmp_path, Rego(word), work)


def test_steps_that_the_engine_has_no_say_in_are_not_kept_waiting(tmp_path: Path) -> None:
    rego = Rego()

    async def word(facts: Facts) -> Decision:
        del facts
        await asyncio.Event().wait()
        return ALLOW

    rego.word = word

    async def work(here: House, agent: Agent) -> None:
        waiting = asyncio.ensure_future(agent.tool())
        assert (await agent.step("userMessage", MESSAGE)).decision == "allow"
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert here.guardian.in_flight == 0

    serving(tmp_path, rego, work)


def test_tool_calls_of_one_session_at_once_are_all_decided_each_as_it_stands(tmp_path: Path) -> None:
    async def word(facts: Facts) -> Decision:
        await asyncio.sleep(0)
        limit = facts.session.tool_calls > 6
        return Decision(Disposition.DENY, "Six.", ("six",), (REFERENCE,)) if limit else ALLOW

    async def work(here: House, agent: Agent) -> None:
        verdicts = await asyncio.gather(*(agent.tool() for _ in range(8)))
        assert sorted(verdict.decision for verdict in verdicts) == ["allow"] * 6 + ["deny"] * 2
        assert verified(here, agent) == set()

    serving(tmp_path, Rego(word), work)


def test_a_step_whose_session_changed_meanwhile_is_heard_again(tmp_path: Path) -> None:
    rego = Rego()

    async def work(here: House, agent: Agent) -> None:
        async def word(facts: Facts) -> Decision:
            if facts.session.steps == 1:
                await agent.step("userMessage", MESSAGE)
            return ALLOW

        rego.word = word
        assert (await agent.tool()).decision == "allow"
        assert [facts.session.steps for facts in rego.asked] == [1, 2]

    serving(tmp_path, rego, work)


def test_a_session_that_changes_whenever_the_engine_is_asked_gets_a_denial_in_the_end(tmp_path: Path) -> None:
    rego = Rego()

    async def work(here: House, agent: Agent) -> None:
        async def word(facts: Facts) -> Decision:
            del facts
            await agent.step("userMessage", MESSAGE)
            return ALLOW

        rego.word = word
        denied = await agent.tool()
        assert (denied.decision, denied.reason_codes) == ("deny", ("evaluation_failed", "facts_changed"))
        assert len(rego.asked) == MAX_HEARINGS
        assert verified(here, agent) == set()

    serving(tmp_path, rego, work)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(EngineUnavailable("late", code=ENGINE_TIMEOUT), "engine_timeout"), (RuntimeError("broken"), "engine_failed")],
)
def test_an_engine_without_a_word_denies_and_never_a_step_that_reports(
    tmp_path: Path, fault: Exception, code: str
) -> None:
    async def word(facts: Facts) -> Decision:
        del facts
        raise fault

    async def work(here: House, agent: Agent) -> None:
        await agent.turn_start("t")
        denied = await agent.tool("t")
        assert (denied.decision, denied.reason_codes) == ("deny", ("evaluation_failed", code))
        reported = await agent.turn_end("t")
        assert (reported.decision, reported.reason_codes) == ("allow", ("evaluation_failed", code))
        assert findings(here) == ["evaluation_failed", "evaluation_failed"]

    serving(tmp_path, Rego(word), work)


def test_a_step_that_is_sent_twice_is_heard_and_recorded_once(tmp_path: Path) -> None:
    rego = Rego()

    async def work(here: House, agent: Agent) -> None:
        body = agent.body("steps/toolCallRequest", TOOL_CALL)
        first, second = await asyncio.gather(*(agent.guardian.answer(body, agent.door) for _ in range(2)))
        assert (b'"allow"' in first, b"-32005" in second) == (True, True)
        assert b"-32005" in await agent.guardian.answer(body, agent.door)
        assert len(rego.asked) == 1

    serving(tmp_path, rego, work)


def test_a_grant_answers_the_engines_question_and_keeps_the_change_it_came_with(tmp_path: Path) -> None:
    question = Decision(Disposition.ASK, "A person decides.", ("sure",), ask_details=ASK, modifications=REDACTED)

    async def work(here: House, agent: Agent) -> None:
        request_id = await asked(agent, TOOL_CALL)
        answer(here)
        granted = await again(agent, request_id, TOOL_CALL)
        assert (granted.decision, granted.details) == ("modify", REDACTED)
        assert granted.reason_codes == ("approved",)

    serving(tmp_path, Rego(question), work)


def test_a_grant_lifts_no_denial_that_came_since(tmp_path: Path) -> None:
    rego = Rego(Decision(Disposition.ASK, "A person decides.", ("sure",), ask_details=ASK))

    async def work(here: House, agent: Agent) -> None:
        request_id = await asked(agent, TOOL_CALL)
        answer(here)
        rego.word = Decision(Disposition.DENY, "No more.", ("over",))
        assert (await again(agent, request_id, TOOL_CALL)).reason_codes == ("over",)

    serving(tmp_path, rego, work)


def test_who_holds_another_key_learns_nothing_and_costs_the_engine_nothing(tmp_path: Path) -> None:
    rego = Rego()

    async def work(here: House, agent: Agent) -> None:
        stranger = here.agent(key_id="other", session_id=agent.session_id)
        await stranger.post(stranger.body("steps/toolCallRequest", TOOL_CALL, request_id=str(uuid4())))
        assert rego.asked == []

    serving(tmp_path, rego, work)
