"""A turn that hands a task to a subagent, as an operator sees it: real boxes, the real Guardian, a scripted model."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.acceptance.invariants import check_verifies
from tests.acceptance.server import NO_WARM_BOXES, Json, Server

from turnkeeper.testing.scripted_answers import ScriptedAnswer, ScriptedCall, SeenRequest
from turnkeeper.testing.scripted_model import running_scripted_model

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

POLICY = """
version: 1
name: no-deleting
default: allow
rules:
  - id: no-rm
    hooks: [toolCallRequest]
    tools: [shell]
    when: args.command.contains("rm ")
    decision: deny
    reasoning: Nothing is deleted here.
"""
READER: Json = {"name": "reader", "description": "Reads.", "instructions": "You read.", "tools": ["shell"]}


def delegate(seen: SeenRequest) -> ScriptedAnswer:
    """An agent that hands its input on, and a reader that runs what it is told to."""
    system, last = seen.messages[0]["content"], seen.messages[-1]
    if last["role"] == "tool":
        return ScriptedAnswer(text=f"it says: {last['content']}")
    name, member = ("shell", "command") if system == "You read." else ("reader", "task")
    return ScriptedAnswer(tool_calls=(ScriptedCall(name, f'{{"{member}":"{last["content"]}"}}'),))


@contextmanager
def serving(folder: Path) -> Generator[Server]:
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    with running_scripted_model(delegate) as model:
        config = f"""{NO_WARM_BOXES}
[guardian]
policy = "{policy}"
[providers.scripted]
kind = "openai"
base_url = "{model.base_url}"
"""
        with Server(folder, config) as server:
            yield server


def session_of(server: Server) -> str:
    model = {"provider": "scripted", "id": "m"}
    agent = server.post(
        "/v1/agents",
        {"name": "editor", "model": model, "tools": ["shell"], "subagents": [READER], "instructions": "Ask."},
    )
    return str(server.post("/v1/sessions", {"agent_id": agent["id"]})["id"])


def test_a_subagent_works_in_the_box_and_both_chains_verify(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        session = session_of(server)
        turn = server.ended(server.post(f"/v1/sessions/{session}/turns", {"input": "echo kept > note; cat note"})["id"])
        second = server.ended(server.post(f"/v1/sessions/{session}/turns", {"input": "rm note"})["id"])
        third = server.ended(server.post(f"/v1/sessions/{session}/turns", {"input": "cat note"})["id"])
        events = server.events(session)
        threads = [event["thread_id"] for event in events if event["type"] == "subagent.started"]
        exported = server.export(threads[0])
        check_verifies(server)
    assert "kept" in turn["output"]["text"]
    assert "Nothing is deleted here." in second["output"]["text"]
    assert "kept" in third["output"]["text"]
    assert len(set(threads)) == 3
    assert turn["usage"]["tool_calls"] == 2
    methods = [step["request"]["method"] for step in exported]
    assert methods[0] == "handshake/hello"
    assert methods[-1] == "steps/sessionEnd"
    ended = [event["data"] for event in events if event["type"] == "subagent.ended"]
    assert [one["outcome"] for one in ended] == ["completed"] * 3
    assert [one["usage"]["model_calls"] for one in ended] == [2, 2, 2]
