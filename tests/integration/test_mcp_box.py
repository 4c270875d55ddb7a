"""An MCP server in a real tool box, under a real Guardian: what it offers, and that nothing of it slips by."""

from pathlib import Path

import pytest
from tests.integration.egress_parts import run
from tests.integration.mcp_parts import example, play

pytestmark = pytest.mark.sandbox

ADD = ("mcp__notes__add_note", {"text": "milk"})
READ = ("mcp__notes__read_resource", {"uri": "notes://all"})


def notes(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob("workspaces/*/notes.txt")]


def denied(hook: str, when: str = "true") -> bytes:
    return f"""
version: 1
name: test
default: allow
rules:
  - id: never
    hooks: ["{hook}"]
    when: '{when}'
    decision: deny
    reasoning: Not this.
""".encode()


def test_a_servers_tools_resources_and_prompts_are_tools_of_the_agent(tmp_path: Path) -> None:
    async def main() -> None:
        prompt = ("mcp__notes__get_prompt", {"name": "summarize"})
        played = await play(tmp_path, example(), ADD, READ, prompt)
        assert [result.content for result in played.results] == ["noted", "milk\n", "user: Summarize the notes."]
        features = ("list_resources", "read_resource", "list_prompts", "get_prompt")
        assert played.names == ["mcp__notes__add_note", *(f"mcp__notes__{name}" for name in features)]
        assert notes(tmp_path) == ["milk\n"]

    run(main())


def test_what_counts_is_shown_to_the_guardian_in_both_directions(tmp_path: Path) -> None:
    async def main() -> None:
        played = await play(tmp_path, example(), ADD, READ)
        for method in ("initialize", "tools/list", "resources/read"):
            asked, answered = played.payloads(f"protocols/MCP/{method}")
            assert asked["method"] == method
            assert asked["id"] == answered["id"]
            assert "result" in answered
        assert len(played.payloads("protocols/MCP/notifications/initialized")) == 1
        assert "protocols/MCP/tools/call" not in played.methods
        tools = [payload["tool"] for payload in played.payloads("steps/toolCallRequest")]
        assert tools == [{"name": name, "provider": "mcp:notes"} for name, _ in (ADD, READ)]

    run(main())


def test_a_denied_call_does_not_reach_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        rules = denied("toolCallRequest", 'tool.name == "mcp__notes__add_note"')
        played = await play(tmp_path, example(), ADD, rules=rules)
        assert played.results[0].status == "denied"
        assert notes(tmp_path) == []

    run(main())


def test_permissions_go_by_the_name_of_a_servers_tool(tmp_path: Path) -> None:
    async def main() -> None:
        played = await play(tmp_path, example(), ADD, permissions={"mcp__notes__*": "deny"})
        assert (played.results[0].status, notes(tmp_path)) == ("denied", [])

    run(main())


@pytest.mark.parametrize("when", ["has(payload.method)", "has(payload.result)"])
def test_a_resource_that_is_denied_on_its_way_is_not_read(tmp_path: Path, when: str) -> None:
    async def main() -> None:
        rules = denied("protocols/MCP/resources/read", when)
        played = await play(tmp_path, example(), ADD, READ, rules=rules)
        assert played.results[1].status == "denied"
        assert "milk" not in played.results[1].content

    run(main())


def test_what_the_guardian_changes_in_a_message_is_what_is_read(tmp_path: Path) -> None:
    rules = b"""
version: 1
name: test
default: allow
rules:
  - id: hidden
    hooks: [protocols/MCP/resources/read]
    when: has(payload.result)
    decision: modify
    reasoning: Nobody's business.
    modify: {redactions: [{path: /result/contents/0/text, replacement: hidden}]}
"""

    async def main() -> None:
        played = await play(tmp_path, example(), ADD, READ, rules=rules)
        assert (played.results[1].status, played.results[1].content) == ("ok", "hidden")

    run(main())


@pytest.mark.parametrize(("path", "half"), [("/id", "method"), ("/result", "result")])
def test_a_change_that_leaves_no_answer_to_the_question_is_a_denial(tmp_path: Path, path: str, half: str) -> None:
    rules = denied("protocols/MCP/resources/read", f"has(payload.{half})").decode()
    rules = rules.replace("decision: deny", f"decision: modify\n    modify: {{redactions: [{{path: {path}}}]}}")

    async def main() -> None:
        played = await play(tmp_path, example(), ADD, READ, rules=rules.encode())
        assert played.results[1].status == "denied"

    run(main())


def test_a_server_that_may_not_be_greeted_costs_the_turn_its_tools_alone(tmp_path: Path) -> None:
    async def main() -> None:
        played = await play(tmp_path, example(), ADD, rules=denied("protocols/MCP/initialize"))
        assert played.names == []
        assert played.results[0].content == "unknown tool: mcp__notes__add_note"
        assert played.turn is not None
        assert played.turn.status == "completed"

    run(main())


def test_a_call_that_a_person_allows_goes_on_with_a_server_that_was_started_again(tmp_path: Path) -> None:
    async def main() -> None:
        played = await play(tmp_path, example(), ADD, permissions={"mcp__*": "ask"}, approves=True)
        assert [result.content for result in played.results] == ["noted"]
        assert notes(tmp_path) == ["milk\n"]
        assert len(played.payloads("protocols/MCP/initialize")) == 4

    run(main())


def test_events_say_whose_tool_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        played = await play(tmp_path, example(), ADD)
        (asked,) = [data for kind, data in played.events if kind == "tool.requested"]
        assert (asked["kind"], asked["server"], asked["name"]) == ("mcp", "notes", "mcp__notes__add_note")

    run(main())


def test_what_a_server_offers_is_told_once_to_the_guardian_before_the_agent(tmp_path: Path) -> None:
    async def main() -> None:
        played = await play(tmp_path, example(), ADD, turns=2)
        (changed,) = played.payloads("agbom/changed")
        assert changed["reason"] == "discovery"
        assert played.methods.index("agbom/changed") < played.methods.index("steps/toolCallRequest")

    run(main())


def test_what_may_not_become_a_part_of_the_agent_is_not_offered(tmp_path: Path) -> None:
    async def main() -> None:
        played = await play(tmp_path, example(), ADD, rules=denied("agbom/changed"))
        assert played.names == []

    run(main())
