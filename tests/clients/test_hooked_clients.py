"""The real clients outside any box, with our hooks: allowed, denied, changed, redacted, asked, no Guardian."""

import threading
from pathlib import Path

import pytest
from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.hooked import POLICY, Hooks
from tests.clients.clients import BIN, CLIENTS, RealClient, run

from turnkeeper.testing.scripted_answers import ScriptedAnswer, SeenRequest
from turnkeeper.testing.scripted_model import running_scripted_model

pytestmark = [
    pytest.mark.clients,
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
    "touch unguarded",
)
KILLED_BEFORE = 5
"""The Guardian is killed before the model asks for the command of this number."""


class Conversation:
    """The model's part: one command after the other, then an answer. `outputs` is what the client told of each."""

    def __init__(self, client: RealClient, guardian: GuardianAlone) -> None:
        self.outputs: list[str] = []
        self._client, self._guardian = client, guardian

    def __call__(self, seen: SeenRequest) -> ScriptedAnswer:
        """The next answer."""
        if not self._client.has_tools(seen):
            return ScriptedAnswer(text="A title")
        self.outputs = self._client.outputs(seen)
        done = len(self.outputs)
        if done >= len(COMMANDS):
            return ScriptedAnswer(text="done")
        if done == KILLED_BEFORE:
            self._guardian.kill()
        return ScriptedAnswer(tool_calls=(self._client.call(COMMANDS[done]),))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_real_client_does_what_the_guardian_allows_and_nothing_else(client: RealClient, tmp_path: Path) -> None:
    with GuardianAlone(tmp_path, policy=POLICY) as guardian:
        hooks = Hooks.under(guardian, tmp_path, ask_wait_s=240)
        approver = threading.Thread(target=hooks.approve, kwargs={"deadline_s": 500})
        talk = Conversation(client, guardian)
        approver.start()
        with running_scripted_model(talk) as model:
            ran = run(client, tmp_path, hooks.installation, model.base_url)
        approver.join(timeout=60)
    told = "\n".join(talk.outputs)
    made = {path.name for path in (tmp_path / "work").iterdir()}
    assert made >= {"allowed", "changed", "read", "askme"}, (ran, told)
    assert made.isdisjoint({"forbidden", "changeme", "unguarded"}), (ran, told)
    assert "That is forbidden here." in told
    assert "[REDACTED]" in told
    assert "secretword" not in told
    assert len(talk.outputs) == len(COMMANDS), (ran, told)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_prompt_to_a_real_client_gets_nowhere_without_a_guardian(client: RealClient, tmp_path: Path) -> None:
    with GuardianAlone(tmp_path, policy=POLICY) as guardian:
        hooks = Hooks.under(guardian, tmp_path)
        guardian.kill()
        with running_scripted_model(lambda _: ScriptedAnswer(tool_calls=(client.call("touch made"),))) as model:
            run(client, tmp_path, hooks.installation, model.base_url)
    assert not (tmp_path / "work" / "made").exists()
