"""The real clients in boxes of a real server: allowed, denied, changed, asked, redacted, no Guardian, no hooks."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.hooked import POLICY
from tests.acceptance.server import Json, Server
from tests.clients.boxed import Boxed, boxed
from tests.clients.clients import BIN, CLIENTS, RealClient

from turnkeeper.testing.scripted_answers import ScriptedAnswer, ScriptedCall, SeenRequest

pytestmark = [
    pytest.mark.clients,
    pytest.mark.sandbox,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (BIN / "opencode").exists(), reason="the clients are not here: `make clients` installs them"
    ),
]

COMMANDS = (
    "touch allowed",
    "touch forbidden",
    "touch changeme",
    "touch read; echo the secretword",
    "touch askme",
)
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


class Conversation:
    """The model's part: one command after the other, then an answer. `outputs` is what the client told of each."""

    def __init__(
        self, client: RealClient, *commands: str, before: Mapping[int, Callable[[], None]] | None = None
    ) -> None:
        self.outputs: list[str] = []
        self.commands = commands
        self._client = client
        self._before = dict(before or {})

    def __call__(self, seen: SeenRequest) -> ScriptedAnswer:
        """The next answer."""
        if not self._client.has_tools(seen):
            return ScriptedAnswer(text="A title")
        self.outputs = self._client.outputs(seen)
        done = len(self.outputs)
        self._before.pop(done, lambda: None)()
        if done >= len(self.commands):
            return ScriptedAnswer(text="all done")
        return ScriptedAnswer(tool_calls=(self._client.call(self.commands[done]),))


def approve(server: Server, turn: Json, *, timeout_s: float = 300) -> None:
    """Somebody says yes to the one question of a turn."""
    deadline = time.monotonic() + timeout_s
    while (now := server.get(f"/v1/turns/{turn['id']}?wait_ms=2000"))["pause"] is None:
        assert now["ended_at"] is None, now
        assert time.monotonic() < deadline, "nobody was asked"
    server.post(f"/v1/approvals/{now['pause']['waits_for'][0]}/decision", {"decision": "approve"})


def decisions(boxed: Boxed, turn: Json) -> list[str]:
    """What was decided about the turn's calls, in order."""
    events = boxed.server.events(turn["session_id"])
    return [event["data"]["decision"] for event in events if event["type"] == "tool.decided"]


@each_client
def test_a_boxed_client_does_what_the_guardian_allows_and_nothing_else(client: RealClient, tmp_path: Path) -> None:
    talk = Conversation(client, *COMMANDS)
    with boxed(client, tmp_path, talk) as running:
        turn = running.begin()
        approve(running.server, turn)
        ended = running.server.ended(turn["id"], timeout_s=300)
        made, decided = running.made(ended), decisions(running, ended)
    assert (ended["status"], ended["output"]) == ("completed", {"text": "all done"}), ended
    assert made == {"allowed", "changed", "read", "askme"}
    assert decided == ["allow", "deny", "modify", "allow", "ask", "allow"]
    told = "\n".join(talk.outputs)
    assert "That is forbidden here." in told
    assert "[REDACTED]" in told
    assert "secretword" not in told
    assert ended["usage"]["tool_calls"] == 4
    assert ended["usage"]["model_calls"] >= len(COMMANDS) + 1


def test_a_client_whose_box_was_let_go_of_goes_on_in_another_one(tmp_path: Path) -> None:
    claude = CLIENTS[0]
    with boxed(claude, tmp_path, Conversation(claude, "touch askme"), pause_warm_ms=100) as running:
        turn = running.begin()
        approve(running.server, turn)
        ended = running.server.ended(turn["id"], timeout_s=300)
        boxes = [event for event in running.server.events(turn["session_id"]) if event["type"] == "sandbox.ready"]
        made, decided = running.made(ended), decisions(running, ended)
    assert (ended["status"], len(boxes)) == ("completed", 2), ended
    assert made == {"askme"}
    assert decided == ["ask", "allow"]


@each_client
def test_nothing_of_a_boxed_client_runs_without_a_guardian(client: RealClient, tmp_path: Path) -> None:
    (tmp_path / "guardian").mkdir()
    with GuardianAlone(tmp_path / "guardian", policy=POLICY) as guardian:
        talk = Conversation(client, "touch allowed", "touch unguarded", before={1: guardian.kill})
        with boxed(client, tmp_path, talk, guardian) as running:
            turn = running.run()
            made = running.made(turn)
    assert made == {"allowed"}
    assert turn["stop_reason"] == "guardian_unavailable", turn


@each_client
def test_a_boxed_client_hands_in_a_result(client: RealClient, tmp_path: Path) -> None:
    def answer(seen: SeenRequest) -> ScriptedAnswer:
        if "StructuredOutput" in seen.tool_names and not seen.tool_results:
            return ScriptedAnswer(tool_calls=(ScriptedCall("StructuredOutput", '{"n": 7}'),))
        return ScriptedAnswer(text='{"n": 7}')

    with boxed(client, tmp_path, answer) as running:
        turn = running.run(output_schema=SCHEMA)
    assert (turn["status"], turn["result"], turn["result_error"]) == ("completed", {"n": 7}, None), turn


@each_client
def test_a_boxed_client_whose_budget_is_spent_has_answered(client: RealClient, tmp_path: Path) -> None:
    def answer(seen: SeenRequest) -> ScriptedAnswer:
        if not client.has_tools(seen):
            return ScriptedAnswer(text="A title")
        return ScriptedAnswer(text="so far", tool_calls=(client.call("touch made"),))

    with boxed(client, tmp_path, answer) as running:
        turn = running.run(budget={"max_model_calls": 3})
    assert (turn["status"], turn["stop_reason"], turn["output"]) == (
        "completed",
        "budget_reached",
        {"text": "so far"},
    ), turn
    assert turn["usage"]["model_calls"] == 3


@each_client
def test_a_workspace_cannot_take_the_hooks_away(client: RealClient, tmp_path: Path) -> None:
    settings = {
        ".claude/settings.json": json.dumps({"disableAllHooks": True}),
        ".codex/config.toml": "[features]\nhooks = false\n",
        "opencode.json": json.dumps({"plugin": []}),
    }
    write = "; ".join(f"mkdir -p $(dirname {path}); printf %s '{text}' > {path}" for path, text in settings.items())
    talk = Conversation(client, write)
    with boxed(client, tmp_path, talk) as running:
        first = running.run()
        talk.commands = ("touch forbidden",)
        second = running.again(first)
        made = running.made(second)
    assert (first["status"], second["status"]) == ("completed", "completed")
    assert "opencode.json" in made
    assert "forbidden" not in made
    assert "That is forbidden here." in "\n".join(talk.outputs)
