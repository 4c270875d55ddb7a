"""A skill as an operator sees it: uploaded, named, loaded in a real box before the real Guardian, and refused there."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.acceptance.invariants import check_verifies
from tests.acceptance.server import NO_WARM_BOXES, Json, Server

from turnkeeper.testing.scripted_answers import ScriptedAnswer, ScriptedCall, SeenRequest
from turnkeeper.testing.scripted_model import running_scripted_model

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

POLICY = """
version: 1
name: one-skill
default: allow
rules:
  - id: no-cutting
    hooks: [skillLoad]
    when: payload.skill_id == "cutting"
    decision: deny
    reasoning: Nothing is cut here.
"""
SECRET_WORDS = "Fold every page twice."


class Model:
    """Loads the skill that its input names, reads a file of it, and says what it was told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, seen: SeenRequest) -> ScriptedAnswer:
        self.seen.append(json.dumps(seen.messages))
        user = max(at for at, message in enumerate(seen.messages) if message["role"] == "user")
        skill, told = str(seen.messages[user]["content"]), [one["content"] for one in seen.messages[user + 1 :]]
        results = [content for content in told if content]
        if not results:
            return ScriptedAnswer(tool_calls=(ScriptedCall("load_skill", json.dumps({"name": skill})),))
        if len(results) == 1:
            command = f"cat /skills/{skill}/more/words.txt; touch /skills/{skill}/mine"
            return ScriptedAnswer(tool_calls=(ScriptedCall("shell", json.dumps({"command": command})),))
        return ScriptedAnswer(text=" | ".join(map(str, results)))


@contextmanager
def serving(folder: Path, model: Model) -> Generator[Server]:
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    with running_scripted_model(model) as running:
        config = f"""{NO_WARM_BOXES}
[guardian]
policy = "{policy}"
[providers.scripted]
kind = "openai"
base_url = "{running.base_url}"
"""
        with Server(folder, config) as server:
            yield server


def said(server: Server, *words: str) -> str:
    """What a command that succeeds prints."""
    done = server.command(*words, "--url", server.url, "--key", server.secret)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.strip()


def uploaded(server: Server, name: str) -> str:
    """A folder with a skill, uploaded on the command line."""
    folder = server.home / name
    (folder / "more").mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n---\n{SECRET_WORDS}\n")
    (folder / "more" / "words.txt").write_text("a crane\n")
    return said(server, "skills", "upload", str(folder))


def test_a_skill_is_uploaded_loaded_and_unloaded_and_a_denied_one_is_not_read(tmp_path: Path) -> None:
    model = Model()
    with serving(tmp_path, model) as server:
        ids = [uploaded(server, name) for name in ("folding", "cutting")]
        assert said(server, "skills", "upload", str(server.home / "folding")) == ids[0]
        listed: list[Json] = json.loads(said(server, "skills", "list", "--json"))
        assert [row["id"] for row in listed] == ids[::-1]
        assert json.loads(said(server, "skills", "show", ids[0], "--json")) == listed[1]
        agent: Json = {"name": "a", "model": {"provider": "scripted", "id": "m"}, "tools": ["shell"]}
        skills = [{"name": "folding"}, {"id": ids[1]}]
        made = server.post("/v1/agents", {**agent, "instructions": "Fold.", "skills": skills})
        session = str(server.post("/v1/sessions", {"agent_id": made["id"]})["id"])
        denied = server.ended(server.post(f"/v1/sessions/{session}/turns", {"input": "cutting"})["id"])
        before = "".join(model.seen)
        loaded = server.ended(server.post(f"/v1/sessions/{session}/turns", {"input": "folding"})["id"])
        events = [event["data"] for event in server.events(session) if event["type"] == "skill.loaded"]
        methods = [step["request"]["method"] for step in server.export(session)]
        check_verifies(server)
    assert "Nothing is cut here." in denied["output"]["text"]
    assert "a crane" not in denied["output"]["text"]
    assert "- cutting: Does cutting." in before
    assert SECRET_WORDS not in before
    assert SECRET_WORDS in loaded["output"]["text"]
    assert "a crane" in loaded["output"]["text"]
    assert "Read-only file system" in loaded["output"]["text"]
    assert [(event["name"], event["version"]) for event in events] == [("folding", 1)]
    assert [methods.count(f"steps/skill{step}") for step in ("Register", "Load", "Unload")] == [2, 2, 1]
