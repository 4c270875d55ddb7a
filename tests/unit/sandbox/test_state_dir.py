import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.sandbox.boxes import GATEWAY_SOCKET_NAME, SandboxUnavailable
from turnkeeper.sandbox.state_dir import MAX_SOCKET_PATH_BYTES, StateDir, short_base

OWNER = """
import sys, time
from pathlib import Path
from turnkeeper.sandbox.state_dir import StateDir
state = StateDir(Path(sys.argv[1]))
state.open()
print(state.socket_dir(), flush=True)
sys.stdin.read()
"""


def test_each_box_has_a_folder_of_its_own_that_others_may_pass(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.open()
    first, second = state.socket_dir(), state.socket_dir()
    assert first != second
    assert first.stat().st_mode & 0o777 == 0o755
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    state.close()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_owners_folder_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        theirs = Path(owner.stdout.readline().strip())
        early = StateDir(tmp_path)
        assert early.open() == 0
        assert theirs.is_dir()
        owner.kill()
        owner.wait()
    late = StateDir(tmp_path)
    assert late.open() == 1
    assert not theirs.exists()
    early.close()
    late.close()


def test_a_socket_path_always_fits(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 40)
    for wanted in (tmp_path, deep):
        longest = short_base(wanted) / "ffffffff" / "ffffffff" / GATEWAY_SOCKET_NAME
        assert len(os.fsencode(longest)) <= MAX_SOCKET_PATH_BYTES
    assert short_base(deep) == short_base(deep)
    assert short_base(deep) != short_base(tmp_path / ("l0ng" * 40))


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").symlink_to("elsewhere")
    with pytest.raises(SandboxUnavailable, match="not a folder of ours"):
        StateDir(tmp_path / "state").open()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxUnavailable, match="file"):
        StateDir(tmp_path / "file").open()


def test_no_folder_is_made_before_open(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable):
        StateDir(tmp_path).socket_dir()
