"""A worker that stood still past its lease, and nobody else there to take its turns over."""

import os
import signal
from pathlib import Path
from time import sleep

import pytest
from tests.acceptance.server import NO_WARM_BOXES, Server
from tests.acceptance.stub import StubModel

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(180)]

SHORT_LEASE = f"{NO_WARM_BOXES}[worker]\nlease_ttl_ms = 2000\npoll_ms = 200\n"


def test_a_lone_server_that_was_stopped_past_its_lease_ends_its_own_turn(tmp_path: Path) -> None:
    with (
        StubModel() as model,
        Server(tmp_path, model.config(SHORT_LEASE), environment={"STUB_KEY": "k"}) as server,
    ):
        agent = server.post("/v1/agents", {"name": "a", "model": {"provider": "stub", "id": "m"}, "tools": ["shell"]})
        session = server.post("/v1/sessions", {"agent_id": agent["id"]})["id"]
        turn = server.post(f"/v1/sessions/{session}/turns", {"input": "tools=1 command=sleep+60 text=late"})
        while not any(event["type"] == "tool.started" for event in server.events(session)):
            sleep(0.1)
        os.kill(server.pid, signal.SIGSTOP)
        sleep(4)
        os.kill(server.pid, signal.SIGCONT)
        ended = server.ended(turn["id"], timeout_s=40)
        assert (ended["status"], ended["stop_reason"]) == ("failed", "sandbox_lost")
        after = server.post(f"/v1/sessions/{session}/turns", {"input": "text=next"})
        assert server.ended(after["id"])["output"] == {"text": "next"}
