"""Turns that wait for a person, with real processes and real boxes: killed, restarted, answered, done once.

What a user can type and see is all that is used: the API, `turnkeeper approvals`, `export`, `verify`.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.acceptance.server import NO_WARM_BOXES, Json, Server, run_command
from tests.acceptance.stub import StubModel

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

DEADLINE_S = 60
POLICY = """version: 1
name: ask-first
default: allow
rules:
  - id: wait-for-somebody
    hooks: [toolCallRequest]
    tools: [shell]
    decision: defer
    reasoning: Commands are for people to allow.
    when: '!args.command.contains("soon")'
    defer: {reason: pending_dependency, resolution_method: human_approval, resolution_timeout_ms: 600000}
  - id: ask-in-the-end
    hooks: [toolCallRequest]
    tools: [shell]
    decision: defer
    reasoning: It may be known in a second.
    when: args.command.contains("soon")
    defer:
      reason: low_confidence
      resolution_method: human_approval
      resolution_timeout_ms: 1000
      timeout_decision: ask
"""
PROMPT = "tools=1 command=echo+x>>marks text=done"
COLD = "[worker]\npause_warm_ms = 0\n"


class Place:
    """A server whose Guardian defers every command."""

    def __init__(self, folder: Path, model: StubModel) -> None:
        rules = folder / "policy.yaml"
        rules.write_text(POLICY)
        config = model.config(f'{NO_WARM_BOXES}{COLD}[guardian]\npolicy = "{rules}"\n')
        self.server = Server(folder, config, environment={"STUB_KEY": "k"})
        self._where = ("--config", str(self.server.config_file), "--data-dir", str(self.server.data_dir))

    def post(self, prompt: str, *, pause_expiry_ms: int = 600_000) -> Json:
        """A turn in a session of its own."""
        agent: Json = {"name": "a", "model": {"provider": "stub", "id": "m"}, "tools": ["shell"]}
        made = self.server.post("/v1/agents", {**agent, "limits": {"pause_expiry_ms": pause_expiry_ms}})
        session = self.server.post("/v1/sessions", {"agent_id": made["id"]})
        return self.server.post(f"/v1/sessions/{session['id']}/turns", {"input": prompt})

    def paused(self, turn_id: str) -> Json:
        """The approval that the turn waits for."""
        turn = until(lambda: self.server.get(f"/v1/turns/{turn_id}"), lambda turn: turn["status"] == "paused")
        return self.server.get(f"/v1/approvals/{turn['pause']['waits_for'][0]}")

    def closed(self, session_id: str) -> None:
        """Ends the session, so that everything is told to the Guardian."""
        self.server.post(f"/v1/sessions/{session_id}/close", {})
        until(lambda: self.server.get(f"/v1/sessions/{session_id}"), lambda session: session["status"] == "closed")
        until(lambda: self.server.export(session_id)[-1], lambda row: row["request"]["method"] == "steps/sessionEnd")

    def windows(self, session_id: str) -> list[tuple[str, str]]:
        """The turnStarts and turnEnds as exported, with what they say and of which turn."""
        said = {"steps/turnStart": "triggered_by", "steps/turnEnd": "outcome"}
        asked = [row["request"] for row in self.server.export(session_id) if row["entry"] is not None]
        payloads = [(request["method"], request["params"]["payload"]) for request in asked]
        return [(payload[said[method]], payload["turn_id"]) for method, payload in payloads if method in said]

    def marks(self, session_id: str) -> str:
        """What the command left in the workspace."""
        marker = self.server.data_dir / "workspaces" / session_id / "marks"
        return marker.read_text() if marker.exists() else ""

    def run(self, *arguments: str) -> str:
        """What a `turnkeeper` command prints; it must succeed."""
        done = run_command(*arguments, *self._where, home=self.server.home)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def key_file(self, *command: str) -> str:
        """A file with a new API key."""
        path = self.server.home / "a.key"
        path.write_text(self.run(*command, "--name", "ana"))
        return str(path)

    def approved_with_the_guardian(self, turn_id: str) -> None:
        """Somebody answers the Guardian's own question, with a key of the Guardian's."""
        scopes = ("--scope", "approvals:decide", "--scope", "guardian:read", "--approver", "*")
        key_file = self.key_file("guardian", "keys", "create", *scopes)
        self.run("approvals", "approve", self.questions(turn_id)[0]["approval_id"], "--key-file", key_file)

    def questions(self, turn_id: str) -> list[Json]:
        """The Guardian's own open questions about a turn."""
        listed: list[Json] = json.loads(self.run("approvals", "list", "--guardian", "--json"))
        return [one for one in listed if one["turn_id"] == turn_id]

    def denied_on_the_command_line(self, approval_id: str) -> None:
        """Somebody denies the turn's approval, with a key of the turn API."""
        assert approval_id in self.run("approvals", "list", "--turns")
        waiting = json.loads(self.run("approvals", "list", "--json"))
        # Questions of turns that other tests ended are taken back from the Guardian a moment later.
        assert [one["id"] for one in waiting if "id" in one] == [approval_id]
        key_file = self.key_file("keys", "create")
        self.run("approvals", "deny", approval_id, "--key-file", key_file, "--note", "no")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One server with a model whose answers follow from the conversation alone."""
    with StubModel() as model:
        made = Place(tmp_path_factory.mktemp("deferred"), model)
        with made.server:
            yield made


def until(read: Callable[[], Json], reached: Callable[[Json], bool]) -> Json:
    """What `read` gives once it is as wanted."""
    deadline = time.monotonic() + DEADLINE_S
    while not reached(found := read()):
        assert time.monotonic() < deadline, f"not in time: {found}"
        time.sleep(0.1)
    return found


def test_a_deferred_call_survives_a_killed_server_and_runs_once(place: Place) -> None:
    server, turn = place.server, place.post(PROMPT)
    approval = place.paused(turn["id"])
    server.kill()
    server.start()
    assert server.get(f"/v1/turns/{turn['id']}")["status"] == "paused"
    assert place.marks(turn["session_id"]) == ""
    server.post(f"/v1/approvals/{approval['id']}/decision", {"decision": "approve"})
    ended = server.ended(turn["id"])
    assert ended["status"] == "completed", (ended["error"], server.log_tail())
    assert (ended["output"], ended["attempt"]) == ({"text": "done"}, 1)
    assert place.marks(turn["session_id"]) == "x\n"
    types = [event["type"] for event in server.events(turn["session_id"])]
    assert types.count("turn.completed") == 1
    place.closed(turn["session_id"])
    assert place.windows(turn["session_id"]) == [
        (said, turn["id"]) for said in ("user_message", "deferred", "auto_continuation", "completed")
    ]
    place.run("verify")


def test_an_answer_given_to_the_guardian_settles_the_turn(place: Place) -> None:
    turn = place.post(PROMPT)
    place.paused(turn["id"])
    place.approved_with_the_guardian(turn["id"])
    ended = place.server.ended(turn["id"])
    assert (ended["status"], place.marks(turn["session_id"])) == ("completed", "x\n")
    events = place.server.events(turn["session_id"])
    told = [event["data"] for event in events if event["type"] == "approval.resolved"]
    assert [one["decided_by"]["type"] for one in told] == ["guardian"]
    place.run("verify")


@pytest.mark.parametrize("end", ["cancel", "close", "deny", "expire"])
def test_a_turn_that_is_stopped_while_it_waits_leaves_balanced_windows(place: Place, end: str) -> None:
    server, turn = place.server, place.post(PROMPT, pause_expiry_ms=1_000 if end == "expire" else 600_000)
    if end == "cancel":
        place.paused(turn["id"])
        server.post(f"/v1/turns/{turn['id']}/cancel", {})
    elif end == "close":
        place.paused(turn["id"])
        server.post(f"/v1/sessions/{turn['session_id']}/close", {"mode": "cancel"})
    elif end == "deny":
        place.denied_on_the_command_line(place.paused(turn["id"])["id"])
    ended = server.ended(turn["id"])
    assert ended["status"] == ("canceled" if end in {"cancel", "close"} else "completed")
    assert place.marks(turn["session_id"]) == ""
    place.closed(turn["session_id"])
    said = [said for said, _ in place.windows(turn["session_id"])]
    went_on = ["auto_continuation", "completed"] if end in {"deny", "expire"} else []
    assert said == ["user_message", "deferred", *went_on]
    until(lambda: {"open": place.questions(turn["id"])}, lambda found: found["open"] == [])
    place.run("verify")


def test_a_late_yes_to_a_deferral_that_became_a_question_lets_the_call_run(place: Place) -> None:
    """Contract 6, row 25a."""
    server, turn = place.server, place.post("tools=1 command=echo+soon>>marks text=done")
    asked = until(
        lambda: server.get(f"/v1/approvals?session_id={turn['session_id']}&status=pending"),
        lambda page: [one["kind"] for one in page["data"]] == ["ask"],
    )["data"][0]
    server.post(f"/v1/approvals/{asked['id']}/decision", {"decision": "approve"})
    ended = server.ended(turn["id"])
    assert (ended["status"], place.marks(turn["session_id"])) == ("completed", "soon\n"), server.log_tail()
    place.closed(turn["session_id"])
    said = [said for said, _ in place.windows(turn["session_id"])]
    assert said == ["user_message", "deferred", "auto_continuation", "completed"]
    place.run("verify")
