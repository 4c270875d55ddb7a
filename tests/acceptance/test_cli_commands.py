"""What a user types beside a running server, as processes of their own."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.acceptance.server import TURNKEEPER, Server, clean_environment, run_command
from tests.acceptance.stub import RESULT_SCHEMA, StubModel

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the commands that stand beside it."""
    with (
        StubModel() as model,
        Server(tmp_path_factory.mktemp("cli"), model.config(), environment={"STUB_KEY": "k"}) as running,
    ):
        yield running


def one_turn(server: Server) -> tuple[str, str]:
    """A session and a turn with a tool call that has ended."""
    agent = server.post(
        "/v1/agents",
        {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "x", "tools": ["shell"]},
    )
    session = server.post("/v1/sessions", {"agent_id": agent["id"]})
    turn = server.post(
        f"/v1/sessions/{session['id']}/turns", {"input": "tools=1 text=hi", "output_schema": RESULT_SCHEMA}
    )
    assert server.ended(turn["id"])["status"] == "completed"
    return session["id"], turn["id"]


def test_a_second_server_on_the_same_data_dir_is_told_who_holds_it(server: Server) -> None:
    """Exit 1 and a sentence with the holder's pid; the first one goes on."""
    second = server.command("serve", "--port", "0")
    assert second.returncode == 1
    assert f"pid {server.pid}" in second.stderr
    assert "turnkeeper serve" in second.stderr
    assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200


def test_a_taken_port_is_named_before_anything_starts(server: Server, tmp_path: Path) -> None:
    """Another data dir, the same port."""
    second = run_command("serve", "--data-dir", str(tmp_path / "d"), "--port", str(server.port), home=tmp_path)
    assert second.returncode == 1
    assert f"port {server.port} cannot be listened on" in second.stderr


def test_a_key_made_beside_a_running_server_opens_it_until_it_is_revoked(server: Server) -> None:
    """The secret stands alone on standard output."""
    made = server.command("keys", "create", "--name", "beside")
    secret = made.stdout.strip()
    assert made.stdout == f"{secret}\n"
    listed = json.loads(server.command("keys", "list", "--json").stdout)
    key_id = next(key["id"] for key in listed if key["name"] == "beside")
    assert secret not in json.dumps(listed)
    headers = {"Authorization": f"Bearer {secret}"}
    assert httpx.get(f"{server.url}/v1/agents", headers=headers, trust_env=False).status_code == 200
    assert server.command("keys", "revoke", key_id).returncode == 0
    assert httpx.get(f"{server.url}/v1/agents", headers=headers, trust_env=False).status_code == 401


def test_an_unknown_key_cannot_be_revoked(server: Server) -> None:
    """A usage error, not a traceback."""
    done = server.command("keys", "revoke", "key_nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no key" in done.stderr


def test_verify_lists_the_turn_with_its_counts_and_export_prints_its_steps(server: Server) -> None:
    """Beside the running server; the chain of a session of ours verifies under its own key."""
    session_id, turn_id = one_turn(server)
    report = server.command("verify", "--session", session_id)
    assert report.returncode == 0, report.stdout
    assert f"turn {turn_id}: completed, 4 steps, 1 tool calls" in report.stdout
    rows = server.export(session_id)
    assert [set(row) for row in rows] == [{"request", "response", "entry", "turn_id"}] * len(rows)
    assert {row["turn_id"] for row in rows} == {None, turn_id}


def test_commands_that_name_no_session_say_so(server: Server) -> None:
    """Exit 2; an empty export would look like a clean one."""
    unknown = "ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
    for words in (("export", unknown), ("verify", "--session", unknown)):
        done = server.command(*words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "knows no session" in done.stderr


def test_verify_refuses_a_folder_that_holds_nothing(tmp_path: Path) -> None:
    """A wrong --data-dir is not a clean chain."""
    done = run_command("verify", "--data-dir", str(tmp_path / "nothing"), home=tmp_path)
    assert done.returncode == 2
    assert "holds no Turnkeeper data" in done.stderr


def test_doctor_finds_nothing_that_keeps_turns_from_running(server: Server) -> None:
    """Its port is taken by the server itself, which is worth a warning and no failure."""
    done = server.command("doctor", "--json")
    checks = {check["name"]: check["state"] for check in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert "fail" not in checks.values()
    assert checks["dead letters"] == "ok"
    assert checks["sandbox tool box"] == "ok"


def test_the_first_signal_stops_gracefully_and_the_data_dir_is_free(tmp_path: Path) -> None:
    """Exit 0; the next start finds nothing in its way."""
    with StubModel() as model, Server(tmp_path, model.config(), environment={"STUB_KEY": "k"}) as server:
        one_turn(server)
        assert server.stop() == 0
        server.start()


def test_the_second_signal_stops_at_once_and_the_turn_is_ended_by_the_next_start(tmp_path: Path) -> None:
    """A turn that was running is not lost: it ends as `sandbox_lost`, once."""
    with (
        StubModel(delay_s=60) as model,
        Server(tmp_path, model.config(), environment={"STUB_KEY": "k"}) as server,
    ):
        agent = server.post("/v1/agents", {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "x"})
        session = server.post("/v1/sessions", {"agent_id": agent["id"]})
        turn = server.post(f"/v1/sessions/{session['id']}/turns", {"input": "text=hi"})
        wait_until_running(server, turn["id"])
        os.kill(server.pid, signal.SIGTERM)
        assert server.stop() == 0
        server.start()
        assert server.ended(turn["id"])["stop_reason"] == "sandbox_lost"


def wait_until_running(server: Server, turn_id: str) -> None:
    """Reads the turn's stream up to its start."""
    with server.client() as client, client.stream("GET", f"/v1/turns/{turn_id}/events/stream?after=0") as stream:
        assert any(line == "event: turn.started" for line in stream.iter_lines())


def test_a_running_server_prints_where_it_listens(tmp_path: Path) -> None:
    """With port 0 that line is the only way to know."""
    with subprocess.Popen(
        [TURNKEEPER, "serve", "--data-dir", str(tmp_path / "d"), "--port", "0"],
        env=clean_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        url = line.removeprefix("Turnkeeper listens on ")
        assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
        process.terminate()
        assert process.wait(timeout=30) == 0
