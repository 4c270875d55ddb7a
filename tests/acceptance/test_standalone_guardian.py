"""`turnkeeper guardian` as a user runs it: any client, over HTTP or standard streams, with people who approve."""

import asyncio
import json
import secrets
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.acceptance.server import READY_TIMEOUT_S, TURNKEEPER, clean_environment, free_port, run_command

from turnkeeper.acs.framing import FrameReader, render_frame
from turnkeeper.client import (
    ClientSettings,
    GuardianClient,
    HttpTransport,
    Identity,
    SessionNotStarted,
    StdioTransport,
    StepDenied,
    Timing,
    Transport,
)
from turnkeeper.client.posture import PostureRules

POLICY = """
version: 1
name: ask-first
default: allow
rules:
  - id: ask
    hooks: [toolCallRequest]
    tools: [delete]
    decision: ask
    reasoning: Deleting is for people.
    ask: {question: "Delete it?", timeout_seconds: 60, approver: {type: human, id: operators}}
"""
SETTINGS = ClientSettings(
    timing=Timing(first_poll_ms=20, max_poll_ms=100), posture=PostureRules(startup="refuse", on_decision_failure="deny")
)


class Place:
    """A folder with a policy, a client's key, an approver's key, and the data dir."""

    def __init__(self, folder: Path) -> None:
        self.home, self.data_dir = folder, folder / "data"
        self.policy, self.secret, self.approver = folder / "policy.yaml", folder / "client.key", folder / "ana.key"
        self.policy.write_text(POLICY)
        self.secret.write_text(secrets.token_hex(32) + "\n")
        scopes = ("--scope", "guardian:read", "--scope", "approvals:decide", "--approver", "operators")
        made = self.run("guardian", "keys", "create", "--name", "ana", *scopes)
        self.approver.write_text(made.stdout)

    @property
    def options(self) -> list[str]:
        """What the command is told in every case."""
        named = {"--data-dir": self.data_dir, "--policy": self.policy, "--secret-file": self.secret}
        return [str(word) for pair in named.items() for word in pair]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command on the data dir."""
        return run_command(*words, "--data-dir", str(self.data_dir), home=self.home)

    def client(self, wire: Transport, key_id: str = "default", secret: Path | None = None) -> GuardianClient:
        """An agent at the end of a wire."""
        return GuardianClient(
            wire, Identity.from_file("agent", secret or self.secret, key_id=key_id), settings=SETTINGS
        )

    async def answer(self, word: str) -> dict[str, object]:
        """What an approver does in a terminal, as soon as there is a question."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            listed = await asyncio.to_thread(self.run, "approvals", "list", "--json")
            if listed.returncode == 0 and (rows := json.loads(listed.stdout)):
                decided = await asyncio.to_thread(
                    self.run, "approvals", word, rows[0]["approval_id"], "--key-file", str(self.approver)
                )
                assert decided.returncode == 0, decided.stderr
                return rows[0]
        raise AssertionError("there was no question in time")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def listening(place: Place) -> Generator[str, None, None]:
    """The Guardian over HTTP; ends it with SIGTERM, which it has to obey with exit code 0."""
    port = free_port()
    command = [TURNKEEPER, "guardian", *place.options, "--host", "127.0.0.1", "--port", str(port)]
    with (place.home / "guardian.log").open("ab") as log:
        process = subprocess.Popen(command, env=clean_environment(place.home), stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                httpx.get(f"{url}/acs", timeout=1)
                break
            except httpx.TransportError:
                assert process.poll() is None, (place.home / "guardian.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


async def deleting(guardian: GuardianClient) -> dict[str, object]:
    """A call that a person has to agree to."""
    async with guardian.session() as session, session.turn() as turn:
        return await turn.tool_call_request("delete", {"path": "a"})


def over_stdio(place: Place) -> StdioTransport:
    command = [TURNKEEPER, "guardian", "--stdio", *place.options]
    return StdioTransport(command, environment=clean_environment(place.home))


def test_an_agent_over_standard_streams_waits_for_a_person_at_a_terminal(place: Place) -> None:
    async def main() -> None:
        async with place.client(over_stdio(place)) as guardian:
            told, question = await asyncio.gather(deleting(guardian), place.answer("approve"))
        assert told == {"path": "a"}
        assert question["question"] == "Delete it?"

    asyncio.run(main())
    listed = place.run("guardian", "sessions", "--json")
    (session,) = json.loads(listed.stdout)
    assert session["closed"] is True
    turns = json.loads(place.run("guardian", "turns", session["session_id"], "--json").stdout)
    assert [turn["outcome"] for turn in turns] == ["completed"]
    assert json.loads(place.run("guardian", "findings", session["session_id"], "--json").stdout) == []


def test_an_agent_over_http_is_denied_by_a_person_and_the_record_says_who(place: Place) -> None:
    async def main(url: str) -> dict[str, object]:
        async with place.client(HttpTransport(f"{url}/acs")) as guardian:
            outcomes = await asyncio.gather(deleting(guardian), place.answer("deny"), return_exceptions=True)
        assert isinstance(outcomes[0], StepDenied)
        assert outcomes[0].reason_codes == ("approval_denied",)
        headers = {"Authorization": f"Bearer {place.approver.read_text().strip()}"}
        async with httpx.AsyncClient(base_url=url, headers=headers) as web:
            return (await web.get("/guardian/v1/approvals")).json()["data"][0]

    with listening(place) as url:
        approval = asyncio.run(main(url))
    assert (approval["status"], approval["decided_by"]) == ("denied", "operators")


def test_a_label_is_added_and_revoked_while_the_guardian_runs(place: Place) -> None:
    keys = place.data_dir / "guardian" / "keys"
    second = keys / "second.key"

    async def greets(url: str) -> bool:
        async with place.client(HttpTransport(f"{url}/acs"), "second", place.home / "second.key") as guardian:
            try:
                async with guardian.session():
                    return True
            except SessionNotStarted:
                return False

    with listening(place) as url:
        (place.home / "second.key").write_text(secrets.token_hex(32) + "\n")
        assert asyncio.run(greets(url)) is False
        keys.mkdir(parents=True, exist_ok=True)
        second.write_bytes((place.home / "second.key").read_bytes())
        assert asyncio.run(greets(url)) is True
        (keys / "revoked").mkdir()
        second.rename(keys / "revoked" / "second.key")
        assert asyncio.run(greets(url)) is False


def test_what_a_key_outside_of_the_data_dir_signed_verifies_with_that_key(place: Place) -> None:
    async def main() -> None:
        async with place.client(over_stdio(place)) as guardian, guardian.session() as session, session.turn() as turn:
            await turn.tool_call_request("shell", {"command": "ls"})

    asyncio.run(main())
    given = place.run("verify", "--secret-file", str(place.secret))
    assert (given.returncode, "intact: 1 sessions" in given.stdout) == (0, True)
    assert place.run("verify", "--secret-file", str(place.secret), "--key-id", "other").returncode == 1
    assert place.run("verify", "--secret-file", str(place.home / "nowhere")).returncode == 2


def frames(place: Place, written: bytes) -> tuple[int, bytes]:
    """The exit code and the output for some input and its end."""
    done = subprocess.run(
        [TURNKEEPER, "guardian", "--stdio", *place.options],
        env=clean_environment(place.home),
        input=written,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def test_standard_output_has_frames_alone_and_the_end_of_the_input_is_the_end(place: Place) -> None:
    code, written = frames(place, render_frame(b"{") + render_frame(b"[]"))
    assert code == 0
    assert [json.loads(body)["error"]["code"] for body in FrameReader(1_000).feed(written)] == [-32700, -32600]


def test_input_that_is_no_frame_ends_it_with_a_failure(place: Place) -> None:
    code, written = frames(place, b"GET / HTTP/1.1\r\n\r\n")
    assert code == 1
    assert len(FrameReader(1_000).feed(written)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["guardian", "--stdio", "--port", "1"],
        ["guardian", "keys", "create", "--name", "a", "--scope", "approvals:decide"],
        ["guardian", "keys", "create", "--name", "a", "--scope", "guardian:write"],
        ["guardian", "turns", "nobody"],
        ["approvals", "show", "nothing"],
        ["guardian", "--secret-file", "nowhere"],
    ],
)
def test_what_is_typed_wrongly_is_a_usage_error(place: Place, words: list[str]) -> None:
    done = place.run(*words)
    assert done.returncode == 2, done.stderr
    assert "error" in done.stderr
