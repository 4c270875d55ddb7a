"""Decisions that may not be given are replaced by stricter ones, and an auditor sees each (ACS 6.3, 6.5 and 9.2)."""

from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.guardian.kit import TOOL_CALL, House, engine, findings, greeted, running

from turnkeeper.guardian.capabilities import AskFallback, ClientAbilities, ClientEntry, abilities_of
from turnkeeper.guardian.dispositions import describe
from turnkeeper.guardian.settings import GuardianSettings

POLICY = b"""
version: 1
name: details
default: allow
rules:
  - id: hide
    hooks: [toolCallRequest]
    tools: [shell]
    decision: modify
    reasoning: Keys are hidden.
    modify: {redactions: [{path: /arguments/command/value}]}
  - id: shorten
    hooks: [postCompact]
    decision: modify
    reasoning: Too long.
    modify: {modified_content: short}
  - id: ask
    hooks: [toolCallRequest]
    tools: [delete]
    decision: ask
    reasoning: A person decides.
    ask: {question: "Delete?", timeout_seconds: 60, approver: {type: human, id: operators}}
  - id: wait
    hooks: [toolCallRequest]
    tools: [wait]
    decision: defer
    reasoning: Not yet.
    defer: {reason: low_confidence, resolution_method: timeout, resolution_timeout_ms: 1000, timeout_decision: ask}
"""
PLAIN = ClientAbilities(can_modify=False, can_ask=False)
FIRM = ClientAbilities(can_modify=False, can_ask=False, ask_fallback=AskFallback.DENY)


def settings(abilities: ClientAbilities, max_deferrals: int = 3) -> GuardianSettings:
    return GuardianSettings(clients=(ClientEntry(abilities, key_id="default"),), max_deferrals=max_deferrals)


def call(tool: str) -> dict[str, object]:
    return {**TOOL_CALL, "tool": {"name": tool}}


def test_a_client_that_can_is_sent_the_modifications(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        verdict = await (await greeted(here)).tool()
        assert verdict.decision == "modify"
        assert verdict.result["modifications"] == {"redactions": [{"path": "/arguments/command/value"}]}
        assert findings(here) == []

    running(tmp_path, work, policy=engine(POLICY))


def test_a_client_that_cannot_modify_is_denied_and_told_what_it_would_have_been(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        verdict = await (await greeted(here)).tool()
        assert (verdict.decision, verdict.reason_codes) == ("deny", ("modify_unsupported", "policy_modified"))
        assert "a redaction of /arguments/command/value" in (verdict.reasoning or "")
        assert findings(here) == ["modify_unsupported"]

    running(tmp_path, work, policy=engine(POLICY), settings=settings(PLAIN))


def test_a_compaction_that_cannot_be_modified_is_allowed_and_noted(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        before = await agent.step("userMessage", {"content": [{"type": "text", "value": "hello"}]})
        summary = {"value": "long", "provenance": {"provenance_id": "s", "origin": "agent_generated"}}
        payload = {
            "summary": summary,
            "entries_compacted": [str(uuid4())],
            "pre_compact_chain_hash": before.chain_hash,
            "post_compact_chain_hash": "0" * 64,
        }
        verdict = await agent.step("postCompact", payload)
        assert (verdict.decision, verdict.reason_codes[0]) == ("allow", "modify_unsupported")
        assert "modify_unsupported" in findings(here)

    running(tmp_path, work, policy=engine(POLICY), settings=settings(PLAIN))


def test_a_client_that_cannot_ask_waits_for_the_same_approver_by_deferral(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        verdict = await (await greeted(here)).step("toolCallRequest", call("delete"))
        assert (verdict.decision, verdict.reason_codes[0]) == ("defer", "approver_unavailable")
        assert verdict.result["defer_details"] == {
            "reason": "pending_dependency",
            "resolution_method": "human_approval",
            "resolution_timeout_ms": 60_000,
            "timeout_decision": "deny",
        }
        assert findings(here) == ["approver_unavailable"]

    running(tmp_path, work, policy=engine(POLICY), settings=settings(PLAIN))


def test_a_client_that_cannot_ask_may_be_set_to_be_denied(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        verdict = await (await greeted(here)).step("toolCallRequest", call("delete"))
        assert (verdict.decision, verdict.reason_codes[0]) == ("deny", "approver_unavailable")
        assert "approver of type human (ask)" in (verdict.reasoning or "")

    running(tmp_path, work, policy=engine(POLICY), settings=settings(FIRM))


def test_a_deferral_that_would_end_in_a_question_ends_in_a_denial_for_who_cannot_ask(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        verdict = await (await greeted(here)).step("toolCallRequest", call("wait"))
        assert verdict.decision == "defer"
        assert '"timeout_decision": "deny"' in str(verdict.result["defer_details"]).replace("'", '"')
        assert findings(here) == ["approver_unavailable"]

    running(tmp_path, work, policy=engine(POLICY), settings=settings(PLAIN))


@pytest.mark.parametrize("tool", ["wait", "delete"])
def test_deferrals_of_a_session_are_bounded_whether_asked_for_or_substituted(tmp_path: Path, tool: str) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        decisions = [(await agent.step("toolCallRequest", call(tool))).decision for _ in range(2)]
        last = await agent.step("toolCallRequest", call(tool))
        assert (decisions, last.decision) == (["defer", "defer"], "deny")
        assert last.reason_codes[0] == "deferral_bound_exceeded"
        assert "deferral_bound_exceeded" in findings(here)

    running(tmp_path, work, policy=engine(POLICY), settings=settings(PLAIN, max_deferrals=2))


def test_another_sessions_deferrals_do_not_count(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        for _ in range(2):
            assert (await (await greeted(here)).step("toolCallRequest", call("wait"))).decision == "defer"

    running(tmp_path, work, policy=engine(POLICY), settings=settings(ClientAbilities(), max_deferrals=1))


def test_where_several_entries_name_a_client_it_can_do_what_all_of_them_say() -> None:
    clients = (
        ClientEntry(ClientAbilities(can_modify=False), key_id="k"),
        ClientEntry(ClientAbilities(approver_types=frozenset({"human"})), agent_id="a"),
        ClientEntry(FIRM, key_id="k", agent_id="other"),
    )
    known = abilities_of(clients, "k", "a")
    assert (known.can_modify, known.can_ask, known.ask_fallback) == (False, True, AskFallback.DEFER)
    assert known.can_wait_for("human")
    assert not known.can_wait_for("agent")
    assert abilities_of(clients, "z", "z") == ClientAbilities()


def test_modifications_are_described_without_their_values() -> None:
    many = {"redactions": [{"path": f"/{number}", "replacement": "secret"} for number in range(12)]}
    assert describe(many).endswith("a redaction of /9 and 2 more")
    assert "secret" not in describe({"parameter_overrides": {"path": "secret"}})


@pytest.mark.parametrize("number", ["5.0", "1.0e-6", "1.0e+16", "9007199254740991"])
def test_numbers_of_a_policys_making_are_signed_in_their_canonical_form(tmp_path: Path, number: str) -> None:
    policy = POLICY.replace(
        b"{redactions: [{path: /arguments/command/value}]}", b"{parameter_overrides: {command: %b}}"
    )

    async def work(here: House) -> None:
        # The agent believes no answer whose signature does not verify.
        assert (await (await greeted(here)).tool()).decision == "modify"

    running(tmp_path, work, policy=engine(policy % number.encode()))
