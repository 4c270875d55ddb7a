"""What takes the store away from a running Guardian, and what an agent is told then: a signed DENY, or a signed error.

Each fault is a real one: a full disk, a file that may not grow, a lock that another process holds, a process that is
frozen. When it is over, the same process and the same session go on, and the record verifies.
"""

import os
import resource
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.acceptance.guardian_alone import GuardianAlone
from tests.acceptance.outside_agent import OutsideAgent

from turnkeeper.acs import Refusal, Verdict

DISK_BYTES = 3 * 1024 * 1024
BLOCK = 65_536

pytestmark = pytest.mark.timeout(120)


def an_agent(guardian: GuardianAlone) -> OutsideAgent:
    """An agent that has a session with a turn in it."""
    agent = OutsideAgent(guardian.url, guardian.secret)
    agent.hello()
    assert agent.start_turn("t") == "allow"
    return agent


def check_denied(agent: OutsideAgent) -> None:
    """A tool call is denied, signed, with a reason; the end of a turn, which nobody denies, gets a signed error."""
    denied = agent.ask("steps/toolCallRequest", {"tool": {"name": "shell"}, "arguments": {}}, turn_id="t")
    assert isinstance(denied, Verdict)
    assert (denied.decision, denied.reason_codes, denied.chain_hash) == ("deny", ("store_failed",), None)
    ended = agent.end_turn("t")
    assert isinstance(ended, Refusal)
    assert (ended.code, ended.reason) == (-32603, "store_failed")


def check_recovered(guardian: GuardianAlone, agent: OutsideAgent) -> None:
    """The same process decides the same session's steps, and nothing is wrong with what was recorded."""
    assert agent.call_tool("t") == "allow"
    ended = agent.end_turn("t")
    assert isinstance(ended, Verdict)
    assert ended.reason_codes == ()
    assert OutsideAgent(guardian.url, guardian.secret).hello() is None
    assert guardian.verified()["findings"] == []
    assert guardian.terminate() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path, None, None]:
    """A file system of a few megabytes, where this machine lets us have one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system needs the right to mount one")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Takes every byte that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        for size in (BLOCK, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                continue
    return filler


def test_a_full_disk_denies_until_there_is_room_again(tmp_path: Path, small_disk: Path) -> None:
    with GuardianAlone(tmp_path, data_dir=small_disk / "data") as guardian:
        agent = an_agent(guardian)
        filler = fill(small_disk)
        while agent.call_tool("t") == "allow":
            pass
        check_denied(agent)
        filler.unlink()
        check_recovered(guardian, agent)


def test_a_file_that_may_not_grow_denies_until_it_may(tmp_path: Path) -> None:
    with GuardianAlone(tmp_path) as guardian:
        agent = an_agent(guardian)
        before = resource.prlimit(guardian.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(guardian.pid, resource.RLIMIT_FSIZE, (4_096, before[1]))
        check_denied(agent)
        resource.prlimit(guardian.pid, resource.RLIMIT_FSIZE, before)
        check_recovered(guardian, agent)


@contextmanager
def locked(database: Path) -> Generator[None, None, None]:
    """Another process's transaction, which is open as long as the block."""
    other = sqlite3.connect(database, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


def test_a_store_that_another_process_has_locked_denies_within_the_time_of_a_step(tmp_path: Path) -> None:
    with GuardianAlone(tmp_path) as guardian:
        agent = an_agent(guardian)
        with locked(guardian.database):
            check_denied(agent)
        check_recovered(guardian, agent)


def test_a_store_that_is_moved_away_denies_until_it_is_back(tmp_path: Path) -> None:
    with GuardianAlone(tmp_path) as guardian:
        agent = an_agent(guardian)
        files = [guardian.database.with_name(guardian.database.name + end) for end in ("", "-wal", "-shm")]
        for file in files:
            file.rename(file.with_name("moved-" + file.name))
        check_denied(agent)
        for file in files:
            file.with_name("moved-" + file.name).rename(file)
        check_recovered(guardian, agent)
