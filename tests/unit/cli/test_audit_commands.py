"""`verify`, `guardian retain|archive|archived|decisions` and `export` over one data dir."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import orjson
import pytest
from tests.unit.guardian.kit import MESSAGE, greeted, house
from typer.testing import CliRunner, Result

from turnkeeper.cli import build_app
from turnkeeper.clock import SystemClock
from turnkeeper.datadir import DataDir, hold
from turnkeeper.errors import TurnkeeperError
from turnkeeper.testing.fake_clock import FakeClock

KEY = b"d" * 32
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data dir in which one session was closed, and one was not."""
    folder = DataDir(tmp_path / "data")
    folder.prepare()
    folder.outside_key.write_bytes(KEY)

    async def main() -> None:
        async with house(folder.guardian_database.parent, clock=FakeClock(LONG_AGO)) as here:
            for closed in (True, False):
                agent = await greeted(here)
                await agent.step("sessionStart", {})
                await agent.step("userMessage", MESSAGE)
                if closed:
                    await agent.step("sessionEnd", {"reason": "completed"})

    asyncio.run(main())
    return folder.root


def run(*words: str) -> Result:
    return CliRunner().invoke(build_app(words[0]), list(words))


def guardian(data_dir: Path, *words: str) -> Result:
    return run("guardian", *words, "--data-dir", str(data_dir))


def document(done: Result) -> dict[str, object]:
    assert done.exit_code == 0, done.output
    found: dict[str, object] = orjson.loads(done.stdout)
    return found


def closed_session(data_dir: Path) -> str:
    """The session that is archived."""
    done = guardian(data_dir, "archive", "--after-hours", "0", "--json")
    archived = document(done)["archived_sessions"]
    assert isinstance(archived, list)
    (session_id,) = cast("list[str]", archived)
    return session_id


def test_content_is_erased_and_the_data_dir_verifies_on(data_dir: Path) -> None:
    before = run("verify", "--data-dir", str(data_dir)).stdout
    assert document(guardian(data_dir, "retain", "--after-hours", "0", "--json"))["erased_steps"] == 7
    after = run("verify", "--data-dir", str(data_dir))
    assert after.exit_code == 0
    heads = [line.rsplit("head ", 1)[1] for line in before.splitlines() if "head " in line]
    assert all(head in after.stdout for head in heads)
    assert "4 rows erased" in after.stdout


def test_an_archived_session_is_shown_as_archived_with_its_head(data_dir: Path) -> None:
    session_id = closed_session(data_dir)
    (listed,) = orjson.loads(guardian(data_dir, "archived", "--json").stdout)
    report = run("verify", "--data-dir", str(data_dir))
    assert report.exit_code == 0
    assert f"session {session_id}: 3 entries, archived, head {listed['chain_hash']}" in report.stdout


def test_an_archive_is_verified_as_a_file(data_dir: Path) -> None:
    archive = data_dir / "guardian" / "archives" / f"{closed_session(data_dir)}.acs.jsonl"
    assert run("verify", str(archive), "--data-dir", str(data_dir)).exit_code == 0
    archive.write_bytes(archive.read_bytes().replace(b"hello", b"HELLO", 1))
    assert run("verify", str(archive), "--data-dir", str(data_dir)).exit_code == 1
    broken = run("verify", "--data-dir", str(data_dir))
    assert broken.exit_code == 1
    assert "[archive_not_as_recorded]" in broken.stdout


def test_an_archive_that_was_put_elsewhere_is_told_and_no_break(data_dir: Path) -> None:
    session_id = closed_session(data_dir)
    (data_dir / "guardian" / "archives" / f"{session_id}.acs.jsonl").rename(data_dir / "elsewhere")
    report = run("verify", "--data-dir", str(data_dir))
    assert report.exit_code == 0
    assert "[archive_elsewhere]" in report.stdout
    assert f"session {session_id}: archived, 3 entries, head" in report.stdout


def test_sessions_are_not_archived_beside_a_guardian_that_runs(data_dir: Path) -> None:
    with hold(DataDir(data_dir), command="turnkeeper serve", clock=SystemClock()):
        done = guardian(data_dir, "archive", "--after-hours", "0")
    assert done.exit_code != 0
    assert "turnkeeper serve" in str(done.exception)


@pytest.mark.parametrize("command", ["retain", "archive"])
def test_nothing_goes_where_nobody_said_how_old(data_dir: Path, command: str) -> None:
    assert "how old" in str(guardian(data_dir, command).exception)


def test_a_decision_log_is_printed_and_verifies(data_dir: Path, tmp_path: Path) -> None:
    (session_id, *_) = [one["session_id"] for one in orjson.loads(guardian(data_dir, "sessions", "--json").stdout)]
    log = tmp_path / "decisions.jsonl"
    log.write_bytes(guardian(data_dir, "decisions", session_id).stdout_bytes)
    assert run("verify", str(log), "--data-dir", str(data_dir)).exit_code == 0


def test_an_agents_audit_log_needs_the_guardians_record(data_dir: Path, tmp_path: Path) -> None:
    told = tmp_path / "agent.jsonl"
    told.write_bytes(b'{"seq":1,"event":"decision","session_id":"s","outcome":"proceeded"}\n')
    refused = run("verify", str(told), "--data-dir", str(data_dir)).exception
    assert isinstance(refused, TurnkeeperError)
    assert "--against" in str(refused.hint)


def test_an_agents_audit_log_is_held_against_an_export(data_dir: Path, tmp_path: Path) -> None:
    (session_id, *_) = [one["session_id"] for one in orjson.loads(guardian(data_dir, "sessions", "--json").stdout)]
    export = tmp_path / "export.jsonl"
    export.write_bytes(run("export", session_id, "--data-dir", str(data_dir)).stdout_bytes)
    told = tmp_path / "agent.jsonl"
    record = {"seq": 1, "event": "decision", "session_id": session_id, "outcome": "proceeded", "chain_hash": "f" * 64}
    told.write_bytes(orjson.dumps(record | {"request_id": "invented"}) + b"\n")
    report = run("verify", str(told), "--against", str(export), "--data-dir", str(data_dir))
    assert report.exit_code == 1
    assert "[guardian_step_missing]" in report.stdout


def test_an_archived_session_is_not_exported_but_named(data_dir: Path) -> None:
    session_id = closed_session(data_dir)
    refused = run("export", session_id, "--data-dir", str(data_dir)).exception
    assert isinstance(refused, TurnkeeperError)
    assert f"{session_id}.acs.jsonl" in str(refused.hint)
