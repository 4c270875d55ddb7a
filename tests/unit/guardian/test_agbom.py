"""The agent's parts in a session: one snapshot, its changes, and what no hook would show (INSP-01 to 07)."""

from collections.abc import Mapping
from pathlib import Path

from tests.unit.guardian.kit import ALLOW_ALL, WITH_PROVENANCE, House, engine, findings, greeted, running
from tests.unit.guardian.samples import AGBOM, DIGEST, provenance

from turnkeeper.guardian.calls import OFFERED_METHODS
from turnkeeper.guardian.memory import MAX_AGBOM_COMPONENTS

BANNED = ALLOW_ALL.replace(
    b"[]",
    b"""
  - id: banned
    hooks: [agbom/snapshot]
    when: payload.agbom.components.exists(c, c.name == 'banned')
    decision: deny
    reasoning: Banned.""",
)
ORIGIN = provenance("registered", "system")
SERVER: Mapping[str, object] = {
    "registration_provenance": ORIGIN,
    "id": "s",
    "type": "mcp_server",
    "name": "n",
    "version": "1",
    "endpoint": "https://example.org",
    "mcp_server_fields": {"tools": []},
}
SOURCE: Mapping[str, object] = {
    "registration_provenance": ORIGIN,
    "id": "k",
    "type": "knowledge_source",
    "name": "n",
    "knowledge_source_fields": {"source_type": "other"},
}
STORE: Mapping[str, object] = {
    "registration_provenance": ORIGIN,
    "id": "m",
    "type": "memory_store",
    "name": "n",
    "memory_store_fields": {"scope": "user", "store_type": "x"},
}
SKILL: Mapping[str, object] = {
    "registration_provenance": ORIGIN,
    "id": "l",
    "type": "skill",
    "name": "n",
    "skill_fields": {"description": "d", "definition": {"ref": "https://example.org/s", "digest": DIGEST}},
}


def tool(name: str, number: object = 1) -> dict[str, object]:
    """A tool as a component that says where it was registered from."""
    return unregistered(name, number) | {"registration_provenance": ORIGIN}


def unregistered(name: str, number: object = 1) -> dict[str, object]:
    """A tool that does not."""
    fields: dict[str, object] = {"tool_fields": {"capability": "c"}}
    return {"id": f"tool-{number}", "type": "tool", "name": name, "version": "1", "provider": "p"} | fields


def snapshot(*components: Mapping[str, object]) -> dict[str, object]:
    """An agbom/snapshot."""
    return {"agbom": {**AGBOM, "components": [dict(component) for component in components]}}


def test_a_banned_component_is_denied_and_a_second_snapshot_is_a_finding(tmp_path: Path) -> None:
    """INSP-01, INSP-02: a denied one was none."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.step("agbom/snapshot", snapshot(tool("banned")))).decision == "deny"
        assert (await agent.step("agbom/snapshot", snapshot(tool("good")))).decision == "allow"
        assert findings(here) == []
        assert (await agent.step("agbom/snapshot", snapshot(tool("good")))).decision == "allow"
        assert findings(here) == ["agbom_snapshot_repeated"]

    running(tmp_path, work, policy=engine(BANNED))


def test_a_component_whose_use_no_hook_shows_is_a_finding(tmp_path: Path) -> None:
    """INSP-07, CORE-SKILL-10."""

    async def work(here: House) -> None:
        few = here.agent()
        await few.hello(methods=["agbom/snapshot", "steps/toolCallRequest"])
        await few.step("agbom/snapshot", snapshot(SERVER, SOURCE, STORE, SKILL, tool("t")))
        assert findings(here) == ["agbom_component_not_covered"] * 5
        claims = {"wrapped_protocols": [{"protocol": "MCP", "version": "2025-06-18"}]}
        full = here.agent()
        await full.hello(methods=sorted(OFFERED_METHODS), claims=claims)
        await full.step("agbom/snapshot", snapshot(SERVER, SOURCE, STORE, SKILL, tool("t")))
        assert len(findings(here)) == 5

    running(tmp_path, work)


def test_a_change_is_looked_at_as_the_snapshot_is_and_owes_one_before_it(tmp_path: Path) -> None:
    """INSP-04, MCP-08."""

    async def work(here: House) -> None:
        early, agent = await greeted(here), await greeted(here)
        await early.step("agbom/changed", {"diff": {"added": [tool("t")]}})
        assert findings(here) == ["agbom_changed_before_snapshot"]
        await agent.step("agbom/snapshot", snapshot(tool("t")))
        await agent.step("agbom/changed", {"diff": {"added": [SERVER]}})
        await agent.step("agbom/changed", {"diff": {"removed": [{"id": "s", "type": "mcp_server"}]}})
        assert findings(here)[1:] == ["agbom_component_not_covered"]
        await agent.step("agbom/changed", {"full_snapshot": snapshot(SERVER)["agbom"]})
        assert findings(here)[1:] == ["agbom_component_not_covered"] * 2

    running(tmp_path, work)


def test_a_changed_component_replaces_the_one_before(tmp_path: Path) -> None:
    """So a skill is compared with what the agent is made of now."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        before, after = tool("t"), tool("t") | {"tool_fields": {"capability": "net"}}
        await agent.step("agbom/snapshot", snapshot(before))
        change = {"id": "tool-1", "type": "tool", "before": before, "after": after}
        await agent.step("agbom/changed", {"diff": {"changed": [change]}})
        registered = {"skill_id": "k", "definition": {"digest": DIGEST}, "composition": {"tools": ["t"]}}
        await agent.step("skillRegister", registered | {"declared_capabilities": ["net"]})
        assert findings(here) == []
        await agent.step("skillRegister", registered | {"declared_capabilities": ["c"]})
        assert findings(here) == ["skill_capabilities"]

    running(tmp_path, work)


def test_under_the_provenance_profile_a_component_says_where_it_was_registered_from(tmp_path: Path) -> None:
    """PROV-08, INSP-06."""
    known, unknown = tool("t"), unregistered("u", 2)

    async def work(here: House) -> None:
        agent = await greeted(here, claims=WITH_PROVENANCE)
        assert (await agent.refused("agbom/snapshot", snapshot(known, unknown))).code == -32602
        assert (await agent.step("agbom/snapshot", snapshot(known))).decision == "allow"
        assert (await agent.refused("agbom/changed", {"diff": {"added": [unknown]}})).code == -32602
        change = {"id": "tool-1", "type": "tool", "before": known, "after": unregistered("t")}
        assert (await agent.refused("agbom/changed", {"diff": {"changed": [change]}})).code == -32602
        assert (await agent.refused("agbom/changed", {"full_snapshot": snapshot(unknown)["agbom"]})).code == -32602

    running(tmp_path, work)


def test_without_that_profile_components_that_do_not_say_so_are_a_finding_each_time(tmp_path: Path) -> None:
    """INSP-06."""

    async def work(here: House) -> None:
        agent = await greeted(here)
        assert (await agent.step("agbom/snapshot", snapshot(unregistered("t"), tool("u", 2)))).decision == "allow"
        assert findings(here) == ["agbom_registration_unstated"]
        await agent.step("agbom/changed", {"diff": {"added": [tool("v", 3)]}})
        assert len(findings(here)) == 1
        await agent.step("agbom/changed", {"diff": {"added": [unregistered("w", 4)]}})
        assert findings(here) == ["agbom_registration_unstated"] * 2

    running(tmp_path, work)


def test_an_agent_of_too_many_parts_is_denied(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        many = snapshot(*(tool("t", number) for number in range(MAX_AGBOM_COMPONENTS + 1)))
        assert (await agent.step("agbom/snapshot", many)).reason_codes == ("session_memory_full",)
        assert (await agent.step("agbom/snapshot", snapshot(tool("t" * 2_000)))).reason_codes == (
            "session_memory_full",
        )

    running(tmp_path, work)
