"""Turns that the example's runner takes over HTTP, as a process of its own, from a real server."""

import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.acceptance.server import NO_WARM_BOXES, Json, Server

from turnkeeper.runners.tokens import new_pool_token, token_sha256
from turnkeeper.testing.scripted_answers import ScriptedAnswer, ScriptedCall, SeenRequest
from turnkeeper.testing.scripted_model import running_scripted_model

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "remote_runner.py"
POOL = "elsewhere"


@contextmanager
def serving(folder: Path, *, delay_ms: int = 0) -> Generator[tuple[Server, str]]:
    """A server with a pool, and the pool's token; its model calls a tool and quotes what came of it."""
    token = new_pool_token()

    def answer(seen: SeenRequest) -> ScriptedAnswer:
        last = seen.messages[-1]
        if last["role"] == "user":
            return ScriptedAnswer(tool_calls=(ScriptedCall("list_files"),), delay_ms=delay_ms)
        return ScriptedAnswer(text=f"I see {last['content']}")

    with running_scripted_model(answer) as model:
        config = f"""{NO_WARM_BOXES}
[worker]
lease_ttl_ms = 6000
[providers.scripted]
kind = "openai"
base_url = "{model.base_url}"
[runners.pools.{POOL}]
token_sha256 = ["{token_sha256(token)}"]
"""
        with Server(folder, config) as server:
            yield server, token


@contextmanager
def running(server: Server, token: str) -> Generator["subprocess.Popen[bytes]"]:
    """The example as a process."""
    environment = {**os.environ, "TURNKEEPER_POOL_TOKEN": token}
    words = [sys.executable, str(EXAMPLE), server.url, POOL]
    folder = server.home / "runner"
    folder.mkdir(exist_ok=True)
    (folder / "one-file").touch()
    with subprocess.Popen(words, env=environment, cwd=folder) as runner:
        try:
            yield runner
        finally:
            runner.kill()


def remote_agent(server: Server, **more: object) -> Json:
    """An agent whose turns the pool runs."""
    model = {"provider": "scripted", "id": "m"}
    return server.post(
        "/v1/agents", {"name": "far", "model": model, "sandbox": {"kind": "remote", "pool": POOL}, **more}
    )


def test_the_example_runs_a_governed_turn_elsewhere(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, token), running(server, token):
        session = server.post("/v1/sessions", {"agent_id": remote_agent(server)["id"]})
        turn = server.ended(server.post(f"/v1/sessions/{session['id']}/turns", {"input": "What is here?"})["id"])
        events = server.events(session["id"])
    assert (turn["status"], turn["output"]["text"]) == ("completed", "I see one-file"), turn
    assert turn["usage"]["by_model"][0]["model_calls"] == 2
    assert [event["type"] for event in events if event["type"].startswith("tool.")] == [
        "tool.requested",
        "tool.decided",
        "tool.started",
        "tool.completed",
    ]
    (starting,) = [event for event in events if event["type"] == "turn.starting"]
    assert starting["data"]["sandbox_kind"] == "remote"


def test_a_killed_runner_costs_an_attempt_and_the_next_one_answers(tmp_path: Path) -> None:
    with serving(tmp_path, delay_ms=3_000) as (server, token):
        session = server.post("/v1/sessions", {"agent_id": remote_agent(server)["id"]})
        body = {"input": "What is here?", "max_attempts": 2}
        with running(server, token):
            turn_id = server.post(f"/v1/sessions/{session['id']}/turns", body)["id"]
            started(server, turn_id)
        with running(server, token):
            turn = server.ended(turn_id)
        events = server.events(session["id"])
    assert (turn["status"], turn["attempt"], turn["output"]["text"]) == ("completed", 2, "I see one-file"), turn
    (lost,) = [event for event in events if event["type"] == "sandbox.lost"]
    assert lost["data"]["reason"] == "lease_expired"


def test_a_killed_server_ends_the_attempt_and_the_runner_takes_the_next(tmp_path: Path) -> None:
    with serving(tmp_path, delay_ms=3_000) as (server, token), running(server, token):
        session = server.post("/v1/sessions", {"agent_id": remote_agent(server)["id"]})
        body = {"input": "What is here?", "max_attempts": 2}
        turn_id = server.post(f"/v1/sessions/{session['id']}/turns", body)["id"]
        started(server, turn_id)
        server.kill()
        server.start()
        turn = server.ended(turn_id)
        events = server.events(session["id"])
    assert (turn["status"], turn["attempt"], turn["output"]["text"]) == ("completed", 2, "I see one-file"), turn
    assert [event["type"] for event in events].count("turn.completed") == 1


def started(server: Server, turn_id: str) -> None:
    """Returns once the turn runs."""
    deadline = time.monotonic() + 90
    while server.get(f"/v1/turns/{turn_id}")["status"] != "running":
        assert time.monotonic() < deadline, server.log_tail()
        time.sleep(0.05)
