"""The data dir: its lock, its keys, its sockets' folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.clock import SystemClock
from turnkeeper.datadir import (
    DataDir,
    DataDirInUse,
    DataDirUnusable,
    hold,
    is_private,
    load_or_make_key,
)

HOLD = """
import sys
from pathlib import Path
from turnkeeper.clock import SystemClock
from turnkeeper.datadir import DataDir, hold
with hold(DataDir(Path(sys.argv[1])), command="turnkeeper serve", clock=SystemClock()):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    """A prepared data dir."""
    found = DataDir(tmp_path / "data")
    found.prepare()
    return found


def test_a_held_data_dir_names_its_holder_and_is_free_once_the_holder_was_killed(data_dir: DataDir) -> None:
    """Whoever comes second learns whom to stop; a crash leaves nothing to clean up."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(data_dir.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DataDirInUse) as caught, hold(data_dir, command="turnkeeper run", clock=SystemClock()):
            pass
        assert f"`turnkeeper serve` (pid {other.pid}, since 20" in caught.value.message
        other.kill()
    with hold(data_dir, command="turnkeeper run", clock=SystemClock()):
        pass


def test_a_lock_file_that_says_nothing_still_locks(data_dir: DataDir) -> None:
    """Its text is for people; the lock is the kernel's."""
    with hold(data_dir, command="x", clock=SystemClock()):
        data_dir.lock.write_text("nonsense")
        with pytest.raises(DataDirInUse, match="another process"), hold(data_dir, command="y", clock=SystemClock()):
            pass


def test_a_key_is_made_once_and_private(data_dir: DataDir) -> None:
    """Mode 600; the same bytes ever after; one trailing newline that is not the key."""
    key = load_or_make_key(data_dir.outside_key)
    assert load_or_make_key(data_dir.outside_key) == key
    assert is_private(data_dir.outside_key)
    assert key.endswith(b"\n")
    assert len(key.rstrip()) == 64
    assert key != load_or_make_key(data_dir.platform_key)
    assert [path.name for path in data_dir.outside_key.parent.iterdir()] != []
    assert not [path for path in data_dir.outside_key.parent.iterdir() if path.name.startswith(".")]


def test_a_data_dir_is_private(data_dir: DataDir) -> None:
    """Nobody else reads what the agents did."""
    assert is_private(data_dir.root)


def test_a_file_in_the_place_of_a_data_dir_is_named(tmp_path: Path) -> None:
    """Not a traceback."""
    (tmp_path / "data").write_text("")
    with pytest.raises(DataDirUnusable, match="data"):
        DataDir(tmp_path / "data").prepare()


def test_a_reader_says_when_nothing_was_ever_started_here(tmp_path: Path) -> None:
    """`verify` on a wrong folder must not report a clean chain."""
    with pytest.raises(DataDirUnusable, match="holds no Turnkeeper data"):
        DataDir(tmp_path).require()
