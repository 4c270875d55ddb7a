"""What a crash leaves of a box is ended by the next start, and a living box is not."""

import os
import signal
import subprocess
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from turnkeeper.sandbox.bwrap import find_bwrap
from turnkeeper.sandbox.stranded import end_stranded

pytestmark = pytest.mark.sandbox


@contextmanager
def box(mark: str) -> Generator[tuple["subprocess.Popen[bytes]", int]]:
    """A box that does not die with its outer process, which is what the moment of the crash amounts to."""
    script = "echo up; exec sleep 600"
    argv = [str(find_bwrap()), "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--", "/bin/sh", "-c", script]
    outer = subprocess.Popen([*argv, mark], stdout=subprocess.PIPE)
    assert outer.stdout is not None
    assert outer.stdout.readline() == b"up\n"
    inner = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
    watch = os.pidfd_open(inner)
    try:
        yield outer, watch
    finally:
        outer.kill()
        outer.wait(10)
        outer.stdout.close()
        end_stranded([mark])
        os.close(watch)


def has_ended(watch: int) -> bool:
    """Whether the process behind a pidfd is gone."""
    try:
        signal.pidfd_send_signal(watch, 0)
    except ProcessLookupError:
        return True
    return False


def test_what_is_left_of_a_box_is_ended() -> None:
    mark = f"box-{uuid.uuid4()}"
    with box(mark) as (outer, watch):
        outer.kill()
        outer.wait(10)
        assert not has_ended(watch)
        assert end_stranded([mark]) == 1


def test_a_living_box_and_a_stranger_are_left_alone() -> None:
    mark = f"box-{uuid.uuid4()}"
    with box(mark) as (outer, watch):
        assert end_stranded([mark]) == 0
        outer.kill()
        outer.wait(10)
        assert end_stranded([f"box-{uuid.uuid4()}"]) == 0
        assert not has_ended(watch)
