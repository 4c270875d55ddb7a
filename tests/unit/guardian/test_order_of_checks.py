"""The order of checks (ledger section 1): what is answered to each broken request, and what it leaves behind."""

import asyncio
from pathlib import Path
from typing import cast

import orjson
import pytest
from tests.unit.guardian.kit import IN_PROCESS, MESSAGE, STRANGERS, TOOL_CALL, Agent, House, greeted, running

from turnkeeper.acs import Refusal, ServerHello, Verdict, sign_request
from turnkeeper.clock import render_time
from turnkeeper.store.chain_reader import SqliteChainReader


async def answered(here: House, body: bytes) -> dict[str, object]:
    """The answer to any body, as a document."""
    return cast("dict[str, object]", orjson.loads(await here.guardian.answer(body, IN_PROCESS)))


def error_of(document: dict[str, object]) -> dict[str, object]:
    assert "result" not in document
    return cast("dict[str, object]", document["error"])


def recorded(here: House, agent: Agent) -> int:
    with SqliteChainReader(here.path) as reader:
        return len(list(reader.rows(agent.session_id)))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"a":1,"a":2}', -32700),
        (b'{"a":"\\ud800"}', -32700),
        (b'{"a":NaN}', -32700),
        (b"\xff", -32700),
        (b"[" * 66 + b"]" * 66, -32700),
        (b" " * 2_000_000, -32600),
        (b"[]", -32600),
        (b"null", -32600),
        (b'"x"', -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"system/ping","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","method":"system/ping","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"system/ping","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"system/ping","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7,"params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"steps/turnStart","params":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"foo/bar","params":{}}', -32600),
    ],
)
def test_a_body_that_is_no_request_gets_an_unsigned_error(tmp_path: Path, body: bytes, code: int) -> None:
    error = error_of(running(tmp_path, lambda here: answered(here, body)))
    assert error["code"] == code
    assert "signature" not in error
    data = cast("dict[str, object]", error["data"])
    assert isinstance(data["reason"], str)
    assert isinstance(data["message"], str)


def test_a_broken_envelope_that_is_signed_gets_a_signed_error(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for breakage in ({"timestamp": "yesterday"}, {"request_id": "one"}, {"acs_version": "1"}):
            document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL))
            del document["params"]["signature"]
            document["params"] |= breakage
            error = error_of(await answered(here, resigned(agent, document)))
            assert error["code"] == -32600
            assert "signature" in error
        assert recorded(here, agent) == 1

    running(tmp_path, work)


def resigned(agent: Agent, document: dict[str, object]) -> bytes:
    return orjson.dumps(sign_request(document, agent.session.key))


def test_a_broken_jsonrpc_member_of_a_signed_request_is_answered_with_its_id(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL)) | {"jsonrpc": "1.0"}
        answer = await answered(here, resigned(agent, document))
        assert error_of(answer)["code"] == -32600
        assert answer["id"] == document["id"]
        assert "signature" in error_of(answer)

    running(tmp_path, work)


def test_unsigned_forged_and_partly_signed_requests_are_refused_unsigned_and_burn_no_id(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        good = agent.body("steps/toolCallRequest", TOOL_CALL)
        document = orjson.loads(good)
        signature = document["params"].pop("signature")
        forged = document | {"params": document["params"] | {"signature": signature | {"value": "A" * 43 + "="}}}
        moved = document | {"params": document["params"] | {"x_more": 1, "signature": signature}}
        for broken in (document, forged, moved):
            error = error_of(await answered(here, orjson.dumps(broken)))
            assert error["code"] == -32004
            assert "signature" not in error
        assert isinstance(await agent.post(good), Verdict)

    running(tmp_path, work)


@pytest.mark.parametrize("key_id", ["default", "unknown"])
def test_a_key_that_is_not_ours_is_refused(tmp_path: Path, key_id: str) -> None:
    async def work(here: House) -> None:
        stranger = here.agent(keyring=STRANGERS, key_id=key_id)
        body = stranger.body("handshake/hello", {})
        assert error_of(await answered(here, body))["code"] == -32004

    running(tmp_path, work)


@pytest.mark.parametrize("method", ["steps/nothing", "trace/x", "protocols/A2A/x", "system/reboot", "handshake/bye"])
def test_a_method_that_acs_does_not_define_is_told_so_and_leaves_no_record(tmp_path: Path, method: str) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        answer = await agent.post(agent.body(method, {}))
        assert isinstance(answer, Refusal)
        assert answer.code == -32601
        assert recorded(here, agent) == 1

    running(tmp_path, work)


@pytest.mark.parametrize(
    "method",
    [
        "steps/memoryStore",
        "steps/preCompact",
        "agbom/changed",
        "protocols/MCP/tools/call",
        "wrapped:mcp-2025-06-18/tools/call",
    ],
)
def test_a_method_that_was_not_negotiated_is_refused_and_burns_its_id(tmp_path: Path, method: str) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        await agent.hello(methods=["steps/userMessage"])
        answer = await agent.post(agent.body(method, {}))
        assert isinstance(answer, Refusal)
        assert answer.code == -32003
        assert method in str(answer.data)
        assert recorded(here, agent) == 2

    running(tmp_path, work)


def test_a_step_before_any_handshake_is_an_error_and_no_decision(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        refusal = await here.agent().refused("toolCallRequest", TOOL_CALL)
        assert (refusal.code, refusal.reason) == (-32003, "session_unknown")

    running(tmp_path, work)


def test_another_key_or_agent_is_denied_in_a_session_it_did_not_open(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        for thief, code in (
            (here.agent(session_id=agent.session_id, key_id="other"), "key_not_bound"),
            (here.agent(session_id=agent.session_id, agent_id="thief"), "agent_id_not_bound"),
        ):
            verdict = await thief.step("toolCallRequest", TOOL_CALL)
            assert verdict.decision == "deny"
            assert verdict.reason_codes == (code,)
            assert verdict.chain_hash is None
            end = await thief.refused("sessionEnd", {"reason": "completed"})
            assert (end.code, end.reason) == (-32000, code)
            hello = await thief.hello()
            assert isinstance(hello, Refusal)
            assert hello.reason == code
        assert recorded(here, agent) == 1

    running(tmp_path, work)


@pytest.mark.parametrize("offset_ms", [-300_001, 300_001])
def test_a_timestamp_outside_the_window_is_refused_and_burns_no_id(tmp_path: Path, offset_ms: int) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        request_id = "3d3f7b0e-7d0b-4a39-9d55-4f3bb0f3a001"
        body = agent.body("steps/toolCallRequest", TOOL_CALL, request_id=request_id)
        here.clock.advance(400_000)
        at = render_time(here.clock.now()) if offset_ms < 0 else "2026-12-01T11:59:00+01:00"
        refusal = await agent.post(
            body if offset_ms < 0 else agent.body("steps/toolCallRequest", TOOL_CALL, timestamp=at)
        )
        assert isinstance(refusal, Refusal)
        assert refusal.code == -32006
        assert cast("dict[str, object]", refusal.data)["skew_window_ms"] == 300_000
        verdict = await agent.tool(request_id=request_id)
        assert verdict.decision == "allow"

    running(tmp_path, work)


def test_a_repeat_in_the_window_is_a_replay_whatever_the_first_was_answered(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        await agent.hello(methods=["steps/toolCallRequest", "steps/turnStart"])
        bodies = {
            "decided": agent.body("steps/toolCallRequest", TOOL_CALL),
            "payload": agent.body("steps/toolCallRequest", {"tool": {"name": "x"}}),
            "not negotiated": agent.body("steps/userMessage", MESSAGE),
        }
        for body in bodies.values():
            await agent.post(body)
        for name, body in bodies.items():
            again = await agent.post(body)
            assert isinstance(again, Refusal), name
            assert again.code == -32005, name
            assert again.recorded is None, name

    running(tmp_path, work)


def test_the_same_nonce_under_a_new_id_is_a_replay(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.tool(nonce="n" * 16)
        refusal = await agent.refused("toolCallRequest", TOOL_CALL, nonce="n" * 16)
        assert refusal.code == -32005

    running(tmp_path, work)


def test_the_same_ids_in_two_sessions_are_no_replay(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        ids = {"request_id": "3d3f7b0e-7d0b-4a39-9d55-4f3bb0f3a001", "nonce": "n" * 16}
        for _ in range(2):
            agent = await greeted(here)
            assert (await agent.tool(**ids)).decision == "allow"

    running(tmp_path, work)


def test_a_version_of_another_major_is_refused_and_recorded(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        answers: list[int | None] = []
        for version in ("1.0.0", "0.9.7"):
            document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL))
            document["params"]["acs_version"] = version
            answer = await agent.post(resigned(agent, document))
            answers.append(answer.code if isinstance(answer, Refusal) else None)
        assert answers == [-32001, None]
        assert recorded(here, agent) == 3

    running(tmp_path, work)


@pytest.mark.parametrize(
    ("hook", "payload"),
    [
        ("toolCallRequest", {"tool": {"name": "x"}}),
        ("toolCallRequest", {"tool": {"name": "x"}, "arguments": {"a": 1}}),
        ("userMessage", {"content": []}),
        ("turnStart", {"turn_id": "t", "triggered_by": "nobody"}),
        ("turnStart", {"turn_id": "t" * 1_025, "triggered_by": "user_message"}),
        ("turnEnd", {"turn_id": "t", "outcome": "completed", "step_count": -1}),
        ("sessionEnd", {"reason": "boredom"}),
        ("agentTrigger", {"trigger_type": "nothing"}),
    ],
)
def test_a_payload_that_breaks_its_schema_is_refused_and_recorded(
    tmp_path: Path, hook: str, payload: dict[str, object]
) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        refusal = await agent.refused(hook, payload)
        assert refusal.code == -32602
        assert recorded(here, agent) == 2

    running(tmp_path, work)


def test_a_subagent_in_its_parents_own_session_is_refused(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        spawn = {"parent_session_id": agent.session_id, "parent_step_id": "x", "intent_derivation": "inherit_full"}
        own = await agent.refused("subagentStart", spawn | {"subagent_session_id": agent.session_id.upper()})
        assert (own.code, own.reason) == (-32602, "subagent_session_not_fresh")
        fresh = await agent.step("subagentStart", spawn | {"subagent_session_id": here.agent().session_id})
        assert fresh.decision == "allow"

    running(tmp_path, work)


def test_after_session_end_a_step_is_denied_and_an_audit_hook_gets_an_error(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        old = agent.body("steps/toolCallRequest", TOOL_CALL)
        await agent.post(old)
        await agent.step("sessionEnd", {"reason": "completed"})
        late = await agent.tool()
        assert (late.decision, late.reason_codes, late.chain_hash) == ("deny", ("session_closed",), None)
        end = await agent.refused("turnEnd", {"turn_id": "t", "outcome": "error"})
        assert (end.code, end.reason) == (-32000, "session_closed")
        replay = await agent.post(old)
        assert isinstance(replay, Refusal)
        assert replay.code == -32005

    running(tmp_path, work)


def test_another_chain_head_is_denied_with_an_entry(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        first = await agent.tool()
        agreed = await agent.tool(chain_hash=first.chain_hash)
        assert agreed.decision == "allow"
        differs = await agent.tool(chain_hash=first.chain_hash)
        assert (differs.decision, differs.reason_codes) == ("deny", ("chain_mismatch",))
        assert differs.chain_hash not in (None, agreed.chain_hash)
        end = await agent.step("sessionEnd", {"reason": "completed"}, chain_hash="0" * 64)
        assert (end.decision, end.reason_codes) == ("allow", ("chain_mismatch",))
        with SqliteChainReader(here.path) as reader:
            assert [found.finding.code for found in reader.findings(limit=9)] == ["chain_mismatch"] * 2

    running(tmp_path, work)


def test_unknown_members_are_kept_and_signed(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        document = orjson.loads(agent.body("steps/toolCallRequest", TOOL_CALL))
        document["params"]["x_vendor"] = {"deep": [1.5e300]}
        body = orjson.dumps(document | {}, option=orjson.OPT_INDENT_2)
        assert (await answered(here, body))["error"]
        body = resigned(agent, document)
        assert isinstance(await agent.post(body), Verdict)
        with SqliteChainReader(here.path) as reader:
            assert list(reader.rows(agent.session_id))[-1].request == body

    running(tmp_path, work)


def test_fifty_steps_at_once_make_one_line_of_hashes(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        verdicts = await asyncio.gather(*(agent.tool() for _ in range(50)))
        heads = [verdict.chain_hash for verdict in verdicts]
        assert len(set(heads)) == 50
        with SqliteChainReader(here.path) as reader:
            entries = [orjson.loads(row.entry) for row in reader.rows(agent.session_id) if row.entry is not None]
        assert [entry["previous_hash"] for entry in entries] == [None, *(e["entry_hash"] for e in entries[:-1])]

    running(tmp_path, work)


def test_a_hello_that_is_resent_is_a_replay_and_one_that_is_repeated_gets_the_same_terms(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        first = await agent.hello()
        resent = await agent.post(agent.sent[0])
        assert isinstance(resent, Refusal)
        assert resent.code == -32005
        repeated = await agent.hello()
        assert isinstance(first, ServerHello)
        assert isinstance(repeated, ServerHello)
        assert repeated.methods_evaluated == first.methods_evaluated
        other = await agent.hello(methods=["steps/turnStart"])
        assert isinstance(other, Refusal)
        assert (other.code, other.reason) == (-32000, "renegotiation_not_supported")

    running(tmp_path, work)


def test_a_refused_hello_opens_no_session(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        payload = {"methods_implemented": [], "transports_supported": ["http"], "provenance_producer": "none"}
        for versions, code in ((["9.9.9"], -32001), ([], -32602)):
            answer = await agent.post(agent.body("handshake/hello", payload | {"acs_versions_supported": versions}))
            assert isinstance(answer, Refusal)
            assert answer.code == code
        assert (await agent.refused("toolCallRequest", TOOL_CALL)).reason == "session_unknown"

    running(tmp_path, work)


def test_after_its_end_a_session_cannot_shake_hands_again(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        await agent.step("sessionEnd", {"reason": "completed"})
        answer = await agent.hello()
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.reason) == (-32000, "session_closed")

    running(tmp_path, work)
