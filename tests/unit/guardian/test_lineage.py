"""Provenance, trust and the lineage of summaries (PROV-01 to 09, CORE-CMP-02 to 06)."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.guardian.kit import ALLOW_ALL, Agent, House, engine, findings, greeted, running
from tests.unit.guardian.samples import HASH, provenance, result, said, summary

from turnkeeper.acs import RequestEnvelope, build_request
from turnkeeper.guardian.provenance import (
    MAX_PROVENANCE_ID_CHARACTERS,
    MAX_PROVENANCE_IDS,
    KnownDatum,
    Lineage,
    TrustOverride,
    lowest,
    trace,
)
from turnkeeper.guardian.settings import GuardianSettings, SettingRefused
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.store.chain_reader import SqliteChainReader

PRODUCER: Mapping[str, object] = {"provenance_producer": "deterministic"}


def request_of(payload: Mapping[str, object], hook: str = "toolCallResult") -> RequestEnvelope:
    """A request that nobody signed."""
    return RequestEnvelope.of(
        build_request(
            method=f"steps/{hook}",
            rpc_id=1,
            request_id=str(uuid4()),
            timestamp="2026-12-01T10:00:00Z",
            agent_id="a",
            session_id="s",
            payload=payload,
        )
    )


def unless_trust_is(trust: str) -> PolicyEngine:
    """A policy that denies results of any other trust."""
    rule = (
        f"\n  - {{id: x, hooks: [toolCallResult], when: provenance.trust != '{trust}', decision: deny, reasoning: No.}}"
    )
    return engine(ALLOW_ALL.replace(b"[]", rule.encode()))


@pytest.mark.parametrize(
    ("origin", "trust"),
    [
        ("user_input", "trusted"),
        ("system", "trusted"),
        ("tool_output", "untrusted"),
        ("retrieved", "untrusted"),
        ("a2a_inbound", "untrusted"),
        ("external", "untrusted"),
        ("agent_generated", "unknown"),
    ],
)
def test_trust_is_derived_from_the_origin_and_a_received_one_changes_nothing(
    tmp_path: Path, origin: str, trust: str
) -> None:
    """PROV-06, and none is ever sent."""

    async def work(here: House) -> None:
        agent = await greeted(here, claims=PRODUCER)
        claimed = provenance("a", origin, trust="trusted" if trust == "untrusted" else "untrusted")
        assert (await agent.step("toolCallResult", result(claimed))).decision == "allow"
        assert b'"trust"' not in agent.answers[-1]

    running(tmp_path, work, policy=unless_trust_is(trust))


@given(st.lists(st.sampled_from(["user_input", "tool_output", "agent_generated"]), min_size=1, max_size=12), st.data())
def test_trust_never_rises_along_a_derivation(origins: list[str], data: st.DataObject) -> None:
    """PROV-05: what was made of something is trusted no more than that, however long the way."""
    lineage = Lineage()
    for number, origin in enumerate(origins):
        parents = data.draw(st.lists(st.integers(0, number - 1), unique=True) if number else st.just([]))
        names = [str(parent) for parent in parents]
        lineage.add(trace(request_of(result(provenance(str(number), origin, *names))), lineage, None, {}).remembered)
        made = lineage.find(str(number))
        assert made is not None
        for name in names:
            parent = lineage.find(name)
            assert parent is not None
            assert lowest(made.trust, parent.trust) == made.trust


def test_what_derives_from_an_unknown_id_or_from_itself_is_untrusted() -> None:
    """PROV-09."""
    for parent in ("nobody", "a"):
        traced = trace(request_of(result(provenance("a", "user_input", parent))), Lineage(), None, {})
        assert (traced.trust, traced.codes) == ("untrusted", ("provenance_unknown",))


def test_an_unknown_parent_and_a_repeated_id_are_findings(tmp_path: Path) -> None:
    """PROV-03, PROV-09: and a repeated id cannot wash what it stood for."""

    async def work(here: House) -> None:
        agent = await greeted(here, claims=PRODUCER)
        await agent.step("toolCallResult", result(provenance("a")))
        await agent.step("userMessage", said(provenance("a", "user_input")))
        washed = await agent.step("toolCallResult", result(provenance("b", "agent_generated", "a")))
        await agent.step("toolCallResult", result(provenance("c", "agent_generated", "nobody")))
        assert washed.decision == "allow"
        assert findings(here) == ["provenance_id_repeated", "provenance_unknown"]

    running(tmp_path, work, policy=unless_trust_is("untrusted"))


def test_provenance_where_none_was_declared_is_a_finding(tmp_path: Path) -> None:
    """PROV-02."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.step("toolCallResult", result(provenance("a")))).decision == "allow"
        assert findings(here) == ["provenance_undeclared"]

    running(tmp_path, work)


def test_an_override_holds_for_its_source_alone_and_is_recorded_once(tmp_path: Path) -> None:
    """PROV-07."""
    settings = GuardianSettings(trust_overrides=(TrustOverride("tool_output", "clock", "trusted"),))

    async def work(here: House) -> None:
        agent = await greeted(here, claims=PRODUCER)
        trusted = [await agent.step("toolCallResult", result(provenance(name, source_id="clock"))) for name in "ab"]
        other = await agent.step("toolCallResult", result(provenance("c", source_id="web")))
        assert [answer.decision for answer in (*trusted, other)] == ["allow", "allow", "deny"]
        with SqliteChainReader(here.path) as reader:
            (found,) = reader.findings(limit=9)
        assert found.finding.code == "trust_overridden"
        assert all(word in found.finding.message for word in ("tool_output", "clock", "trusted", "untrusted"))

    running(tmp_path, work, policy=unless_trust_is("trusted"), settings=settings)


def test_an_override_with_a_trust_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingRefused):
        GuardianSettings(trust_overrides=(TrustOverride("external", "x", "very"),))


def test_past_its_bound_a_session_forgets_no_id_and_trusts_no_new_one() -> None:
    old = [KnownDatum(str(number), "r", None, "trusted", 0) for number in range(MAX_PROVENANCE_IDS)]
    lineage = Lineage(old)
    late = trace(request_of(result(provenance("late", "user_input"))), lineage, None, {})
    assert (late.trust, late.forgotten, late.remembered) == ("trusted", True, ())
    assert trace(request_of(result(provenance("x", "system", "late"))), lineage, None, {}).trust == "untrusted"
    assert trace(request_of(result(provenance("x", "system", "0"))), lineage, None, {}).trust == "trusted"


def test_an_id_longer_than_is_remembered_is_not() -> None:
    longest = "x" * MAX_PROVENANCE_ID_CHARACTERS
    traced = trace(request_of(result(provenance(longest), provenance(longest + "y"))), Lineage(), None, {})
    assert [datum.provenance_id for datum in traced.remembered] == [longest]
    assert traced.forgotten


def test_a_union_that_cannot_be_known_whole_is_unverifiable_and_no_mismatch(tmp_path: Path) -> None:
    """CORE-CMP-02: but what is known must be in it all the same."""
    longer = "x" * (MAX_PROVENANCE_ID_CHARACTERS + 1)

    async def work(here: House) -> None:
        agent, step = await greeted(here, claims=PRODUCER), str(uuid4())
        await agent.step("toolCallResult", result(provenance("a"), provenance(longer)), request_id=step)
        whole = await agent.step("postCompact", compaction(agent, [step], None, "a", longer))
        short = await agent.step("postCompact", compaction(agent, [step], None, longer, name="again"))
        assert (whole.reason_codes, short.reason_codes) == (("lineage_unverifiable",), ("lineage_mismatch",))
        assert findings(here)[0] == "lineage_full"

    running(tmp_path, work)


async def two_results(agent: Agent) -> list[str]:
    """Two entries with three ids; their step ids."""
    steps = [str(uuid4()), str(uuid4())]
    await agent.step("toolCallResult", result(provenance("a"), provenance("b")), request_id=steps[0])
    await agent.step("toolCallResult", result(provenance("c")), request_id=steps[1])
    return steps


def compaction(agent: Agent, steps: list[str], head: str | None, *parents: str, **members: str) -> dict[str, object]:
    """A postCompact over some steps."""
    stated = {"entries_compacted": steps, "pre_compact_chain_hash": head or HASH, "post_compact_chain_hash": HASH}
    return summary(*parents, **members) | stated


@pytest.mark.parametrize(
    ("parents", "origin", "codes"),
    [
        (("b", "c", "a"), "agent_generated", ()),
        (("a", "b"), "agent_generated", ("lineage_mismatch",)),
        (("a", "b", "c", "d"), "agent_generated", ("lineage_mismatch",)),
        ((), "agent_generated", ("lineage_mismatch",)),
        (("a", "b", "c"), "system", ("lineage_mismatch",)),
    ],
)
def test_a_compaction_derives_from_exactly_what_it_replaced(
    tmp_path: Path, parents: tuple[str, ...], origin: str, codes: tuple[str, ...]
) -> None:
    """CORE-CMP-02 to 05: never denied, always with its entry."""

    async def work(here: House) -> None:
        agent = await greeted(here, claims=PRODUCER)
        steps = await two_results(agent)
        answer = await agent.step("agentResponse", said(provenance("other", "agent_generated", "a")))
        done = await agent.step(
            "postCompact", compaction(agent, steps, answer.chain_hash, *parents, origin=origin), request_id=str(uuid4())
        )
        assert (done.decision, done.reason_codes) == ("allow", codes)
        assert done.chain_hash not in (None, answer.chain_hash)
        assert [code for code in findings(here) if code != "provenance_unknown"] == list(codes)

    running(tmp_path, work)


def test_a_compaction_after_another_head_is_a_finding(tmp_path: Path) -> None:
    """CORE-CMP-05: the head before it can be checked, the one after it cannot."""

    async def work(here: House) -> None:
        agent = await greeted(here, claims=PRODUCER)
        steps = await two_results(agent)
        await agent.step("postCompact", compaction(agent, steps, None, "a", "b", "c"))
        assert findings(here) == ["compaction_chain_hash_differs"]

    running(tmp_path, work)


def test_lineage_outlives_the_content_of_its_entries_and_a_restart(tmp_path: Path) -> None:
    """CORE-CMP-06."""

    async def before(here: House) -> tuple[str, list[str]]:
        agent = await greeted(here, claims=PRODUCER)
        return agent.session_id, await two_results(agent)

    async def after(here: House) -> None:
        agent = here.agent(session_id=session_id)
        whole = await agent.step("postCompact", compaction(agent, steps, None, "a", "b", "c"))
        short = await agent.step("postCompact", compaction(agent, steps, None, "a", "b", name="again"))
        assert (whole.reason_codes, short.reason_codes) == ((), ("lineage_mismatch",))

    session_id, steps = running(tmp_path, before)
    connection = sqlite3.connect(tmp_path / "guardian.db")
    connection.execute("UPDATE steps SET request = NULL, response = NULL, entry = NULL, chain_hash = NULL")
    connection.commit()
    connection.close()
    running(tmp_path, after)


def test_a_turns_summary_derives_from_exactly_its_turns_data(tmp_path: Path) -> None:
    """`lineage_mismatch` at turnEnd; another turn's data belongs to another summary."""

    async def work(here: House) -> None:
        agent = await greeted(here, claims=PRODUCER)
        for turn_id, parents in (("t", ("t-1",)), ("u", ("u-1", "t-1")), ("v", ())):
            await agent.turn_start(turn_id)
            await agent.step("toolCallResult", result(provenance(f"{turn_id}-1")), turn_id=turn_id)
            end = await agent.turn_end(turn_id, **summary(*parents, name=f"{turn_id}-s"))
            assert end.reason_codes == (() if turn_id == "t" else ("lineage_mismatch",))

    running(tmp_path, work)
