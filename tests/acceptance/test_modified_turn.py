"""A policy that changes what an agent does: the tool really runs with what the Guardian made of its arguments."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.server import Json, Server
from tests.acceptance.stub import RESULT_SCHEMA, StubModel

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

POLICY = """
version: 1
name: changes
default: allow
rules:
  - id: writes-go-elsewhere
    hooks: [toolCallRequest]
    tools: [shell]
    when: args.command.contains("asked.txt")
    decision: modify
    reasoning: That file is not for agents.
    modify: {parameter_overrides: {command: "echo changed > allowed.txt; echo sk-123"}}
  - id: no-keys-in-outputs
    hooks: [toolCallResult]
    when: payload.outputs[0].value.contains("sk-")
    decision: modify
    reasoning: Keys are not passed on.
    modify: {redactions: [{path: /outputs/0/value, replacement: "[KEY]"}]}
  - id: no-names-in-answers
    hooks: [agentResponse]
    when: payload.content[0].value.contains("Mallory")
    decision: modify
    reasoning: Names stay here.
    modify: {redactions: [{path: /content/0/value, replacement: "[NAME]"}]}
  - id: no-results-that-nobody-ordered
    hooks: [agentResponse]
    when: payload.content[0].value == "bad"
    decision: modify
    reasoning: One text takes its place.
    modify: {redactions: [{path: /content/1/value, replacement: "{}"}]}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose policy changes steps."""
    folder = tmp_path_factory.mktemp("modified")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    with StubModel() as model:
        config = model.config(f'[sandbox]\nwarm = 0\n[guardian]\npolicy = "{policy}"\n')
        with Server(folder, config, environment={"STUB_KEY": "k"}) as running:
            yield running


def run_turn(server: Server, body: Json) -> tuple[Json, list[Json]]:
    """The turn and its session's events."""
    agent = server.post(
        "/v1/agents",
        {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "Work.", "tools": ["shell"]},
    )
    session = server.post("/v1/sessions", {"agent_id": agent["id"]})
    turn = server.ended(server.post(f"/v1/sessions/{session['id']}/turns", body)["id"])
    return turn, server.events(session["id"])


def data_of(events: list[Json], event_type: str) -> Json:
    (event,) = [event for event in events if event["type"] == event_type]
    return event["data"]


def assert_nothing_is_found(server: Server) -> None:
    done = server.command("verify", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["findings"] == []


def test_a_tool_runs_with_the_changed_argument_and_the_agent_reads_the_changed_output(server: Server) -> None:
    turn, events = run_turn(server, {"input": "tools=1 command=echo+asked+>+asked.txt text=Mallory"})
    decided, completed = data_of(events, "tool.decided"), data_of(events, "tool.completed")
    assert decided["decision"] == "modify"
    assert decided["modified_input"] == {"command": "echo changed > allowed.txt; echo sk-123"}
    assert (completed["output"], completed["modified"]) == ("[KEY]", True)
    assert (turn["status"], turn["output"]["text"]) == ("completed", "[NAME]")
    (workspace,) = [path.parent for path in Path(server.data_dir).rglob("allowed.txt")]
    assert (workspace / "allowed.txt").read_text() == "changed\n"
    assert not (workspace / "asked.txt").exists()
    assert_nothing_is_found(server)


def test_a_result_is_validated_after_the_guardian_changed_it(server: Server) -> None:
    turn, _ = run_turn(server, {"input": "tools=0 text=bad", "output_schema": RESULT_SCHEMA})
    assert (turn["status"], turn["result"], turn["result_error"]) == ("completed", None, "invalid")
    assert_nothing_is_found(server)


def test_the_export_says_what_was_seen(server: Server) -> None:
    turn, _ = run_turn(server, {"input": "tools=1 text=done"})
    entries = [row["entry"] for row in server.export(turn["session_id"]) if row.get("entry")]
    origins = {origin for entry in entries for origin in entry["provenance_summary"]["origins_seen"]}
    assert origins == {"user_input", "agent_generated", "tool_output"}
    assert_nothing_is_found(server)
