"""The table of methods."""

import pytest

from turnkeeper.acs import METHODS, Disposition, hook_name, hook_spec, validator


def test_every_hook_has_a_schema_that_compiles() -> None:
    for spec in METHODS.values():
        assert spec.schema is not None
        validator(spec.schema)


def test_an_audit_only_hook_is_never_denied() -> None:
    audit_only = {spec.method for spec in METHODS.values() if spec.audit_only}
    never_denied = {spec.method for spec in METHODS.values() if Disposition.DENY not in spec.permitted}
    assert audit_only == never_denied - {"system/ping"}


@pytest.mark.parametrize("method", ["protocols/MCP/tools/call", "wrapped:mcp-2025-06-18/resources/read"])
def test_a_well_formed_method_of_mcp_is_defined_whatever_its_name(method: str) -> None:
    spec = hook_spec(method)
    assert spec is not None
    assert (spec.method, spec.schema, spec.permitted) == (method, None, frozenset(Disposition))


@pytest.mark.parametrize(
    "method",
    [
        "steps/unheardOf",
        "handshake/hello",
        "trace/emit",
        "protocols/A2A/message/send",
        "protocols/MCP/",
        "protocols/MCP/tools//call",
        "protocols/MCP/../x",
        "wrapped:mcp-/tools/call",
        "wrapped:a2a-0.2/message/send",
        "protocols/MCP/*",
    ],
)
def test_a_method_that_acs_does_not_define_has_no_entry(method: str) -> None:
    assert hook_spec(method) is None


def test_a_step_belongs_to_a_turn_to_the_session_or_to_either() -> None:
    assert {method for method, spec in METHODS.items() if spec.in_turn is False} == {
        "steps/sessionStart",
        "steps/agentTrigger",
        "steps/sessionEnd",
    }
    assert METHODS["steps/toolCallRequest"].in_turn is True
    assert METHODS["agbom/snapshot"].in_turn is None


def test_a_hook_is_known_by_its_short_name() -> None:
    assert hook_name("steps/toolCallRequest") == "toolCallRequest"
    assert hook_name("agbom/snapshot") == "agbom/snapshot"
