"""The turn ledger: deferral, nesting, taint and outcomes (CORE-TURN-01 to 03, CORE-INT-05)."""

from pathlib import Path

from tests.unit.guardian.kit import ALLOW_ALL, MESSAGE, Agent, House, engine, findings, greeted, running
from tests.unit.guardian.samples import provenance, result

from turnkeeper.guardian.memory import MAX_DEFERRED_TURNS
from turnkeeper.guardian.ports import TurnSummary
from turnkeeper.guardian.windows import MAX_NESTED_TURNS
from turnkeeper.store.chain_reader import SqliteChainReader

AT_MOST_TWO = ALLOW_ALL.replace(
    b"[]",
    b"""
  - {id: two, hooks: [toolCallRequest], when: turn.tool_calls > 2, decision: deny, reasoning: Two at most.}""",
)
NOTHING_AFTER_TAINT = ALLOW_ALL.replace(
    b"[]",
    b"""
  - {id: t, hooks: [toolCallRequest], when: turn.tainted, decision: deny, reasoning: Turn., reason_codes: [turn]}
  - id: s
    hooks: [agentResponse]
    when: session.tainted && session.turns_since_taint == 1 && session.taint_step == payload.reasoning
    decision: deny
    reasoning: Session.
    reason_codes: [session]""",
)
DENIED = ALLOW_ALL.replace(
    b"[]", b"\n  - {id: never, hooks: [turnStart], when: 'true', decision: deny, reasoning: No.}"
)
STEP = "1b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"


def turns(here: House) -> list[TurnSummary]:
    """The turn windows of the only session."""
    with SqliteChainReader(here.path) as reader:
        (session,) = reader.sessions(limit=9)
        return list(reader.turns(session.session_id))


async def started(agent: Agent, turn_id: str, parent: str | None = None) -> None:
    """A turn inside another."""
    named = {} if parent is None else {"parent_turn_id": parent}
    await agent.step("turnStart", {"turn_id": turn_id, "triggered_by": "agent_loop"} | named, turn_id=turn_id)


def test_a_deferred_turn_comes_back_with_its_counts_across_a_restart(tmp_path: Path) -> None:
    policy = engine(AT_MOST_TWO)

    async def before(here: House) -> str:
        agent = await greeted(here)
        await agent.turn_start("t")
        await agent.tool("t")
        await agent.turn_end("t", outcome="deferred", step_count=1, tool_call_count=1)
        return agent.session_id

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        await agent.step("turnStart", {"turn_id": "t", "triggered_by": "auto_continuation"}, turn_id="t")
        assert [(await agent.tool("t")).decision for _ in range(2)] == ["allow", "deny"]
        # What a turnEnd states are the counts of its own window.
        assert (await agent.turn_end("t", step_count=2, tool_call_count=2)).reason_codes == ()
        await agent.turn_start("u")
        assert (await agent.tool("u")).decision == "allow"

    session_id = running(tmp_path, before, policy=policy)
    running(tmp_path, after, policy=policy)


def test_a_turn_inside_another_clears_no_count(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await started(agent, "outer")
        assert (await agent.tool("outer")).decision == "allow"
        await started(agent, "inner", "outer")
        assert [(await agent.tool("inner")).decision for _ in range(2)] == ["allow", "deny"]
        assert (await agent.turn_end("inner", step_count=2, tool_call_count=2)).reason_codes == ()
        assert (await agent.turn_end("outer", step_count=3, tool_call_count=3)).reason_codes == ()
        outer, inner = turns(here)
        assert (outer.turn_id, outer.steps, outer.denials) == ("outer", 3, 1)
        assert (inner.parent_turn_id, inner.steps, inner.denials, inner.triggered_by) == ("outer", 2, 1, "agent_loop")
        assert findings(here) == []

    running(tmp_path, work, policy=engine(AT_MOST_TWO))


def test_taint_is_the_turns_own_and_the_sessions_for_good(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here, claims={"provenance_producer": "deterministic"})
        await agent.turn_start("t")
        await agent.step("toolCallResult", result(provenance("a")), turn_id="t", request_id=STEP)
        await agent.step("toolCallResult", result(provenance("b", "system")), turn_id="t")
        assert (await agent.tool("t")).reason_codes == ("turn",)
        await agent.turn_end("t")
        await agent.turn_start("u")
        assert (await agent.tool("u")).decision == "allow"
        named = {**MESSAGE, "reasoning": STEP}
        assert (await agent.step("agentResponse", named, turn_id="u")).reason_codes == ("session",)
        assert turns(here)[0].taint_step == STEP

    running(tmp_path, work, policy=engine(NOTHING_AFTER_TAINT))


def test_outcomes_that_contradict_the_guardians_answers_are_findings(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for outcome in ("denied_at_start", "deferred", "completed", "error"):
            await agent.turn_start(outcome)
            end = await agent.turn_end(outcome, outcome=outcome)
            assert (end.decision, end.reason_codes) == ("allow", ())
        assert findings(here) == ["outcome_denied_after_allow", "outcome_deferred_without_defer"]

    running(tmp_path, work)


def test_a_turn_that_completes_after_its_start_was_denied_is_a_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.turn_start("t")
        await agent.turn_end("t")
        await agent.turn_start("u")
        await agent.turn_end("u", outcome="denied_at_start")
        assert findings(here) == ["outcome_completed_after_deny"]

    running(tmp_path, work, policy=engine(DENIED))


def test_a_session_with_too_many_deferred_turns_begins_no_other(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for number in range(MAX_DEFERRED_TURNS):
            await agent.turn_start(str(number))
            await agent.turn_end(str(number), outcome="deferred")
        answer = await agent.turn_start("more")
        assert (answer.decision, answer.reason_codes) == ("deny", ("session_memory_full",))
        await agent.turn_end("more", outcome="denied_at_start")
        assert (await agent.turn_start("0")).decision == "allow"

    running(tmp_path, work)


def test_a_turns_summary_is_kept_with_it(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here, claims={"provenance_producer": "deterministic"})
        await agent.turn_start("t")
        await agent.step("toolCallResult", result(provenance("a"), provenance("b")), turn_id="t")
        whole = {"value": "in short", "provenance": provenance("s", "agent_generated", "b", "a")}
        assert (await agent.turn_end("t", summary=whole)).reason_codes == ()
        assert [turn.summary for turn in turns(here)] == ["in short"]
        assert findings(here) == []

    running(tmp_path, work)


def test_a_budget_of_the_session_is_counted_by_the_guardian_over_turns_and_restarts(tmp_path: Path) -> None:
    """CORE-INT-05: neither new turns nor what the agent says of its counts give any of it back."""
    policy = engine(AT_MOST_TWO.replace(b"turn.tool_calls", b"session.tool_calls"))

    async def before(here: House) -> str:
        agent = await greeted(here)
        for turn_id in "tu":
            await agent.turn_start(turn_id)
            assert (await agent.tool(turn_id)).decision == "allow"
            await agent.turn_end(turn_id, tool_call_count=0)
        return agent.session_id

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        await agent.turn_start("v")
        assert (await agent.tool("v")).decision == "deny"

    session_id = running(tmp_path, before, policy=policy)
    running(tmp_path, after, policy=policy)


def test_only_so_many_turns_are_open_inside_one_another(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await started(agent, "0")
        for depth in range(1, MAX_NESTED_TURNS + 1):
            await started(agent, str(depth), str(depth - 1))
        assert findings(here) == ["turn_already_open"]
        assert len(turns(here)) == MAX_NESTED_TURNS

    running(tmp_path, work)
