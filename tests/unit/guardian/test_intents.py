"""Intent and subagents: fixed once, the user's own, and never more than the parent's (CORE-INT, CORE-SUB)."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.guardian.kit import ALLOW_ALL, Agent, House, engine, findings, greeted, running
from tests.unit.guardian.samples import HASH, provenance

from turnkeeper.guardian.memory import MAX_INTENT_BYTES

READ: Mapping[str, str] = {"tool": "fs", "operation": "read", "resource": "file:///data/*"}
ANY_GET: Mapping[str, str] = {"tool": "http", "operation": "*"}
RAW_ONLY = ALLOW_ALL.replace(
    b"[]",
    b"""
  - id: i
    hooks: [toolCallRequest]
    when: intent.raw == 'tidy' && intent.scope_mode == 'strict' && intent.capabilities[0].operation == 'read'
    decision: deny
    reasoning: Seen.""",
)


def intent(*capabilities: Mapping[str, str], raw: str = "tidy", origin: str = "user_input") -> dict[str, object]:
    """An intent."""
    parsed: dict[str, object] = {
        "parsed": [dict(one) for one in capabilities],
        "parser_provenance": provenance("p", origin),
    }
    return {"raw": raw, "scope_mode": "strict"} | (parsed if capabilities else {})


async def trigger(agent: Agent, stated: Mapping[str, object] | None) -> tuple[str, tuple[str, ...]]:
    """The answer to an agentTrigger."""
    payload = {"trigger_type": "scheduled"} | ({} if stated is None else {"intent": stated})
    answer = await agent.step("agentTrigger", payload)
    return answer.decision, answer.reason_codes


def test_the_intent_of_the_session_start_is_fixed_across_a_restart(tmp_path: Path) -> None:
    """CORE-INT-02, CORE-INT-03."""
    policy = engine(RAW_ONLY)

    async def before(here: House) -> str:
        agent = await greeted(here)
        await agent.step("sessionStart", {"intent": intent(READ)})
        return agent.session_id

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        assert await trigger(agent, intent(READ)) == ("allow", ())
        assert await trigger(agent, intent(READ, ANY_GET)) == ("deny", ("intent_mismatch",))
        assert await trigger(agent, None) == ("allow", ())
        assert (await agent.tool()).decision == "deny"
        assert findings(here) == ["intent_mismatch"]

    session_id = running(tmp_path, before, policy=policy)
    running(tmp_path, after, policy=policy)


def test_the_first_trigger_fixes_what_the_start_left_open_and_also_that_there_is_none(tmp_path: Path) -> None:
    """CORE-INT-02, CORE-INT-04."""

    async def work(here: House) -> None:
        later, never = await greeted(here), await greeted(here)
        await later.step("sessionStart", {})
        assert (await trigger(later, intent(READ)))[0] == "allow"
        assert await trigger(later, intent(ANY_GET)) == ("deny", ("intent_mismatch",))
        assert (await trigger(never, None))[0] == "allow"
        assert await trigger(never, intent(READ)) == ("deny", ("intent_mismatch",))

    running(tmp_path, work)


@pytest.mark.parametrize("origin", ["tool_output", "agent_generated", "system", "external"])
def test_an_intent_parsed_from_anything_but_the_users_words_is_denied_and_fixes_nothing(
    tmp_path: Path, origin: str
) -> None:
    """CORE-INT-01."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert await trigger(agent, intent(READ, origin=origin)) == ("deny", ("intent_origin_not_user",))
        assert await trigger(agent, intent(READ)) == ("allow", ())
        assert findings(here) == ["intent_origin_not_user"]

    running(tmp_path, work)


def test_a_second_session_start_is_a_finding_and_an_intent_too_large_is_denied(tmp_path: Path) -> None:
    """CORE-HOOK-03."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        huge = await agent.step("sessionStart", {"intent": intent(raw="x" * MAX_INTENT_BYTES)})
        assert (huge.decision, huge.reason_codes) == ("deny", ("session_memory_full",))
        await agent.step("sessionStart", {})
        await agent.step("sessionStart", {})
        assert findings(here) == ["session_start_repeated"]

    running(tmp_path, work)


def spawning(agent: Agent, derivation: str, stated: Mapping[str, object] | None) -> dict[str, object]:
    """A subagentStart."""
    payload: dict[str, object] = {
        "subagent_session_id": str(uuid4()),
        "parent_session_id": agent.session_id,
        "parent_step_id": str(uuid4()),
        "intent_derivation": derivation,
    }
    return payload if stated is None else payload | {"subagent_intent": stated}


@pytest.mark.parametrize(
    ("derivation", "stated", "decision"),
    [
        ("inherit_full", None, "allow"),
        ("inherit_subset", intent(READ), "allow"),
        ("inherit_subset", intent(READ | {"resource": "file:///data/x"}), "allow"),
        ("inherit_subset", intent({"tool": "http", "operation": "get", "resource": "https://a"}), "allow"),
        ("inherit_subset", intent(READ | {"resource": "file:///etc/passwd"}), "deny"),
        ("inherit_subset", intent(READ, READ | {"operation": "write"}), "deny"),
        ("inherit_subset", intent({"tool": "fs", "operation": "read"}), "deny"),
        ("inherit_full", intent({"tool": "shell"}), "deny"),
        ("derived_from_parent", intent({"tool": "shell"}), "deny"),
        ("fresh", intent({"tool": "shell"}), "allow"),
    ],
)
def test_a_derived_intent_permits_no_more_than_its_parents(
    tmp_path: Path, derivation: str, stated: Mapping[str, object] | None, decision: str
) -> None:
    """CORE-SUB-02: what is `fresh` is the policy's to judge."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.step("sessionStart", {"intent": intent(READ, ANY_GET)})
        answer = await agent.step("subagentStart", spawning(agent, derivation, stated))
        codes = () if decision == "allow" else ("subagent_intent_exceeds",)
        assert (answer.decision, answer.reason_codes) == (decision, codes)

    running(tmp_path, work)


def test_a_subagent_whose_intent_is_not_the_users_is_denied_and_another_parent_is_noted(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        foreign = spawning(agent, "fresh", intent(READ, origin="tool_output"))
        assert (await agent.step("subagentStart", foreign)).reason_codes == ("intent_origin_not_user",)
        other = spawning(agent, "fresh", None) | {"parent_session_id": str(uuid4())}
        assert (await agent.step("subagentStart", other)).decision == "allow"
        assert findings(here) == ["intent_origin_not_user", "subagent_parent_differs"]

    running(tmp_path, work)


def test_a_subagents_last_head_is_compared_where_its_chain_is_ours(tmp_path: Path) -> None:
    """CORE-SUB-03 to 06: two chains; without a head, or with one we cannot know, there is nothing to compare."""

    async def work(here: House) -> None:
        parent, child = await greeted(here), await greeted(here)
        head = (await child.step("sessionEnd", {"reason": "completed"})).chain_hash
        stop: dict[str, object] = {"subagent_session_id": child.session_id, "outcome": "completed"}
        elsewhere = stop | {"subagent_session_id": str(uuid4()), "final_chain_hash": HASH}
        for payload in (stop, stop | {"final_chain_hash": head}, elsewhere):
            assert (await parent.step("subagentStop", payload)).decision == "allow"
        assert findings(here) == []
        assert (await parent.step("subagentStop", stop | {"final_chain_hash": HASH})).decision == "allow"
        assert findings(here) == ["subagent_chain_hash_differs"]

    running(tmp_path, work)


def test_another_key_learns_nothing_about_a_session_by_naming_it_as_a_subagents(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        child, stranger = await greeted(here), here.agent(key_id="other")
        await stranger.hello()
        await child.step("sessionStart", {})
        stop: dict[str, object] = {"subagent_session_id": child.session_id, "outcome": "completed"}
        await stranger.step("subagentStop", stop | {"final_chain_hash": HASH})
        assert findings(here) == []

    running(tmp_path, work)
