"""Every hook has a typed step that passes the standard's schema and reads back what a MODIFY left of it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.client.rig import SESSION, Rig

from turnkeeper.acs import METHODS, Decision, Disposition, validator
from turnkeeper.client import ClientSettings, Digest, GuardianClient, Retrieved, StepInvalid, steps
from turnkeeper.client.sessions import GuardedSession
from turnkeeper.client.steps import Payload
from turnkeeper.client.turns import GuardedTurn

DIGEST = Digest("0" * 64)
CHILD = "22222222-2222-4222-8222-222222222222"
AGBOM: Payload = {"agbom_version": "0.1.0", "agent": {"agent_id": "agent"}, "components": []}


def echo(command: str) -> str:
    """A tool."""
    return command


def listed(n: int) -> list[float]:
    """A tool whose result JSON cannot spell."""
    return [n, float("inf")]


async def every_hook(guardian: GuardianClient) -> None:
    """One session through everything there is."""
    async with guardian.session(session_id=SESSION, policy_mode="strict", intent={"raw": "tidy up"}) as session:
        await session.agbom_snapshot(AGBOM)
        await session.agent_trigger("scheduled", source={"type": "cron"})
        async with session.turn() as turn:
            await turn.user_message("hello")
            await turn.knowledge_retrieval("q", [Retrieved("v", "wiki", 0.5)], source={"type": "vector_db"})
            await turn.memory_context_retrieval([Retrieved("v", memory_id="m")], store="s", scope="session")
            await turn.memory_store("v", memory_id="m", store="s", scope="session")
            await turn.call_tool("shell", {"command": "ls"}, echo)
            await skills_and_children(turn)
            await turn.agent_response("done")


async def skills_and_children(turn: GuardedTurn) -> None:
    """The hooks that sessions and turns both have."""
    await turn.skill_register("s", DIGEST, ["filesystem.read"], ref="https://example.org/s", body="# s")
    await turn.skill_load("s", DIGEST, registration_ref="r")
    await turn.skill_unload("s", "session_end")
    await turn.pre_compact(["e1"], estimated_input_tokens=10)
    await turn.post_compact("short", ["e1"], derived_from=["p1"])
    await turn.subagent_start(CHILD, "step", intent_derivation="fresh")
    await turn.subagent_stop(CHILD, "completed", step_count=3)
    await turn.agbom_changed(full_snapshot=AGBOM, reason="discovery")


@pytest.mark.parametrize("producer", ["none", "deterministic"])
def test_every_method_of_the_standard_has_a_step_that_passes_its_schema(producer: Any) -> None:
    rig = Rig(ClientSettings(provenance=producer))
    rig.run(every_hook)
    asked = {envelope.method for envelope in rig.scripted.received}
    assert asked == (set(METHODS) | {"handshake/hello"}) - {"system/ping"}
    for envelope in rig.scripted.received[1:]:
        validator(METHODS[envelope.method].schema or "").check(envelope.payload)


def modified(method: str, modifications: dict[str, object], use: Callable[[GuardedTurn], Awaitable[object]]) -> object:
    """What a typed step hands back once its payload was modified."""
    rig = Rig()
    rig.scripted.next(method, Decision(Disposition.MODIFY, "safer", modifications=modifications))

    async def work(guardian: GuardianClient) -> object:
        async with guardian.session() as session, session.turn() as turn:
            return await use(turn)

    return rig.run(work)


async def said(turn: GuardedTurn) -> object:
    return await turn.user_message("secret")


async def answered(turn: GuardedTurn) -> object:
    return await turn.agent_response("secret")


async def returned(turn: GuardedTurn) -> object:
    return await turn.tool_call_result("t", {"a": 1})


async def remembered(turn: GuardedTurn) -> object:
    return await turn.memory_store("secret")


async def found(turn: GuardedTurn) -> object:
    return await turn.knowledge_retrieval("q", [Retrieved("secret"), Retrieved("two")])


async def compacted(turn: GuardedTurn) -> object:
    return await turn.post_compact("secret", ["e"], derived_from=["p"], head_before="0" * 64)


@pytest.mark.parametrize(
    ("method", "use", "expected"),
    [
        ("steps/userMessage", said, "X"),
        ("steps/agentResponse", answered, "X"),
        ("steps/toolCallResult", returned, "X"),
        ("steps/memoryStore", remembered, "X"),
        ("steps/knowledgeRetrieval", found, ["X"]),
        ("steps/postCompact", compacted, "X"),
    ],
)
def test_content_that_was_replaced_is_what_the_step_hands_back(
    method: str, use: Callable[[GuardedTurn], Awaitable[object]], expected: object
) -> None:
    assert modified(method, {"modified_content": "X"}, use) == expected


def test_a_redacted_argument_is_redacted_and_the_others_are_the_agents_own() -> None:
    large = 2**70
    told = modified(
        "steps/toolCallRequest",
        {"redactions": [{"path": "/arguments/token/value"}]},
        lambda turn: turn.tool_call_request("t", {"token": "secret", "size": large}),
    )
    assert told == {"token": "[REDACTED]", "size": large}


def test_a_value_without_a_canonical_form_is_shown_as_text_and_comes_back_as_it_was() -> None:
    """An integer beyond 2**53 cannot be signed as a number."""
    rig = Rig()

    async def work(guardian: GuardianClient) -> object:
        async with guardian.session() as session, session.turn() as turn:
            return await turn.call_tool("t", {"n": 2**60 + 1}, listed)

    assert rig.run(work) == [2**60 + 1, float("inf")]
    request, result = (e.payload for e in rig.scripted.received if e.method.startswith("steps/toolCall"))
    assert request["arguments"] == {"n": {"value": str(2**60 + 1)}}
    assert result["outputs"] == [{"value": f"[{2**60 + 1},Infinity]"}]


def test_a_value_that_is_no_json_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(StepInvalid):
        steps.memory_store(Rig().client().session().marks(), object())


def test_an_mcp_message_is_carried_intact_in_both_directions() -> None:
    """MCP-02 and 03; a call counts as a tool call, its answer does not."""
    rig = Rig(ClientSettings(mcp_version="2025-06-18", mcp_methods=("protocols/MCP/tools/call",)))
    rig.scripted.methods = rig.scripted.methods | {"protocols/MCP/tools/call"}
    call: Payload = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {}}}
    answer: Payload = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            assert await turn.mcp(call) == call
            assert await turn.mcp(answer, answers="tools/call") == answer

    rig.run(work)
    hello, end = rig.scripted.received[0], rig.scripted.received[-2]
    assert hello.payload["wrapped_protocols"] == [{"protocol": "MCP", "version": "2025-06-18"}]
    assert (end.payload["step_count"], end.payload["tool_call_count"]) == (2, 1)


@pytest.mark.parametrize("message", [{}, {"method": 1}, {"method": ""}])
def test_an_mcp_message_that_names_no_method_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(StepInvalid):
        steps.mcp(message)


def test_a_compaction_without_a_known_head_is_refused() -> None:
    async def work(guardian: GuardianClient) -> None:
        session: GuardedSession = await guardian.attach(SESSION)
        with pytest.raises(StepInvalid):
            await session.post_compact("short", ["e"], derived_from=["p"])

    Rig().run(work)


def test_a_method_the_standard_does_not_define_is_refused() -> None:
    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session:
            with pytest.raises(StepInvalid):
                await session.ask(steps.plain("steps/invented", {}))

    Rig().run(work)


def test_the_head_is_sent_where_the_settings_say_so() -> None:
    """CORE-CH-07, from the agent's side."""
    rig = Rig(ClientSettings(witness_head=True))

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            await turn.user_message("hello")

    rig.run(work)
    heads = [envelope.client_chain_hash for envelope in rig.scripted.received]
    assert heads[:2] == [None, None]
    assert None not in heads[2:]
    assert len(set(heads[2:])) == len(heads) - 2
