"""Requirements of the Guardian that no other test shows, each asked at the door of a real one."""

import socket
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import orjson
import pytest
from tests.conformance.requirements import ROOT
from tests.unit.guardian.kit import (
    DENY_ALL,
    IN_PROCESS,
    MESSAGE,
    TOOL_CALL,
    Agent,
    House,
    engine,
    findings,
    greeted,
    running,
)
from tests.unit.guardian.samples import PAYLOADS
from tests.unit.guardian.test_faults import BrokenEngine

from turnkeeper.acs import (
    Decision,
    Disposition,
    ModificationsRejected,
    ServerHello,
    apply_modifications,
    chain,
    sign_request,
    validator,
)
from turnkeeper.clock import render_time
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.shipped import default_rules
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.testing.fake_clock import FakeClock

WINDOW_MS = 300_000


async def answered(here: House, document: dict[str, Any], agent: Agent) -> dict[str, Any]:
    """The answer to a document that the agent signs as it is."""
    body = orjson.dumps(sign_request(document, agent.session.key))
    return cast("dict[str, Any]", orjson.loads(await here.guardian.answer(body, IN_PROCESS)))


def terms(hello: ServerHello) -> dict[str, Any]:
    """What a hello was answered, its signature aside."""
    return {name: member for name, member in hello.document.items() if name != "signature"}


def entries(here: House, agent: Agent) -> list[dict[str, Any]]:
    """A session's chain as it is stored."""
    with SqliteChainReader(here.path) as reader:
        return [orjson.loads(row.entry) for row in reader.rows(agent.session_id) if row.entry is not None]


@pytest.mark.requirement("CORE-WIRE-04")
def test_a_member_beside_the_four_of_json_rpc_is_refused(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL))
        answer = await answered(here, document | {"meta": {}}, agent)
        assert answer["error"]["code"] == -32600
        document["params"]["meta"] = {}
        assert (await answered(here, document, agent))["result"]["decision"] == "allow"

    running(tmp_path, work)


@pytest.mark.requirement("CORE-WIRE-17")
@pytest.mark.parametrize("method", ["trace/export", "protocols/A2A/message/send"])
def test_a_reserved_namespace_is_refused_and_never_decided(tmp_path: Path, method: str) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL)) | {"method": method}
        answer = await answered(here, document, agent)
        assert answer["error"]["code"] in (-32601, -32003)

    running(tmp_path, work)


@pytest.mark.requirement("CORE-HS-19")
def test_a_hello_for_a_session_that_ran_unguarded_is_its_first(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        await agent.refused("toolCallRequest", TOOL_CALL)
        assert isinstance(await agent.hello(), ServerHello)
        await agent.tool()
        assert [entry["step_type"] for entry in entries(here, agent)] == ["steps/toolCallRequest"]

    running(tmp_path, work)


@pytest.mark.requirement("CORE-HS-21")
def test_a_hello_with_signature_algorithms_gets_the_same_terms(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        plain = await here.agent().hello()
        claiming = await here.agent().hello(claims={"signature_algorithms_supported": ["ML-DSA-65"]})
        assert isinstance(plain, ServerHello)
        assert isinstance(claiming, ServerHello)
        assert terms(claiming) == terms(plain)

    running(tmp_path, work)


@pytest.mark.requirement("CORE-HOOK-03")
def test_the_first_entry_of_a_session_hashes_nothing_before_it(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        verdict = await agent.step("sessionStart", {})
        (entry,) = entries(here, agent)
        assert entry["previous_hash"] is None
        assert verdict.chain_hash == entry["entry_hash"] == chain.entry_hash(entry, None)

    running(tmp_path, work)


@pytest.mark.requirement("CORE-HOOK-04")
def test_a_session_that_starts_with_another_step_roots_its_chain_there(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.step("userMessage", MESSAGE)
        assert [entry["previous_hash"] for entry in entries(here, agent)] == [None]

    running(tmp_path, work)


@pytest.mark.requirement("CORE-END-02")
def test_a_replay_after_the_session_end_is_still_a_replay(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.tool()
        early = agent.sent[-1]
        await agent.step("sessionEnd", {"reason": "completed"})
        document = orjson.loads(await here.guardian.answer(early, IN_PROCESS))
        assert document["error"]["code"] == -32005

    running(tmp_path, work)


@pytest.mark.requirement("CORE-RPL-05")
def test_an_id_from_the_future_edge_is_a_replay_for_as_long_as_it_is_fresh(tmp_path: Path) -> None:
    clock = FakeClock()

    async def work(here: House) -> None:
        agent = await greeted(here)
        edge = render_time(clock.now() + timedelta(milliseconds=WINDOW_MS))
        await agent.tool(timestamp=edge)
        clock.advance(2 * WINDOW_MS)
        document = orjson.loads(await here.guardian.answer(agent.sent[-1], IN_PROCESS))
        assert document["error"]["code"] == -32005

    running(tmp_path, work, clock=clock, settings=GuardianSettings(skew_window_ms=WINDOW_MS))


@pytest.mark.requirement("CORE-RPL-08")
def test_a_replay_is_no_finding(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.tool()
        await here.guardian.answer(agent.sent[-1], IN_PROCESS)
        assert findings(here) == []

    running(tmp_path, work)


@pytest.mark.requirement("CORE-SKILL-06")
def test_an_approved_skill_is_approved_in_its_session_alone(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        first, second = await greeted(here), await greeted(here)
        await first.step("skillRegister", PAYLOADS["steps/skillRegister"])
        load = PAYLOADS["steps/skillLoad"]
        assert (await first.step("skillLoad", load)).decision is Disposition.ALLOW
        assert (await second.step("skillLoad", load)).decision is Disposition.DENY

    running(tmp_path, work)


@pytest.mark.requirement("CORE-CMP-03")
@pytest.mark.requirement("CORE-CMP-04")
def test_a_compaction_is_never_denied(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        before = await agent.tool()
        after = await agent.step("steps/postCompact", PAYLOADS["steps/postCompact"])
        assert (before.decision, after.decision) == (Disposition.DENY, Disposition.ALLOW)
        assert after.chain_hash not in (None, before.chain_hash)

    running(tmp_path, work, policy=engine(DENY_ALL))


@pytest.mark.requirement("CORE-SUB-04")
@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled", "timeout", "denied_at_spawn"])
def test_every_outcome_of_a_subagent_is_allowed_under_a_policy_that_denies_all(tmp_path: Path, outcome: str) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        verdict = await agent.step("subagentStop", {"subagent_session_id": str(uuid4()), "outcome": outcome})
        assert verdict.decision is Disposition.ALLOW

    running(tmp_path, work, policy=engine(DENY_ALL))


@pytest.mark.requirement("CORE-CH-01")
@pytest.mark.requirement("CORE-CH-02")
@pytest.mark.requirement("CORE-CH-12")
@pytest.mark.requirement("AUD-01")
@pytest.mark.requirement("AUD-02")
def test_every_stored_entry_obeys_the_schema(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for method, payload in PAYLOADS.items():
            await agent.step(method, payload)
        stored = entries(here, agent)
        assert len(stored) == len(PAYLOADS)
        for entry in stored:
            # The schema has no turn_id and the first entry's hash has nothing before it.
            validator("context-entry").check(
                {name: member for name, member in entry.items() if name != "turn_id" and member is not None}
            )
            assert {"request_hash", "timestamp", "provenance_summary"} <= entry.keys()
            assert [name for name, member in entry.items() if member is None] in ([], ["previous_hash"])

    running(tmp_path, work)


@pytest.mark.requirement("CORE-SIG-04")
def test_a_list_of_signed_fields_changes_nothing(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL))
        document["params"]["signature"]["signed_fields"] = ["method"]
        document["params"]["payload"] = {"tool": {"name": "other"}, "arguments": {}}
        answer = orjson.loads(await here.guardian.answer(orjson.dumps(document), IN_PROCESS))
        assert answer["error"]["code"] == -32004

    running(tmp_path, work)


@pytest.mark.requirement("CORE-SIG-13")
def test_signatures_are_compared_by_the_constant_time_function() -> None:
    source = (ROOT / "src" / "turnkeeper" / "acs" / "signatures.py").read_text()
    assert source.count("hmac.compare_digest(") == 1
    assert "mac ==" not in source
    assert "== mac" not in source.replace("b64encode(mac).decode() == value", "")


@pytest.mark.requirement("CORE-MOD-01")
@pytest.mark.requirement("CORE-MOD-02")
@pytest.mark.parametrize(
    "modifications",
    [
        {"modified_content": "x", "redactions": [{"path": "/arguments/command"}]},
        {"modified_content": "x", "parameter_overrides": {"command": "pwd"}},
        {"redactions": [{"path": "/arguments"}], "parameter_overrides": {"command": "pwd"}},
    ],
)
def test_modifications_of_two_meanings_are_never_sent(tmp_path: Path, modifications: dict[str, Any]) -> None:
    decision = Decision(Disposition.MODIFY, "both", modifications=modifications)

    async def work(here: House) -> None:
        verdict = await (await greeted(here)).tool()
        assert verdict.decision is Disposition.DENY
        assert "evaluation_failed" in verdict.reason_codes
        assert "modifications" not in verdict.result

    running(tmp_path, work, policy=BrokenEngine(decision))


@pytest.mark.requirement("MCP-06")
def test_modifications_of_a_wrapped_call_address_its_arguments() -> None:
    arguments = {"a/b~c": "old", "d": "kept"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": arguments}}
    overridden = apply_modifications(call, {"parameter_overrides": {"a/b~c": "new"}})
    redacted = apply_modifications(call, {"redactions": [{"path": "/params/arguments/a~1b~0c", "replacement": "new"}]})
    assert overridden == redacted == call | {"params": {"name": "t", "arguments": {"a/b~c": "new", "d": "kept"}}}
    with pytest.raises(ModificationsRejected):
        apply_modifications(
            call, {"parameter_overrides": {"d": "new"}, "redactions": [{"path": "/params/arguments/d"}]}
        )


@pytest.mark.requirement("ENG-02")
def test_a_policy_is_evaluated_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(here: House) -> Disposition:
        agent = await greeted(here)
        monkeypatch.setattr(socket, "socket", None)
        monkeypatch.setattr(socket, "create_connection", None)
        return (await agent.tool()).decision

    assert running(tmp_path, work, policy=CelEngine(default_rules())) is Disposition.ALLOW


@pytest.mark.requirement("ENG-06")
def test_a_tenant_is_signed_and_changes_no_decision(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL))
        document["params"]["tenant_id"] = "acme"
        signed = sign_request(document, agent.session.key)
        moved = signed | {"params": cast("dict[str, Any]", signed["params"]) | {"tenant_id": "other"}}
        refused = orjson.loads(await here.guardian.answer(orjson.dumps(moved), IN_PROCESS))
        assert refused["error"]["code"] == -32004
        decided = orjson.loads(await here.guardian.answer(orjson.dumps(signed), IN_PROCESS))
        assert decided["result"]["decision"] == "allow"

    running(tmp_path, work)
