"""Turns that wait for somebody hold nothing: no box, no slot, no worker."""

import time
from pathlib import Path

import pytest
from tests.acceptance.server import NO_WARM_BOXES, Json, Server
from tests.acceptance.stub import StubModel

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

PARKED = 3
DEADLINE_S = 90
ONE_SLOT = "[worker]\nslots = 1\npause_warm_ms = 0\n"
POLICY = """version: 1
name: ask-first
default: allow
rules:
  - id: wait-for-somebody
    hooks: [toolCallRequest]
    tools: [shell]
    decision: ask
    reasoning: Commands are for people to allow.
    ask: {question: "May it?", timeout_seconds: 600, approver: {type: human, id: operators}}
"""


def posted(server: Server, prompt: str) -> str:
    """A turn in a session of its own, of an agent whose commands are asked about."""
    agent: Json = {"name": "a", "model": {"provider": "stub", "id": "m"}, "tools": ["shell"]}
    made = server.post("/v1/agents", agent)
    session = server.post("/v1/sessions", {"agent_id": made["id"]})
    return str(server.post(f"/v1/sessions/{session['id']}/turns", {"input": prompt})["id"])


def until_paused(server: Server, turn_id: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (turn := server.get(f"/v1/turns/{turn_id}"))["status"] != "paused":
        assert time.monotonic() < deadline, turn
        time.sleep(0.1)


def test_parked_turns_hold_no_process_and_no_slot(tmp_path: Path) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text(POLICY)
    with StubModel() as model:
        config = model.config(f'{NO_WARM_BOXES}{ONE_SLOT}[guardian]\npolicy = "{rules}"\n')
        with Server(tmp_path, config, environment={"STUB_KEY": "k"}) as server:
            before = server.descendants()
            for _ in range(PARKED):
                # With one slot, the second one begins only once the first has let go of it.
                until_paused(server, posted(server, "tools=1 text=done"))
            assert server.ended(posted(server, "text=done"))["status"] == "completed"
            queue = server.get("/v1/admin/queue")
            assert (queue["paused"], queue["runners"]["busy"]) == (PARKED, 0)
            deadline = time.monotonic() + DEADLINE_S
            while left := server.descendants() - before:
                assert time.monotonic() < deadline, left
                time.sleep(0.1)
