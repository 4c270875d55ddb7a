"""kill -9 at a random moment: nothing is lost, doubled or stuck, and no box is left behind.

The short form is part of the suite; `make chaos` runs fifty rounds. A failure names its seed.
"""

import os
import random
import time
from pathlib import Path

import httpx
import pytest
from tests.acceptance.invariants import check_everything
from tests.acceptance.server import Json, Server, wait_gone
from tests.acceptance.stub import RESULT_SCHEMA, StubModel

ROUNDS = int(os.environ.get("TURNKEEPER_CHAOS_ROUNDS", "5"))
SEED = int(os.environ.get("TURNKEEPER_CHAOS_SEED", "20261130"))
LONGEST_LIFE_S = 1.6

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(60 + 40 * ROUNDS)]


def new_session(server: Server) -> str:
    """A session of a fresh agent with a shell."""
    agent = server.post(
        "/v1/agents",
        {"name": "chaos", "model": {"provider": "stub", "id": "m"}, "instructions": "Work.", "tools": ["shell"]},
    )
    return str(server.post("/v1/sessions", {"agent_id": agent["id"]})["id"])


def post_turn(server: Server, session_id: str, key: str) -> Json | None:
    """One turn under an idempotency key; `None` if the server died before it answered."""
    body = {"input": "tools=2 text=fine", "output_schema": RESULT_SCHEMA, "metadata": {"key": key}}
    try:
        return server.post(f"/v1/sessions/{session_id}/turns", body, Idempotency_Key=key)
    except httpx.TransportError:
        return None


def test_fifty_crashes_lose_double_and_strand_nothing(tmp_path: Path) -> None:
    """A turn whose POST was answered ends once; one whose POST was cut is posted again under its key and ends once."""
    chance = random.Random(SEED)
    with StubModel(delay_s=0.05) as model, Server(tmp_path, model.config(), environment={"STUB_KEY": "k"}) as server:
        sessions = [new_session(server) for _ in range(2)]
        turn_ids: set[str] = set()
        for number in range(ROUNDS):
            keys = {f"{session}-{number}-{k}": session for session in sessions for k in range(2)}
            for key, session in keys.items():
                post_turn(server, session, key)
            time.sleep(chance.random() * LONGEST_LIFE_S)
            boxes = server.descendants()
            server.kill()
            left = wait_gone(boxes)
            assert not left, f"seed {SEED}, round {number}: processes left {left}"
            server.start()
            for key, session in keys.items():
                turn = post_turn(server, session, key)
                assert turn is not None
                turn_ids.add(str(turn["id"]))
            for turn_id in sorted(turn_ids):
                server.ended(turn_id)
        assert len(turn_ids) == ROUNDS * len(sessions) * 2, f"seed {SEED}: a key made two turns"
        for session in sessions:
            server.post(f"/v1/sessions/{session}/close", {"mode": "drain"})
        wait_closed(server, sessions)
        check_everything(server, sessions)


def wait_closed(server: Server, sessions: list[str], *, timeout_s: float = 30) -> None:
    """Until every session says closed."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        states = {server.get(f"/v1/sessions/{session}")["status"] for session in sessions}
        if states == {"closed"}:
            return
        time.sleep(0.1)
    raise AssertionError(f"sessions did not close:\n{server.log_tail()}")
