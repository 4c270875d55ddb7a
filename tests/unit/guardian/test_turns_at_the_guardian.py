"""Turn windows through the whole pipeline: counts for rules, reason codes, findings, restarts."""

from pathlib import Path

from tests.unit.guardian.kit import ALLOW_ALL, MESSAGE, House, engine, greeted, running

from turnkeeper.guardian.ports import TurnSummary
from turnkeeper.store.chain_reader import SqliteChainReader

THREE_CALLS = ALLOW_ALL.replace(
    b"[]",
    b"""
  - id: three
    hooks: [toolCallRequest]
    when: turn.tool_calls > 3
    decision: deny
    reasoning: At most three tool calls in a turn.
    reason_codes: [tool_call_limit]""",
)


def findings(here: House) -> list[str]:
    with SqliteChainReader(here.path) as reader:
        return [found.finding.code for found in reader.findings(limit=99)]


def turns(here: House, session_id: str) -> list[TurnSummary]:
    with SqliteChainReader(here.path) as reader:
        return list(reader.turns(session_id))


def test_a_limit_per_turn_holds_across_a_restart_and_ends_with_the_turn(tmp_path: Path) -> None:
    policy = engine(THREE_CALLS)

    async def before(here: House) -> str:
        agent = await greeted(here)
        await agent.turn_start("t")
        assert [(await agent.tool("t")).decision for _ in range(4)] == ["allow", "allow", "allow", "deny"]
        return agent.session_id

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        assert (await agent.tool("t")).reason_codes == ("tool_call_limit",)
        assert (await agent.turn_end("t", step_count=5, tool_call_count=5)).reason_codes == ()
        await agent.turn_start("u")
        assert (await agent.tool("u")).decision == "allow"

    session_id = running(tmp_path, before, policy=policy)
    running(tmp_path, after, policy=policy)


def test_an_honest_turn_leaves_its_counts_and_no_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.turn_start("t")
        await agent.step("userMessage", MESSAGE, turn_id="t")
        await agent.tool("t")
        end = await agent.turn_end("t", step_count=2, tool_call_count=1)
        assert (end.decision, end.reason_codes) == ("allow", ())
        assert turns(here, agent.session_id) == [
            TurnSummary("t", 1, False, "completed", 2, 1, triggered_by="user_message")
        ]
        assert findings(here) == []

    running(tmp_path, work)


def test_wrong_turn_ends_are_allowed_noted_and_close_nothing(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        early = await agent.turn_end("t")
        await agent.turn_start("t")
        foreign = await agent.turn_end("u")
        await agent.tool("t")
        counted = await agent.turn_end("t", step_count=0, tool_call_count=0)
        second = await agent.turn_end("t")
        assert early.reason_codes == foreign.reason_codes == second.reason_codes == ("turn_mismatch",)
        assert counted.reason_codes == ("step_count_mismatch", "tool_call_count_mismatch")
        assert all(end.decision == "allow" and end.chain_hash for end in (early, foreign, counted, second))
        assert turns(here, agent.session_id) == [
            TurnSummary("t", 1, False, "completed", 1, 1, triggered_by="user_message")
        ]
        assert findings(here) == [
            "turn_mismatch",
            "turn_mismatch",
            "step_count_mismatch",
            "tool_call_count_mismatch",
            "turn_mismatch",
        ]

    running(tmp_path, work)


def test_neither_a_new_turn_start_nor_a_foreign_id_escapes_the_count(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.turn_start("t")
        for turn_id in ("t", "u", None):
            assert (await agent.tool(turn_id)).decision == "allow"
        assert (await agent.turn_start("u")).decision == "allow"
        assert (await agent.tool("u")).reason_codes == ("tool_call_limit",)
        assert findings(here) == ["turn_id_foreign", "turn_id_missing", "turn_already_open", "turn_id_foreign"]

    running(tmp_path, work, policy=engine(THREE_CALLS))


def test_a_denied_turn_start_opens_a_window_that_its_turn_end_closes(tmp_path: Path) -> None:
    policy = ALLOW_ALL.replace(b"[]", b"[{id: a, decision: deny, reasoning: No., hooks: [turnStart]}]")

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.turn_start("t")).decision == "deny"
        end = await agent.turn_end("t", outcome="denied_at_start", step_count=0, tool_call_count=0)
        assert end.reason_codes == ()
        assert turns(here, agent.session_id) == [
            TurnSummary("t", 1, True, "denied_at_start", 0, 0, triggered_by="user_message")
        ]

    running(tmp_path, work, policy=engine(policy))


def test_the_same_turn_may_come_back_in_a_window_of_its_own(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for outcome in ("deferred", "completed"):
            await agent.turn_start("t")
            await agent.tool("t")
            assert (await agent.turn_end("t", outcome=outcome, step_count=1, tool_call_count=1)).reason_codes == ()
        assert [turn.ordinal for turn in turns(here, agent.session_id)] == [1, 2]

    running(tmp_path, work)


def test_a_turn_start_that_is_refused_opens_nothing(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.refused("turnStart", {"turn_id": "t", "triggered_by": "nobody"}, turn_id="t")
        assert (await agent.turn_end("t")).reason_codes == ("turn_mismatch",)

    running(tmp_path, work)


def test_denied_steps_count_as_steps_of_the_turn(tmp_path: Path) -> None:
    policy = ALLOW_ALL.replace(b"[]", b"[{id: a, decision: deny, reasoning: No., hooks: [toolCallRequest]}]")

    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.turn_start("t")
        await agent.tool("t")
        await agent.tool("t", chain_hash="0" * 64)
        assert (await agent.turn_end("t", step_count=2, tool_call_count=2)).reason_codes == ()

    running(tmp_path, work, policy=engine(policy))


def test_a_session_that_ends_inside_a_turn_is_noted(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.turn_start("t")
        await agent.step("sessionEnd", {"reason": "abandoned"})
        assert findings(here) == ["turn_left_open"]

    running(tmp_path, work)
