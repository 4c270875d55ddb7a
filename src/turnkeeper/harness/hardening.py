"""Closes the harness's memory to other processes of its box, and its frame channel to everything but frames."""

import ctypes
import os
import sys
from dataclasses import dataclass
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2


LOOP_NICENESS: Final = 5
"""A box is made ready while turns run, and its imports take seconds of processor: they must not slow those turns."""


@dataclass(frozen=True, slots=True)
class FramePipes:
    """The file descriptors frames travel on. Nothing else in the process has them."""

    frames_in: int
    frames_out: int


def forbid_dumping() -> None:
    """No core dump, no ptrace, no `/proc/PID/mem` for others of this uid. Raises `OSError` where it fails."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def yield_to_running_turns() -> None:
    """Lowers the process's own priority for good; where the processor is idle that changes nothing."""
    os.nice(LOOP_NICENESS)


def claim_frame_pipes() -> FramePipes:
    """Takes the standard input and output for frames; what is printed from now on goes to the standard error."""
    pipes = FramePipes(os.dup(_STDIN), os.dup(_STDOUT))
    os.dup2(_STDERR, _STDOUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STDIN)
    os.close(nothing)
    return pipes
