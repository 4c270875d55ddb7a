"""`turnkeeper run`: one turn in the terminal, as a process with a shell's eyes on its output and exit code."""

import json
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.acceptance.server import TURNKEEPER, clean_environment, run_command
from tests.acceptance.stub import RESULT_SCHEMA, StubModel

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(180)]

ASKED_TIMEOUT_S = 60.0
AGENT = 'name = "a"\ninstructions = "x"\ntools = ["shell", "write_file"]\n[model]\nprovider = "stub"\nid = "m"\n'
NO_TURNS = """version: 1
name: nothing
default: allow
rules:
  - {id: no-turns, hooks: [turnStart], decision: deny, reasoning: Not today., reason_codes: [closed]}
"""


@pytest.fixture(scope="module")
def model() -> Iterator[StubModel]:
    """A model that follows the prompt's words."""
    with StubModel() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, model: StubModel) -> Path:
    """A user's folder with settings, an agent and a schema."""
    (tmp_path / "turnkeeper.toml").write_text(model.config())
    (tmp_path / "agent.toml").write_text(AGENT)
    (tmp_path / "schema.json").write_text(json.dumps(RESULT_SCHEMA))
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`turnkeeper run` in that folder."""
    return run_command("run", *words, "--agent", "agent.toml", home=folder)


def test_steps_with_their_verdicts_result_and_usage_are_shown(folder: Path) -> None:
    """What a person sees; exit 0."""
    done = run(folder, "tools=1 text=hi", "--schema", "schema.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "allow  toolCallRequest  shell" in done.stdout
    assert "allow  turnEnd  completed, 4 steps, 1 tool calls" in done.stdout
    assert 'result  {"calls":1}' in done.stdout
    assert "model calls" in done.stdout


def test_json_is_the_turn_object_alone(folder: Path) -> None:
    """For programs: one JSON document on standard output, progress elsewhere."""
    done = run(folder, "text=hi", "--json")
    turn = json.loads(done.stdout)
    assert (turn["object"], turn["status"], turn["output"]["text"]) == ("turn", "completed", "hi")
    assert "turnStart" in done.stderr


def test_a_given_folder_is_the_workspace(folder: Path) -> None:
    """Tools see the user's file."""
    work = folder / "work"
    work.mkdir()
    (work / "note.txt").write_text("one two three")
    done = run(folder, "tools=1 command=wc+-w+note.txt text=hi", "--workspace", str(work), "--json")
    assert done.returncode == 0, done.stderr
    export = run_command("export", json.loads(done.stdout)["session_id"], *own_data_dir(folder), home=folder)
    outputs = [json.loads(line)["request"]["params"]["payload"].get("outputs") for line in export.stdout.splitlines()]
    assert [output[0]["value"].split()[0] for output in outputs if output] == ["3"]


def own_data_dir(folder: Path) -> tuple[str, str]:
    """Where `run` keeps its data when nothing is said."""
    return "--data-dir", str(folder / ".local" / "share" / "turnkeeper" / "run")


def test_a_denied_turn_is_exit_3(folder: Path) -> None:
    """With the Guardian's reason on the screen."""
    (folder / "policy.yaml").write_text(NO_TURNS)
    settings = (folder / "turnkeeper.toml").read_text()
    (folder / "turnkeeper.toml").write_text(f'[guardian]\npolicy = "policy.yaml"\n{settings}')
    done = run(folder, "text=hi")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Not today." in done.stdout


def test_a_failed_turn_is_exit_1(folder: Path) -> None:
    """A provider that nobody answers for."""
    (folder / "turnkeeper.toml").write_text('[providers.stub]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n')
    done = run(folder, "text=hi")
    assert done.returncode == 1
    assert "failed (model_error)" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--agent", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("--agent", "bad.toml"), "is not a tool"),
        (("--agent", "skilled.toml"), "skills are kept by a server"),
        (("--schema", "schema.txt"), "schema.txt"),
        (("--workspace", "nowhere"), "nowhere is not a folder"),
    ],
)
def test_a_file_that_cannot_be_used_is_exit_2(folder: Path, words: tuple[str, str], says: str) -> None:
    """With the file and the reason."""
    (folder / "bad.toml").write_text(AGENT.replace("write_file", "telephone"))
    (folder / "skilled.toml").write_text(f'skills = [{{name = "folding"}}]\n{AGENT}')
    (folder / "schema.txt").write_text("{")
    given = ("--agent", "agent.toml", *words)
    done = run_command("run", "text=hi", *given, home=folder)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr


def wait_for_request(model: StubModel) -> None:
    """Returns once the model was asked."""
    pause = threading.Event()
    deadline = time.monotonic() + ASKED_TIMEOUT_S
    while not model.bodies:
        assert time.monotonic() < deadline, "the model was never asked"
        pause.wait(0.02)


def test_ctrl_c_cancels_the_turn_and_is_exit_130(folder: Path) -> None:
    """The turn ends as canceled, its chain is closed, nothing is left running."""
    with StubModel(delay_s=60) as slow:
        (folder / "turnkeeper.toml").write_text(slow.config("[worker]\ncancel_grace_ms = 500\n"))
        with subprocess.Popen(
            [TURNKEEPER, "run", "text=hi", "--agent", "agent.toml"],
            env=clean_environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
        ) as process:
            assert process.stdout is not None
            seen = next(line for line in process.stdout if "userMessage" in line)
            wait_for_request(slow)
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            assert process.wait(timeout=60) == 130, seen + rest
    assert "canceled (canceled)" in rest
    verified = run_command("verify", *own_data_dir(folder), home=folder)
    assert verified.returncode == 0, verified.stdout
    assert "interrupted" in verified.stdout


def test_a_chain_that_was_lost_or_cut_shows_in_the_heads_that_the_turn_side_kept(folder: Path) -> None:
    """Two files, so that tampering with one of them is seen."""
    done = run(folder, "text=hi", "--data-dir", "data")
    assert done.returncode == 0, done.stdout + done.stderr
    database = folder / "data" / "guardian" / "guardian.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM steps WHERE recorded = (SELECT max(recorded) FROM steps)")
    cut = run_command("verify", "--data-dir", "data", home=folder)
    assert cut.returncode == 1
    assert "[witnessed_head_missing]" in cut.stdout
    for file in database.parent.glob("guardian.db*"):
        file.unlink()
    lost = run_command("verify", "--data-dir", "data", home=folder)
    assert lost.returncode == 1
    assert "[session_missing]" in lost.stdout
