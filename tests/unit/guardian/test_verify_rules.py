"""Verify goes through the built-in rules again: what they owed an answer must be in it."""

from pathlib import Path

import orjson
from tests.unit.guardian.kit import DENY_ALL, KEYRING, WITH_PROVENANCE, Agent, House, engine, greeted, running
from tests.unit.guardian.samples import AGBOM, PAYLOADS, provenance, result, said, summary
from tests.unit.guardian.test_skills import loading, registering

from turnkeeper.acs import link, sign_response
from turnkeeper.guardian.auditing import Severity
from turnkeeper.guardian.export import export_lines
from turnkeeper.guardian.verify import VerifyReport, verify_export
from turnkeeper.store.chain_reader import SqliteChainReader


def lines_of(here: House, agent: Agent) -> list[bytes]:
    """A session's export."""
    with SqliteChainReader(here.path) as reader:
        return list(export_lines(reader, agent.session_id))


def codes(report: VerifyReport, severity: Severity = Severity.BREAK) -> set[str]:
    """What was found."""
    return {found.code for found in report.findings if found.severity is severity}


def told_otherwise(line: bytes, **changes: object) -> bytes:
    """A line whose answer was changed by whoever holds the key."""
    document = orjson.loads(line)
    session_id = document["request"]["params"]["metadata"]["session_id"]
    document["response"]["result"] |= changes
    document["response"] = sign_response(document["response"], KEYRING.session_key("default", session_id))
    return orjson.dumps(document) + b"\n"


async def a_rich_session(here: House) -> Agent:
    """Deferral, nesting, taint, a skill, an intent, a summary, and two steps that built-in rules deny."""
    agent = await greeted(here, claims=WITH_PROVENANCE)
    await agent.step("sessionStart", {"intent": {"raw": "tidy"}})
    await agent.step("agbom/snapshot", {"agbom": AGBOM})
    await agent.step("agentTrigger", {"trigger_type": "scheduled", "intent": {"raw": "other"}})
    await agent.turn_start("t")
    await agent.step("userMessage", said(provenance("m", "user_input")), turn_id="t")
    await agent.step("toolCallResult", result(provenance("a", "external", "m")), turn_id="t")
    await agent.turn_end("t", outcome="deferred")
    await agent.step("turnStart", {"turn_id": "t", "triggered_by": "auto_continuation"}, turn_id="t")
    inner = {"turn_id": "n", "triggered_by": "agent_loop", "parent_turn_id": "t"}
    await agent.step("turnStart", inner, turn_id="n")
    await agent.step("skillRegister", registering("k"), turn_id="n")
    await agent.step("skillLoad", loading("k"), turn_id="n")
    await agent.step("skillLoad", loading("other"), turn_id="n")
    await agent.turn_end("n", step_count=3)
    await agent.turn_end("t", step_count=3, **summary("m"))
    await agent.step("sessionEnd", {"reason": "completed"})
    return agent


def test_a_session_that_meets_every_rule_verifies_and_shows_what_happened(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        report = verify_export(lines_of(here, await a_rich_session(here)), KEYRING)
        assert report.intact
        assert codes(report, Severity.NOTICE) == {
            "intent_mismatch",
            "outcome_deferred_without_defer",
            "lineage_mismatch",
        }
        assert [(turn.turn_id, turn.steps) for turn in report.sessions[0].turns] == [("t", 2), ("n", 3), ("t", 3)]

    running(tmp_path, work)


def test_an_answer_that_lets_through_what_a_rule_denies_is_found_although_it_is_signed(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        lines = lines_of(here, await a_rich_session(here))
        assert b"skill_unverifiable" in lines[12]
        lines[12] = told_otherwise(lines[12], decision="allow", reason_codes=[])
        assert codes(verify_export(lines, KEYRING)) == {"rule_not_applied"}

    running(tmp_path, work)


def test_an_answer_that_hides_a_broken_lineage_is_found(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        lines = lines_of(here, await a_rich_session(here))
        assert b"lineage_mismatch" in lines[14]
        lines[14] = told_otherwise(lines[14], reason_codes=["other"])
        assert codes(verify_export(lines, KEYRING)) == {"answer_disagrees"}

    running(tmp_path, work)


def relinked(lines: list[bytes], *, without_summary: range) -> list[bytes]:
    """The chain as somebody with the key would write it, some entries without their provenance_summary."""
    head: str | None = None
    written: list[bytes] = []
    for number, line in enumerate(lines):
        document = orjson.loads(line)
        if document["entry"] is None:
            written.append(line)
            continue
        if number in without_summary:
            del document["entry"]["provenance_summary"]
        document["entry"] = link(document["entry"], head)
        head = document["entry"]["entry_hash"]
        written.append(told_otherwise(orjson.dumps(document), chain_hash=head))
    return written


def test_entries_of_an_older_program_have_no_summary_and_later_ones_may_not_lose_it(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for _ in range(4):
            await agent.step("userMessage", PAYLOADS["steps/userMessage"])
        lines = lines_of(here, agent)
        assert verify_export(relinked(lines, without_summary=range(3)), KEYRING).findings == ()
        assert verify_export(relinked(lines, without_summary=range(9)), KEYRING).findings == ()
        assert codes(verify_export(relinked(lines, without_summary=range(3, 4)), KEYRING)) == {"entry_differs"}

    running(tmp_path, work)


def test_a_session_of_every_hook_under_a_policy_that_denies_all_verifies(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for method, payload in PAYLOADS.items():
            await agent.step(method, payload)
        assert verify_export(lines_of(here, agent), KEYRING).intact

    running(tmp_path, work, policy=engine(DENY_ALL))
