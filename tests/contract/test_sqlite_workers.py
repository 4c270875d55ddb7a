"""Lock files of workers on one SQLite file: the kernel tells of an end, and of nothing else."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.store.dialects.sqlite_workers import WorkerFiles
from turnkeeper.turns.takeover import OwnerTaken

HOLDER = """
import sys
from pathlib import Path
from turnkeeper.store.dialects.sqlite_workers import WorkerFiles
with WorkerFiles(Path(sys.argv[1])).hold("other"):
    print("held", flush=True)
    sys.stdin.read()
"""


def gone(files: WorkerFiles, *owners: str) -> frozenset[str]:
    return asyncio.run(files.gone(owners))


def test_a_worker_lives_until_it_is_killed(tmp_path: Path) -> None:
    files, database = WorkerFiles(tmp_path / "t.db"), str(tmp_path / "t.db")
    command = [sys.executable, "-c", HOLDER, database]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert gone(files, "other") == frozenset()
        os.kill(process.pid, signal.SIGSTOP)
        assert gone(files, "other") == frozenset()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert gone(files, "other") == {"other"}


def test_two_processes_are_never_the_same_worker(tmp_path: Path) -> None:
    files = WorkerFiles(tmp_path / "t.db")
    with files.hold("one"), pytest.raises(OwnerTaken), files.hold("one"):
        pass


def test_a_worker_that_has_given_its_name_back_is_gone_and_leaves_nothing(tmp_path: Path) -> None:
    files = WorkerFiles(tmp_path / "t.db")
    with files.hold("one"), files.hold("two"):
        assert gone(files, "one", "two", "never") == {"never"}
    assert gone(files, "one") == {"one"}
    assert list((tmp_path / "t.db-workers").iterdir()) == []


def test_a_file_under_another_name_has_the_same_workers(tmp_path: Path) -> None:
    (tmp_path / "t.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "t.db")
    with WorkerFiles(tmp_path / "link.db").hold("one"):
        assert gone(WorkerFiles(tmp_path / "t.db"), "one") == frozenset()
