"""The clients in boxes of a real server, against a scripted model: one agent, one session, one turn."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.hooked import POLICY
from tests.acceptance.server import NO_WARM_BOXES, Json, Server
from tests.clients.clients import ROOT, RealClient

from turnkeeper.testing.scripted_answers import ScriptedAnswer, SeenRequest
from turnkeeper.testing.scripted_model import ScriptedModel, running_scripted_model

Answer = Callable[[SeenRequest], ScriptedAnswer]

_KINDS = {"claude-code": "anthropic", "codex": "openai", "opencode": "openai"}


@dataclass(frozen=True)
class Boxed:
    """A running server and what a client's turn in it left."""

    server: Server
    model: ScriptedModel
    client: RealClient

    def begin(self, **turn: Any) -> Json:
        """The posted turn."""
        model = {"provider": "scripted", "id": "scripted"}
        asked = {"name": "boxed", "model": model, "harness": {"kind": self.client.name}, "instructions": "Be quick."}
        agent = self.server.post("/v1/agents", asked)
        session = self.server.post("/v1/sessions", {"agent_id": agent["id"]})
        return self.server.post(f"/v1/sessions/{session['id']}/turns", {"input": "Do it.", **turn})

    def again(self, turn: Json) -> Json:
        """Another turn of the same session, once it has ended."""
        next_one = self.server.post(f"/v1/sessions/{turn['session_id']}/turns", {"input": "Go on."})
        return self.server.ended(next_one["id"], timeout_s=300)

    def run(self, **turn: Any) -> Json:
        """The turn once it has ended."""
        return self.server.ended(self.begin(**turn)["id"], timeout_s=300)

    def made(self, turn: Json) -> set[str]:
        """The files in the session's workspace."""
        return {path.name for path in (self.server.data_dir / "workspaces" / turn["session_id"]).iterdir()}


@contextmanager
def boxed(
    client: RealClient,
    folder: Path,
    answer: Answer,
    guardian: GuardianAlone | None = None,
    *,
    pause_warm_ms: int = 300_000,
) -> Generator[Boxed]:
    """A server that lends the clients, under the rules of the hooks' tests, or with another process as its Guardian."""
    (folder / "rules.yaml").write_text(POLICY)
    guarded = f'policy = "{folder / "rules.yaml"}"'
    if guardian is not None:
        guarded = f'url = "{guardian.url}"\nsecret_file = "{guardian.secret}"'
    with running_scripted_model(answer) as model:
        config = f"""{NO_WARM_BOXES}
[guardian]
{guarded}
[worker]
pause_warm_ms = {pause_warm_ms}
[providers.scripted]
kind = "{_KINDS[client.name]}"
base_url = "{model.base_url}"
[harness]
clients_dir = "{ROOT}"
"""
        with Server(folder, config) as server:
            yield Boxed(server, model, client)
