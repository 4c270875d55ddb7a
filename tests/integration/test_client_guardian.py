"""The client against a Guardian in a process of its own: the example, the how-to, and a Guardian that is killed."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from tests.integration.guardian_process import guardian_process
from tests.integration.guardian_server import SECRET

from turnkeeper.client import (
    AuditRecord,
    ClientSettings,
    FileTerms,
    GuardianClient,
    HttpTransport,
    Identity,
    StdioTransport,
    StepDenied,
    SyncGuardianClient,
    Timing,
    TransportFailed,
)
from turnkeeper.store.chain_reader import SqliteChainReader

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to" / "put-an-agent-under-the-guardian.md"
NO_SHELL = b"""version: 1
name: no-shell
default: allow
rules:
  - id: no-shell
    hooks: [toolCallRequest]
    tools: [shell]
    decision: deny
    reasoning: No shell today.
"""
REDACTS = b"""version: 1
name: redacts
default: allow
rules:
  - id: redact
    hooks: [toolCallRequest]
    decision: modify
    modify: {redactions: [{path: /arguments/token/value, replacement: "[GONE]"}]}
    reasoning: Tokens stay here.
"""
SESSION = "4fae6c53-1b6e-4f2c-9d0f-1f0c6a3f7f10"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The Guardian's secret as a user is told to take it."""
    path = tmp_path / "default.key"
    path.write_bytes(SECRET + b"\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a Guardian keeps its store."""
    path = tmp_path / "guardian"
    path.mkdir()
    return path


def example(url: str, key_file: Path) -> str:
    """What the example prints."""
    program = ROOT / "examples" / "guarded_agent.py"
    command = [sys.executable, str(program), url, str(key_file), "The answer is"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def methods(folder: Path) -> list[str]:
    """The chain's step types, of its one session."""
    with SqliteChainReader(folder / "guardian.db") as reader:
        sent = [orjson.loads(row.request or b"{}") for row in reader.rows(SESSION) if row.entry is not None]
    return [request["method"].removeprefix("steps/") for request in sent]


def test_the_example_is_twenty_lines() -> None:
    lines = (ROOT / "examples" / "guarded_agent.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 20


def test_the_example_asks_for_everything_it_does(folder: Path, key_file: Path) -> None:
    with guardian_process(folder) as process:
        assert example(process.url, key_file) == "The answer is: 42\n"


def test_the_example_does_not_do_what_is_denied(folder: Path, key_file: Path) -> None:
    (folder / "policy.yaml").write_bytes(NO_SHELL)
    with guardian_process(folder) as process:
        assert example(process.url, key_file) == "The answer is: not allowed: No shell today.\n"


def test_the_examples_of_the_how_to_run(folder: Path, key_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    with guardian_process(folder) as process:
        for block in blocks:
            exec(compile(block, str(HOW_TO), "exec"), {"URL": process.url, "KEY_FILE": str(key_file)})
    assert capsys.readouterr().out == "Tidy up. pretending to run ls\n"


def client(url: str, folder: Path, records: list[AuditRecord]) -> GuardianClient:
    """An agent whose saved terms lie in a folder."""
    return GuardianClient(
        HttpTransport(url),
        Identity.from_secret("agent", SECRET),
        audit=records.append,
        terms=FileTerms(folder),
    )


def test_a_redacted_argument_never_reaches_the_tool(folder: Path) -> None:
    (folder / "policy.yaml").write_bytes(REDACTS)

    async def main(url: str) -> None:
        async with client(url, folder, []) as guardian, guardian.session() as session, session.turn() as turn:
            told = await turn.tool_call_request("send", {"token": "secret", "to": "me"})
            assert told == {"token": "[GONE]", "to": "me"}

    with guardian_process(folder) as process:
        asyncio.run(main(process.url))


def test_a_session_survives_its_guardians_death(folder: Path) -> None:
    """While it is gone the negotiated posture blocks; afterwards the session goes on in one chain."""
    records: list[AuditRecord] = []

    async def before(url: str) -> None:
        async with client(url, folder, records) as guardian:
            session = await guardian.session(session_id=SESSION).__aenter__()
            async with session.turn() as turn:
                await turn.agent_response("one")

    async def after(url: str, *, works: bool) -> None:
        async with client(url, folder, records) as guardian:
            session = await guardian.attach(SESSION)
            if works:
                await session.agent_trigger()
            else:
                with pytest.raises(StepDenied):
                    await session.agent_trigger()

    with guardian_process(folder) as process:
        asyncio.run(before(process.url))
        process.kill()
        asyncio.run(after(process.url, works=False))
    with guardian_process(folder) as process:
        asyncio.run(after(process.url, works=True))
    assert methods(folder) == ["sessionStart", "turnStart", "agentResponse", "turnEnd", "agentTrigger"]
    assert [(record.outcome, record.document["posture_source"]) for record in records] == [("blocked", "negotiated")]


def stdio(folder: Path) -> StdioTransport:
    """A Guardian that is a child of ours."""
    program = ROOT / "tests" / "contract" / "stdio_guardian.py"
    command = [sys.executable, str(program), str(folder)]
    return StdioTransport(command, environment={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})


PATIENT = ClientSettings(timing=Timing(handshake_ms=30_000))


def test_an_agent_that_does_not_await_can_have_its_guardian_as_a_child(folder: Path) -> None:
    identity = Identity.from_secret("agent", SECRET)
    client = SyncGuardianClient(stdio(folder), identity, settings=PATIENT)
    with client as guardian, guardian.session(session_id=SESSION) as session, session.turn() as turn:
        assert turn.user_message("hello") == "hello"
    assert methods(folder) == ["sessionStart", "turnStart", "userMessage", "turnEnd", "sessionEnd"]


def test_a_child_guardian_that_was_killed_is_started_again(folder: Path) -> None:
    wire = stdio(folder)

    async def main() -> None:
        identity = Identity.from_secret("agent", SECRET)
        async with GuardianClient(wire, identity, settings=PATIENT) as guardian:
            await guardian.session(session_id=SESSION).__aenter__()
            child = wire.child
            assert child is not None
            child.kill()
            await child.wait()
            session = await guardian.attach(SESSION)
            await session.agent_trigger()

    asyncio.run(main())
    assert methods(folder) == ["sessionStart", "agentTrigger"]


def test_a_child_that_cannot_be_started_is_a_transport_failure() -> None:
    async def main() -> None:
        wire = StdioTransport(["/nowhere/guardian"])
        with pytest.raises(TransportFailed):
            await wire.exchange(b'{"id":1}', timeout_ms=1_000)
        await wire.close()

    asyncio.run(main())


@pytest.mark.parametrize("program", ["print('no frame at all\\r\\n\\r\\n', flush=True); input()", "pass"])
def test_a_child_that_speaks_something_else_is_a_transport_failure(program: str) -> None:
    async def main() -> None:
        wire = StdioTransport([sys.executable, "-c", program])
        with pytest.raises(TransportFailed):
            await wire.exchange(b'{"id":1}', timeout_ms=20_000)
        await wire.close()

    asyncio.run(main())
