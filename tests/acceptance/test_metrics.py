"""Figures of a real turn, and keys made on the command line that hold to their scopes, limits and secrets."""

import json
import re
from collections.abc import Iterator

import httpx
import pytest
from tests.acceptance.server import NO_WARM_BOXES, Server
from tests.acceptance.stub import StubModel

AGENT = {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "Work.", "tools": ["shell"]}

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all of them."""
    with (
        StubModel() as model,
        Server(
            tmp_path_factory.mktemp("figures"), model.config(NO_WARM_BOXES), environment={"STUB_KEY": "k"}
        ) as running,
    ):
        yield running


def asked(server: Server, secret: str, path: str) -> int:
    """What a key is answered."""
    return httpx.get(server.url + path, headers={"Authorization": f"Bearer {secret}"}, timeout=60).status_code


def made(server: Server, *words: str) -> str:
    """The secret that a command prints."""
    done = server.command("keys", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_turn_is_counted_from_its_acceptance_to_its_end(server: Server) -> None:
    """By every part that it passes."""
    agent = server.post("/v1/agents", AGENT)
    session = server.post("/v1/sessions", {"agent_id": agent["id"]})
    turn = server.post(f"/v1/sessions/{session['id']}/turns", {"input": "tools=1 text=hi"})
    assert server.ended(turn["id"])["status"] == "completed"
    headers = {"Authorization": f"Bearer {server.secret}"}
    page = httpx.get(f"{server.url}/metrics", headers=headers, timeout=60).text
    for line in (
        "turnkeeper_accept_ms_count 1",
        "turnkeeper_queue_ms_count 1",
        'turnkeeper_start_ms_count{warm="false"} 1',
        'turnkeeper_turns_ended_total{status="completed",stop_reason="end_turn"} 1',
        'turnkeeper_guardian_decisions_total{hook="toolCallRequest",disposition="allow"} 1',
        "turnkeeper_stuck_turns 0",
    ):
        assert line in page.splitlines(), page
    # Of the whole host: other servers may have left some.
    assert re.search(r"^turnkeeper_orphan_sandboxes [0-9]+$", page, re.MULTILINE)


def test_a_key_from_the_command_line_holds_to_its_scopes_and_limits(server: Server) -> None:
    """403 beyond its scopes, 429 beyond its requests."""
    secret = made(server, "create", "--name", "few", "--scope", "sessions:read", "--requests-per-minute", "2")
    assert asked(server, secret, "/v1/agents") == 403
    assert [asked(server, secret, "/v1/sessions") for _ in range(3)][-1] == 429
    shown = next(key for key in json.loads(made(server, "list", "--json")) if key["name"] == "few")
    assert (shown["scopes"], shown["limits"]["requests_per_minute"]) == (["sessions:read"], 2)


def test_a_secret_that_was_exchanged_without_an_overlap_opens_nothing(server: Server) -> None:
    """The new one does, for the same key."""
    done = server.command("keys", "create", "--name", "turning")
    key_id = re.search(r"key_\w+", done.stderr)
    assert key_id is not None
    old, new = done.stdout.strip(), made(server, "rotate", key_id[0], "--overlap-hours", "0")
    assert (asked(server, old, "/v1/sessions"), asked(server, new, "/v1/sessions")) == (401, 200)
    assert server.command("keys", "rotate", "key_nobody").returncode == 2
