"""Questions of a Guardian in a process of its own, answered through the turn API and the other way round.

A server and a Guardian that share nothing but the network; what a user can type and see is all that is used.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.server import NO_WARM_BOXES, Json, Server, run_command
from tests.acceptance.stub import StubModel
from tests.acceptance.test_deferred_turns import until

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

POLICY: Final = """version: 1
name: ask-first
default: allow
rules:
  - id: ask-a-person
    hooks: [toolCallRequest]
    tools: [shell]
    decision: ask
    reasoning: Commands are for people to allow.
    ask: {question: "May it?", approver: {type: human, id: operators}, timeout_seconds: 600}
"""
PROMPT: Final = "tools=1 command=echo+x>>marks text=done"


class Place:
    """A server, and a Guardian elsewhere that asks before every command."""

    def __init__(self, folder: Path, guardian: GuardianAlone, model: StubModel) -> None:
        self._guardian, self._home = guardian, folder
        self.key_file = folder / "approver.key"
        self.key_file.write_text(self._made_key())
        shared = (
            f'[guardian]\nurl = "{guardian.url}"\nsecret_file = "{guardian.secret}"\n'
            f'approvals_url = "{self.admin}"\napprover_key_file = "{self.key_file}"\n'
        )
        config = model.config(f"{NO_WARM_BOXES}[worker]\npause_warm_ms = 0\n{shared}")
        self.server = Server(folder, config, environment={"STUB_KEY": "k"})

    @property
    def admin(self) -> str:
        """Where the Guardian's own API is."""
        return self._guardian.url.removesuffix("/acs") + "/guardian/v1"

    def _made_key(self) -> str:
        scopes = ("--scope", "approvals:decide", "--scope", "guardian:read", "--approver", "operators")
        place = ("--data-dir", str(self._guardian.data_dir), "--config", str(self._guardian.config))
        made = run_command("guardian", "keys", "create", "--name", "platform", *scopes, *place, home=self._home)
        assert made.returncode == 0, made.stderr
        return made.stdout

    def session(self) -> str:
        agent: Json = {"name": "a", "model": {"provider": "stub", "id": "m"}, "tools": ["shell"]}
        made = self.server.post("/v1/agents", agent)
        return str(self.server.post("/v1/sessions", {"agent_id": made["id"]})["id"])

    def turn(self, session_id: str) -> Json:
        return self.server.post(f"/v1/sessions/{session_id}/turns", {"input": PROMPT})

    def asked(self, turn_id: str) -> Json:
        """The approval that the turn waits for."""
        turn = until(lambda: self.server.get(f"/v1/turns/{turn_id}"), lambda turn: turn["status"] == "paused")
        return self.server.get(f"/v1/approvals/{turn['pause']['waits_for'][0]}")

    def decide(self, approval_id: str, answer: Json) -> Json:
        return self.server.post(f"/v1/approvals/{approval_id}/decision", answer)

    def question(self, turn_id: str) -> Json:
        """The Guardian's own record of what it asked about the turn."""
        rows = self._ask("GET", "/approvals").json()["data"]
        return next(row for row in rows if row["turn_id"] == turn_id)

    def answer_there(self, question: Json, decision: str) -> None:
        answered = self._ask("POST", f"/approvals/{question['approval_id']}/decision", {"decision": decision})
        assert answered.status_code == 200, answered.text

    def marks(self, session_id: str) -> str:
        """What the commands left in the workspace."""
        marker = self.server.data_dir / "workspaces" / session_id / "marks"
        return marker.read_text() if marker.exists() else ""

    def _ask(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key_file.read_text().strip()}"}
        return httpx.request(method, self.admin + path, json=body, headers=headers, timeout=30, trust_env=False)


@pytest.fixture(scope="module")
def guardian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardianAlone]:
    with GuardianAlone(tmp_path_factory.mktemp("guardian"), policy=POLICY) as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, guardian: GuardianAlone) -> Iterator[Place]:
    with StubModel() as model:
        made = Place(tmp_path_factory.mktemp("place"), guardian, model)
        with made.server:
            yield made


def test_a_yes_through_the_turn_api_is_the_guardians_record_too(place: Place) -> None:
    """Contract 2.5: one answer, and both records have it."""
    turn = place.turn(place.session())
    place.decide(place.asked(turn["id"])["id"], {"decision": "approve", "note": "go on"})

    ended = place.server.ended(turn["id"])
    assert (ended["status"], place.marks(turn["session_id"])) == ("completed", "x\n"), place.server.log_tail()
    question = place.question(turn["id"])
    assert (question["status"], question["note"]) == ("approved", "go on")


def test_a_yes_for_the_session_is_not_asked_for_again(place: Place) -> None:
    """Contract 2.5: `remember: session` is a grant of the Guardian's, for the very same call."""
    session_id = place.session()
    first = place.turn(session_id)
    place.decide(place.asked(first["id"])["id"], {"decision": "approve", "remember": "session"})
    place.server.ended(first["id"])

    second = place.server.ended(place.turn(session_id)["id"])

    assert (second["status"], place.marks(session_id)) == ("completed", "x\nx\n"), place.server.log_tail()
    types = [event["type"] for event in place.server.events(session_id) if event["turn_id"] == second["id"]]
    assert "turn.paused" not in types
    rules = place.server.get(f"/v1/sessions/{session_id}/approval_rules")
    assert len(rules["data"]) == 1, json.dumps(rules)


def test_a_no_through_the_turn_api_is_a_no_of_the_guardians(place: Place) -> None:
    turn = place.turn(place.session())
    place.decide(place.asked(turn["id"])["id"], {"decision": "deny"})

    assert place.server.ended(turn["id"])["status"] == "completed"
    assert (place.marks(turn["session_id"]), place.question(turn["id"])["status"]) == ("", "denied")


def test_an_answer_given_to_the_guardian_is_adopted(place: Place) -> None:
    turn = place.turn(place.session())
    approval = place.asked(turn["id"])
    place.answer_there(place.question(turn["id"]), "approve")

    assert place.server.ended(turn["id"])["status"] == "completed"
    adopted = place.server.get(f"/v1/approvals/{approval['id']}")
    assert (adopted["status"], adopted["decided_by"]["type"]) == ("approved", "guardian")
    assert place.marks(turn["session_id"]) == "x\n"


def test_a_turn_that_is_canceled_takes_its_question_back(place: Place) -> None:
    turn = place.turn(place.session())
    place.asked(turn["id"])
    place.server.post(f"/v1/turns/{turn['id']}/cancel", {})

    assert place.server.ended(turn["id"])["status"] == "canceled"
    question = until(lambda: place.question(turn["id"]), lambda question: question["status"] != "pending")
    assert (question["status"], question["decided_by"]) == ("expired", None)
    assert question["note"].startswith("withdrawn by the platform")


def test_a_remembered_grant_leaves_no_question_open(place: Place) -> None:
    """Contract 2.5: the second call is asked about once, and let through by the grant before anybody could answer."""
    session_id = place.session()
    first = place.turn(session_id)
    place.decide(place.asked(first["id"])["id"], {"decision": "approve", "remember": "session"})
    place.server.ended(first["id"])
    second = place.turn(session_id)
    place.server.ended(second["id"])

    question = until(lambda: place.question(second["id"]), lambda question: question["status"] != "pending")
    assert question["status"] == "expired"


def test_no_answer_stands_that_the_guardian_has_not_heard(place: Place, guardian: GuardianAlone) -> None:
    """House rule 4: nobody is told yes while the record that counts cannot be written."""
    turn = place.turn(place.session())
    approval = place.asked(turn["id"])
    guardian.kill()
    with place.server.client() as client:
        refused = client.post(f"/v1/approvals/{approval['id']}/decision", json={"decision": "approve"})
    assert (refused.status_code, refused.json()["code"]) == (503, "guardian_unreachable")
    assert place.server.get(f"/v1/approvals/{approval['id']}")["status"] == "pending"

    guardian.start()
    place.decide(approval["id"], {"decision": "approve"})
    assert place.server.ended(turn["id"])["status"] == "completed"
    assert place.marks(turn["session_id"]) == "x\n"
