"""A loop that is no part of Turnkeeper: the example's 30 lines run turns in the loop box, under the Guardian."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.acceptance.server import NO_WARM_BOXES, Json, Server

from turnkeeper.testing.scripted_answers import ScriptedAnswer, SeenRequest
from turnkeeper.testing.scripted_model import running_scripted_model

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "runner.py"


@contextmanager
def serving(folder: Path) -> Generator[Server]:
    """A server that lends one program, and a model that repeats what it was asked."""

    def answer(seen: SeenRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text=f"I was told: {seen.messages[-1]['content']}")

    with running_scripted_model(answer) as model:
        config = f"""{NO_WARM_BOXES}
[providers.scripted]
kind = "openai"
base_url = "{model.base_url}"
[harness]
programs = ["{sys.executable}"]
read_only = ["{EXAMPLE}"]
"""
        with Server(folder, config) as server:
            yield server


def agent_of(command: list[str]) -> Json:
    """An agent with a loop of its own."""
    model = {"provider": "scripted", "id": "m"}
    return {"name": "own", "model": model, "tools": ["shell"], "harness": {"kind": "command", "command": command}}


def test_the_example_runs_a_governed_turn_in_the_loop_box(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        agent = server.post("/v1/agents", agent_of([sys.executable, str(EXAMPLE)]))
        session = server.post("/v1/sessions", {"agent_id": agent["id"]})
        turn = server.ended(server.post(f"/v1/sessions/{session['id']}/turns", {"input": "Look."})["id"])
        events = server.events(session["id"])
    assert (turn["status"], turn["stop_reason"]) == ("completed", "end_turn"), turn
    assert turn["output"]["text"].startswith("I was told: Look.\n\nThe files here (ok):")
    assert turn["usage"]["by_model"][0]["model_calls"] == 1
    assert [event["type"] for event in events if event["type"].startswith("tool.")] == [
        "tool.requested",
        "tool.decided",
        "tool.started",
        "tool.completed",
    ]


def test_a_program_that_the_operator_does_not_lend_makes_no_agent(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client() as client:
        refused = client.post("/v1/agents", json=agent_of(["/bin/sh", "-c", "true"]))
    assert refused.status_code == 422
    assert (refused.json()["code"], refused.json()["param"]) == ("harness_not_lent", "/harness/command")


def test_a_program_that_speaks_no_protocol_fails_its_turn(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        agent = server.post("/v1/agents", agent_of([sys.executable, "-c", "print('hello')"]))
        turn = server.post("/v1/turns", {"agent_id": agent["id"], "input": "Look."})
        ended = server.ended(turn["id"])
    assert (ended["status"], ended["error"]["code"]) == ("failed", "sandbox_unavailable"), ended
