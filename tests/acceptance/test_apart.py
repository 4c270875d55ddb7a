"""`turnkeeper api`, `turnkeeper work` twice and `turnkeeper guardian` on one PostgreSQL, and what is done to them."""

import signal
import time
from pathlib import Path

import httpx
import pytest
from tests.acceptance.apart import Apart, Part, apart
from tests.acceptance.server import free_port, run_command

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.postgres, pytest.mark.timeout(180)]

LONG = "tools=1 command=sleep+30 text=late"
SHORT_LEASE = "lease_ttl_ms = 3000\npoll_ms = 200"


def holder(workers: list[Part], turn_id: str, place: Apart) -> tuple[Part, Part]:
    """The worker with a box for the running turn, and the other one."""
    place.until(turn_id, "running")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for number, part in enumerate(workers):
            if list((part.log_file.parent / f"{part.name}-data" / "workspaces").iterdir()):
                return part, workers[1 - number]
        time.sleep(0.02)
    raise AssertionError("no worker has a workspace")


def test_turns_posted_to_the_api_are_run_by_workers_and_waited_for_there(tmp_path: Path) -> None:
    with apart(tmp_path) as place:
        for name in ("one", "two"):
            place.work(name)
        sessions = [place.session() for _ in range(3)]
        turns = [place.post(f"/v1/sessions/{session}/turns", {"input": "text=hi"}) for session in sessions]
        ended = [place.turn(turn["id"], wait_ms=60_000) for turn in turns]
        assert [turn["output"] for turn in ended] == [{"text": "hi"}] * 3


def test_a_worker_that_is_killed_is_taken_over_within_a_second_and_its_turn_ends_once(tmp_path: Path) -> None:
    """Row 20: nothing with possible side effects runs twice unless the app says so."""
    with apart(tmp_path) as place:
        workers = [place.work(name) for name in ("one", "two")]
        session = place.session()
        turn = place.post(f"/v1/sessions/{session}/turns", {"input": LONG})
        held, other = holder(workers, turn["id"], place)
        held.kill()
        other.until_says("turn_taken_over", timeout_s=10)
        ended = place.turn(turn["id"], wait_ms=10_000)
        assert (ended["status"], ended["stop_reason"]) == ("failed", "sandbox_lost")
        after = place.post(f"/v1/sessions/{session}/turns", {"input": "text=next"})
        assert place.turn(after["id"], wait_ms=60_000)["output"] == {"text": "next"}
        types = [event["type"] for event in place.events(session) if event["turn_id"] == turn["id"]]
        assert types.count("turn.failed") == 1


def test_a_turn_that_may_be_tried_again_is_run_by_the_worker_that_is_left(tmp_path: Path) -> None:
    """Row 21."""
    with apart(tmp_path) as place:
        workers = [place.work(name) for name in ("one", "two")]
        session = place.session(max_attempts=2)
        turn = place.post(f"/v1/sessions/{session}/turns", {"input": "tools=1 command=sleep+5 text=hi"})
        held, _ = holder(workers, turn["id"], place)
        held.kill()
        ended = place.turn(turn["id"], wait_ms=60_000)
        assert (ended["status"], ended["attempt"], ended["output"]) == ("completed", 2, {"text": "hi"})
        types = [event["type"] for event in place.events(session)]
        assert types.count("turn.retrying") == 1
        assert types.count("turn.completed") == 1


def test_a_worker_that_was_stopped_past_its_lease_writes_nothing_when_it_goes_on(tmp_path: Path) -> None:
    """The lock is still held, so only the lease tells; the stopped worker lets go of its box by itself."""
    with apart(tmp_path, worker=SHORT_LEASE) as place:
        workers = [place.work(name) for name in ("one", "two")]
        session = place.session()
        turn = place.post(f"/v1/sessions/{session}/turns", {"input": LONG})
        held, other = holder(workers, turn["id"], place)
        held.send(signal.SIGSTOP)
        other.until_says("turn_taken_over", timeout_s=30)
        ended = place.turn(turn["id"], wait_ms=10_000)
        written = len(place.events(session))
        held.send(signal.SIGCONT)
        held.until_says("lease_lost", timeout_s=30)
        assert ended["stop_reason"] == "sandbox_lost"
        assert len(place.events(session)) == written
        again = place.post(f"/v1/sessions/{session}/turns", {"input": "text=next"})
        assert place.turn(again["id"], wait_ms=60_000)["status"] == "completed"


def test_a_worker_shows_its_own_figures_and_nobody_elses(tmp_path: Path) -> None:
    """`worker.metrics_port`: without a key, on its own address, with the turn that it has run."""
    port = free_port()
    with apart(tmp_path, worker=f"metrics_port = {port}") as place:
        place.work("one").until_says("showing_metrics")
        turn = place.post(f"/v1/sessions/{place.session()}/turns", {"input": "tools=1 text=hi"})
        assert place.turn(turn["id"], wait_ms=60_000)["status"] == "completed"
        shown = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60, trust_env=False)
        lines = shown.text.splitlines()
        assert (shown.status_code, shown.headers["content-type"].partition(";")[0]) == (200, "text/plain")
        assert 'turnkeeper_turns_ended_total{status="completed",stop_reason="end_turn"} 1' in lines
        assert 'turnkeeper_start_ms_count{warm="false"} 1' in lines
        # What is accepted is counted where it is accepted.
        assert "turnkeeper_accept_ms_count 1" not in lines
        assert "turnkeeper_accept_ms_count 1" in place.client.get("/metrics").text.splitlines()
        assert httpx.get(f"http://127.0.0.1:{port}/v1/turns", timeout=60, trust_env=False).status_code == 404


@pytest.mark.parametrize("command", ["api", "work"])
def test_a_process_that_would_stand_alone_does_not_start(tmp_path: Path, command: str) -> None:
    refused = run_command(command, "--data-dir", "data", home=tmp_path)

    assert refused.returncode == 2
    assert "store.url" in refused.stderr
