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
    defer: {reason: pending_dependency, resolution_method: human_approval, resolution_timeout_ms: WAIT}
"""
COLD = "[worker]\npause_warm_ms = 0\n"


class Place:
    """A server whose Guardian defers every command, and a session on it."""

    def __init__(self, folder: Path, model: StubModel, *, wait_ms: int = 600_000, policy: str = POLICY) -> None:
        rules = folder / "policy.yaml"
        rules.write_text(policy.replace("WAIT", str(wait_ms)))
        config = model.config(f'{NO_WARM_BOXES}{COLD}[guardian]\npolicy = "{rules}"\n')
        self.server = Server(folder, config, environment={"STUB_KEY": "k"})

    def post(self, prompt: str) -> Json:
        """A turn in a session of its own."""
        agent = self.server.post(
            "/v1/agents",
            {"name": "a", "model": {"provider": "stub", "id": "m"}, "instructions": "Work.", "tools": ["shell"]},
        )
        session = self.server.post("/v1/sessions", {"agent_id": agent["id"]})
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

    def approved_by_ana(self) -> None:
        """Somebody answers the Guardian's own question, with a key of the Guardian's."""
        where = ("--config", str(self.server.config_file), "--data-dir", str(self.server.data_dir))
        who = ("--name", "ana", "--scope", "approvals:decide", "--scope", "guardian:read", "--approver", "*")
        key_file = self.server.home / "ana.key"
        made = run_command("guardian", "keys", "create", *who, *where, home=self.server.home)
        key_file.write_text(made.stdout)
        listed = run_command("approvals", "list", "--json", *where, home=self.server.home)
        question = json.loads(listed.stdout)[0]["approval_id"]
        answer = ("approve", question, "--key-file", str(key_file))
        done = run_command("approvals", *answer, *where, home=self.server.home)
        assert done.returncode == 0, made.stderr + listed.stderr + done.stderr

    def verified(self) -> None:
        """`verify` finds nothing."""
        done = self.server.command("verify")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def model() -> Iterator[StubModel]:
    """A model whose answers follow from the conversation alone."""
    with StubModel() as running:
        yield running


def until(read: Callable[[], Json], reached: Callable[[Json], bool]) -> Json:
    """What `read` gives once it is as wanted."""
    deadline = time.monotonic() + DEADLINE_S
    while not reached(found := read()):
        assert time.monotonic() < deadline, f"not in time: {found}"
        time.sleep(0.1)
    return found


def marks(place: Place, session_id: str) -> str:
    """What the command left in the workspace."""
    marker = place.server.data_dir / "workspaces" / session_id / "marks"
    return marker.read_text() if marker.exists() else ""


def test_a_deferred_call_survives_a_killed_server_and_runs_once(tmp_path: Path, model: StubModel) -> None:
    place = Place(tmp_path, model)
    with place.server as server:
        turn = place.post("tools=1 command=echo+x>>marks text=done")
        approval = place.paused(turn["id"])
        server.kill()
        server.start()
        assert server.get(f"/v1/turns/{turn['id']}")["status"] == "paused"
        assert marks(place, turn["session_id"]) == ""
        server.post(f"/v1/approvals/{approval['id']}/decision", {"decision": "approve"})
        ended = server.ended(turn["id"])
        assert ended["status"] == "completed", (ended["error"], server.log_tail())
        assert (ended["output"], ended["attempt"]) == ({"text": "done"}, 1)
        assert marks(place, turn["session_id"]) == "x\n"
        types = [event["type"] for event in server.events(turn["session_id"])]
        assert types.count("turn.completed") == 1
        place.closed(turn["session_id"])
        assert place.windows(turn["session_id"]) == [
            (said, turn["id"]) for said in ("user_message", "deferred", "auto_continuation", "completed")
        ]
    place.verified()


def test_an_answer_given_to_the_guardian_settles_the_turn(tmp_path: Path, model: StubModel) -> None:
    place = Place(tmp_path, model)
    with place.server as server:
        turn = place.post("tools=1 command=echo+x>>marks text=done")
        place.paused(turn["id"])
        place.approved_by_ana()
        ended = server.ended(turn["id"])
        assert (ended["status"], marks(place, turn["session_id"])) == ("completed", "x\n")
        told = [event["data"] for event in server.events(turn["session_id"]) if event["type"] == "approval.resolved"]
        assert [one["decided_by"]["type"] for one in told] == ["guardian"]
    place.verified()


@pytest.mark.parametrize("end", ["cancel", "close", "deny", "expire"])
def test_a_turn_that_is_stopped_while_it_waits_leaves_balanced_windows(
    tmp_path: Path, model: StubModel, end: str
) -> None:
    place = Place(tmp_path, model, wait_ms=1_500 if end == "expire" else 600_000)
    with place.server as server:
        turn = place.post("tools=1 command=echo+x>>marks text=done")
        approval = place.paused(turn["id"]) if end != "expire" else {}
        if end == "cancel":
            server.post(f"/v1/turns/{turn['id']}/cancel", {})
        elif end == "close":
            server.post(f"/v1/sessions/{turn['session_id']}/close", {"mode": "cancel"})
        elif end == "deny":
            server.post(f"/v1/approvals/{approval['id']}/decision", {"decision": "deny", "note": "no"})
        ended = server.ended(turn["id"])
        assert ended["status"] == ("canceled" if end in {"cancel", "close"} else "completed")
        assert marks(place, turn["session_id"]) == ""
        place.closed(turn["session_id"])
        said = [said for said, _ in place.windows(turn["session_id"])]
        went_on = ["auto_continuation", "completed"] if end in {"deny", "expire"} else []
        assert said == ["user_message", "deferred", *went_on]
    place.verified()
