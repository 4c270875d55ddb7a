"""Wrapped MCP: names, shapes, negotiation, and calls that wait for their responses (MCP-01 to 09)."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.guardian.kit import ALLOW_ALL, Agent, House, engine, findings, running

from turnkeeper.acs import ServerHello
from turnkeeper.guardian.handshakes import MAX_WRAPPED_METHODS
from turnkeeper.guardian.memory import MAX_PENDING_CALLS

CALL = "protocols/MCP/tools/call"
PINNED = "wrapped:mcp-2025-06-18/tools/call"
READ = "protocols/MCP/resources/read"
DECLARED: Mapping[str, object] = {"wrapped_protocols": [{"protocol": "MCP", "version": "2025-06-18"}]}
TOOL_RULES = ALLOW_ALL.replace(
    b"[]",
    b"""
  - {id: c, tools: [rm], when: has(args.path) && args.path == '/', decision: deny, reasoning: A, reason_codes: [call]}
  - {id: r, tools: [secret], when: has(payload.result), decision: deny, reasoning: B., reason_codes: [answer]}
  - {id: n, when: turn.tool_calls > 1, decision: deny, reasoning: C., reason_codes: [count]}""",
)


def call(number: object, tool: str = "ls", **arguments: object) -> dict[str, object]:
    """A tools/call message."""
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def response(number: object) -> dict[str, object]:
    """The response to one."""
    return {"jsonrpc": "2.0", "id": number, "result": {"content": []}}


async def wrapping(here: House, *methods: str, claims: Mapping[str, object] = DECLARED) -> Agent:
    """An agent that tunnels MCP."""
    agent = here.agent()
    answer = await agent.hello(methods=[*(methods or (CALL, PINNED, READ)), "steps/turnStart"], claims=claims)
    assert isinstance(answer, ServerHello)
    return agent


@pytest.mark.parametrize(
    ("method", "versions", "evaluated"),
    [
        (CALL, (), False),
        (CALL, ("2025-06-18",), True),
        (PINNED, ("2025-06-18",), True),
        (PINNED, ("2024-11-05",), False),
        (PINNED, ("2024-11-05", "2025-06-18"), True),
        ("protocols/MCP/something/new", ("2025-06-18",), True),
    ],
)
def test_a_wrapped_method_is_evaluated_where_its_protocol_and_version_were_declared(
    tmp_path: Path, method: str, versions: tuple[str, ...], *, evaluated: bool
) -> None:
    """MCP-05, MCP-09, CORE-WIRE-16."""

    async def work(here: House) -> None:
        claims = {"wrapped_protocols": [{"protocol": "MCP", "version": version} for version in versions]}
        agent = here.agent()
        hello = await agent.hello(methods=[method], claims=claims)
        assert isinstance(hello, ServerHello)
        assert hello.evaluates(method) == evaluated
        message = call(1) | {"method": method.split("/", 1)[1].removeprefix("MCP/")}
        if evaluated:
            assert (await agent.step(method, message)).decision == "allow"
        else:
            assert (await agent.refused(method, message)).code == -32003

    running(tmp_path, work)


def test_another_protocol_declares_no_mcp(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        claims = {"wrapped_protocols": [{"protocol": "A2A", "version": "2025-06-18"}]}
        assert (await (await wrapping(here, claims=claims)).refused(CALL, call(1))).code == -32003

    running(tmp_path, work)


def test_a_session_has_a_bounded_number_of_wrapped_methods(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        names = [f"protocols/MCP/m{number}" for number in range(MAX_WRAPPED_METHODS + 1)]
        hello = await here.agent().hello(methods=names, claims=DECLARED)
        assert isinstance(hello, ServerHello)
        assert hello.methods_evaluated == tuple(names[:-1])

    running(tmp_path, work)


NO_MESSAGES: list[dict[str, object]] = [
    call(1) | {"method": "tools/list"},
    call(1) | {"result": {}},
    call(1) | {"params": []},
    call(None),
    call(True),
    call(1) | {"jsonrpc": "1.0"},
    {"jsonrpc": "2.0", "result": {}},
    {"jsonrpc": "2.0", "id": 1},
    {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "x"}},
    {"jsonrpc": "2.0", "id": 1, "result": []},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": "x", "message": "y"}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": True, "message": "y"}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": 1.5, "message": "y"}},
    {"jsonrpc": "2.0", "id": 1, "error": {"message": "y"}},
    {"jsonrpc": "2.0", "id": 1, "error": "no"},
    {},
]


@pytest.mark.parametrize("message", NO_MESSAGES)
def test_a_message_that_is_none_of_its_method_is_refused(tmp_path: Path, message: Mapping[str, object]) -> None:
    """MCP-04."""

    async def work(here: House) -> None:
        assert (await (await wrapping(here)).refused(CALL, message)).code == -32602

    running(tmp_path, work)


def test_requests_notifications_results_and_errors_are_messages(tmp_path: Path) -> None:
    """MCP-02, MCP-04: both directions are steps with an entry."""

    async def work(here: House) -> None:
        agent = await wrapping(here)
        notification = {"jsonrpc": "2.0", "method": "tools/call"}
        error = {"jsonrpc": "2.0", "id": "a", "error": {"code": -32601, "message": "nope"}}
        for message in (notification, call(1), call("a", "ls"), response(1), error):
            answer = await agent.step(CALL, message)
            assert (answer.decision, answer.chain_hash is None) == ("allow", False)
        assert findings(here) == []

    running(tmp_path, work)


def test_a_wrapped_call_counts_as_a_tool_call_and_rules_see_its_tool_and_arguments(tmp_path: Path) -> None:
    """MCP-07: so does a rule about results by the tool that made the call."""

    async def work(here: House) -> None:
        agent = await wrapping(here)
        assert (await agent.step(CALL, call(1, "rm", path="/"))).reason_codes == ("call",)
        assert (await agent.step(PINNED, call(1, "secret"))).decision == "allow"
        assert (await agent.step(PINNED, response(1))).reason_codes == ("answer",)
        await agent.turn_start("t")
        assert (await agent.step(CALL, call(2), turn_id="t")).decision == "allow"
        assert (await agent.step(CALL, response(2), turn_id="t")).decision == "allow"
        assert (await agent.step(CALL, call(3), turn_id="t")).reason_codes == ("count",)

    running(tmp_path, work, policy=engine(TOOL_RULES))


def test_an_id_that_waits_is_not_used_twice_whatever_its_spelling(tmp_path: Path) -> None:
    """MCP-07: 1 and 1.0 are equal, 1 and "1" are not; a denied call does not wait."""

    async def work(here: House) -> None:
        agent = await wrapping(here)
        assert (await agent.step(CALL, call(1, "rm", path="/"))).decision == "deny"
        assert (await agent.step(CALL, call(1))).decision == "allow"
        assert (await agent.step(READ, call(1.0) | {"method": "resources/read"})).reason_codes == (
            "wrapped_call_pending",
        )
        assert (await agent.step(CALL, call("1"))).decision == "allow"
        assert (await agent.step(CALL, response(1.0))).decision == "allow"
        assert (await agent.step(CALL, call(1))).decision == "allow"

    running(tmp_path, work, policy=engine(TOOL_RULES.replace(b"turn.tool_calls > 1", b"'false'")))


def test_a_response_to_nothing_or_under_another_method_is_a_finding(tmp_path: Path) -> None:
    """MCP-07."""

    async def work(here: House) -> None:
        agent = await wrapping(here)
        await agent.step(CALL, response(1))
        await agent.step(CALL, call(1))
        await agent.step(READ, response(1))
        assert findings(here) == ["wrapped_response_unknown"] * 2
        await agent.step(CALL, response(1))
        assert len(findings(here)) == 2

    running(tmp_path, work)


def test_a_session_with_too_many_calls_that_wait_denies_the_next(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await wrapping(here)
        for number in range(MAX_PENDING_CALLS):
            await agent.step(CALL, call(number))
        assert (await agent.step(CALL, call("more"))).reason_codes == ("session_memory_full",)
        await agent.step(CALL, response(0))
        assert (await agent.step(CALL, call("more"))).decision == "allow"

    running(tmp_path, work)
