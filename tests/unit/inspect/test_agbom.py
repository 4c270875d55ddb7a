"""The bill of materials of an agent version."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import canonicalize, validator
from turnkeeper.inspect.agbom import (
    CapabilityComponent,
    ModelComponent,
    ServedTool,
    ServerComponent,
    SkillComponent,
    ToolComponent,
    render_agbom,
    servers_in,
)

MODEL = ModelComponent("stub", "any/model 1", {"temperature": 0.5})
TOOLS = [ToolComponent("write_file", "filesystem.write"), ToolComponent("shell", "process.execute")]


def name_of(part: ServedTool | ServerComponent) -> str:
    return part.name


def agbom(*, tools: list[ToolComponent] = TOOLS, name: str = "Bookkeeper") -> dict[str, object]:
    return render_agbom(agent_id="agt_1", agent_name=name, agent_version=3, model=MODEL, tools=tools)


def test_the_snapshot_is_what_the_standard_asks_for() -> None:
    validator("hooks/agbom-snapshot").check({"agbom": agbom(), "trigger": "session_start"})


def test_the_same_agent_version_has_the_same_document_whatever_the_order_of_its_tools() -> None:
    assert agbom() == agbom(tools=TOOLS[::-1])


def test_the_hash_changes_with_what_the_agent_is_made_of() -> None:
    assert agbom()["agbom_hash"] != agbom(tools=TOOLS[:1])["agbom_hash"]


def test_every_component_is_named_once() -> None:
    components = cast("list[dict[str, object]]", agbom()["components"])
    assert [component["id"] for component in components] == [
        "model:stub%2Fany%2Fmodel%201",
        "tool:shell",
        "tool:write_file",
    ]


def test_a_loop_of_another_make_and_those_a_task_is_handed_to_are_named() -> None:
    able = [CapabilityComponent("subagent:b", "b", "takes tasks", ("shell",)), CapabilityComponent("harness", "a", "")]
    document = render_agbom(
        agent_id="agt_1", agent_name="a", agent_version=1, model=MODEL, tools=TOOLS, capabilities=able
    )
    validator("hooks/agbom-snapshot").check({"agbom": document, "trigger": "session_start"})
    *_, harness, subagent = cast("list[dict[str, object]]", document["components"])
    assert (harness["id"], subagent["id"]) == ("agent_capability:harness", "agent_capability:subagent:b")
    assert subagent["agent_capability_fields"] == {"description": "takes tasks", "tools": ["tool:shell"]}


def test_a_document_can_be_signed_as_it_is() -> None:
    assert canonicalize(agbom())  # type: ignore[arg-type]


SERVED = st.builds(ServedTool, st.text("xyz", min_size=1), st.text("0f", min_size=1))
SERVERS = st.builds(
    ServerComponent,
    st.text("abc", min_size=1),
    st.sampled_from(["", "https://a.test/mcp"]),
    st.sampled_from(["", "1.0"]),
    st.lists(SERVED, unique_by=name_of).map(tuple),
)


@given(st.lists(SERVERS, max_size=1))
def test_the_servers_of_a_document_are_read_back_as_they_were_written(servers: list[ServerComponent]) -> None:
    document = render_agbom(
        agent_id="agt_1", agent_name="a", agent_version=1, model=MODEL, tools=TOOLS, servers=servers
    )
    validator("hooks/agbom-changed").check({"full_snapshot": document, "reason": "discovery"})
    assert list(servers_in(document).values()) == servers


def test_a_skill_is_named_with_its_digest_and_never_with_its_text() -> None:
    skill = SkillComponent("folding", "skl_1", 2, "Folds paper.", "0" * 64)
    document = render_agbom(agent_id="agt_1", agent_name="a", agent_version=1, model=MODEL, tools=TOOLS, skills=[skill])
    validator("hooks/agbom-snapshot").check({"agbom": document, "trigger": "session_start"})
    component = cast("list[dict[str, object]]", document["components"])[-1]
    assert (component["id"], component["version"]) == ("skill:folding", "2")
    assert component["skill_fields"] == {
        "description": "Folds paper.",
        "definition": {"ref": "urn:turnkeeper:skill:skl_1", "digest": {"algorithm": "sha-256", "value": "0" * 64}},
        "declared_capabilities": [],
    }
