"""Wrapped MCP as others probe it: message shapes, names and negotiation, at the door of a real Guardian."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.guardian.kit import House, greeted, running
from tests.vectors.reading import read_vectors

from turnkeeper.acs import Refusal, ServerHello, Verdict, hook_spec

_VECTORS = read_vectors("wrapped-mcp")
METHOD: str = _VECTORS["method"]
DECLARED: list[dict[str, str]] = [{"protocol": "MCP", "version": "2025-06-18"}]


@pytest.mark.requirement("MCP-04")
@pytest.mark.parametrize(
    ("payload", "valid"),
    [*((payload, True) for payload in _VECTORS["valid"]), *((payload, False) for payload in _VECTORS["invalid"])],
)
def test_a_wrapped_message_of_the_standards_probes(tmp_path: Path, payload: dict[str, Any], valid: bool) -> None:
    async def work(here: House) -> None:
        agent = here.agent()
        await agent.hello(methods=[METHOD], claims={"wrapped_protocols": DECLARED})
        answer = await agent.post(agent.body(METHOD, payload))
        assert isinstance(answer, Verdict) is valid
        assert valid or (isinstance(answer, Refusal) and answer.code == -32602)

    running(tmp_path, work)


@pytest.mark.requirement("MCP-05")
@pytest.mark.requirement("CORE-WIRE-16")
@pytest.mark.parametrize("case", _VECTORS["negotiation"])
def test_a_negotiation_of_the_standards_probes(tmp_path: Path, case: dict[str, Any]) -> None:
    (method,) = case["methods_implemented"]

    async def work(here: House) -> None:
        agent = here.agent()
        hello = await agent.hello(methods=[method], claims={"wrapped_protocols": case["wrapped_protocols"]})
        assert isinstance(hello, ServerHello)
        assert (method in hello.methods_evaluated) is case["evaluated"]
        answer = await agent.post(agent.body(method, {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}))
        assert isinstance(answer, Verdict) is case["evaluated"]
        assert case["evaluated"] or (isinstance(answer, Refusal) and answer.code == -32003)

    running(tmp_path, work)


@pytest.mark.requirement("MCP-09")
@pytest.mark.parametrize("valid", [True, False])
def test_a_name_of_a_wrapped_method(valid: bool) -> None:
    for name in _VECTORS["names"]["valid" if valid else "invalid"]:
        assert (hook_spec(f"protocols/MCP/{name}") is not None) is valid


@pytest.mark.requirement("CORE-HS-04")
def test_a_session_that_declares_no_wrapping_evaluates_none(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        answer = await agent.post(agent.body(METHOD, {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}))
        assert isinstance(answer, Refusal)
        assert answer.code == -32003

    running(tmp_path, work)
