"""No sandbox: the same programs as ordinary processes of this user. Opt-in, and it isolates nothing.

What is left is a clean environment, resource limits, and an end for every process that still carries the mark the box
put into its environment; a program that removes the mark outlives `kill`. Every file, process and network of this
user is in reach. It is there for machines that cannot isolate, and for tests to show that a probe would have found
something.
"""

import os
import secrets
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from turnkeeper.clock import Clock
from turnkeeper.ids import IdSource
from turnkeeper.sandbox import toolbox_agent
from turnkeeper.sandbox.box_process import Launch
from turnkeeper.sandbox.boxes import (
    BoxLimits,
    DriverSettings,
    LoopBoxOrder,
    ProbeResult,
    SandboxUnavailable,
    ToolBoxOrder,
)
from turnkeeper.sandbox.bwrap_args import limit_command
from turnkeeper.sandbox.runtime_paths import find_program, tool_runtime
from turnkeeper.sandbox.stdio_driver import StdioDriver

NOTICE: Final = (
    "isolation: none. Agents and their tools run as ordinary processes of this user, with its files, its processes "
    "and its network. Do not use this with anything you would not run yourself."
)
MARK: Final = "TURNKEEPER_BOX"
_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "MALLOC_ARENA_MAX": "2"}


class UnsafeNoneDriver(StdioDriver):
    """Processes instead of boxes; `kind` is `none`."""

    def __init__(self, settings: DriverSettings, ids: IdSource, clock: Clock) -> None:
        super().__init__("none", UnsafeNoneLauncher(settings), settings, ids, clock)


class UnsafeNoneLauncher:
    """Starts processes that nothing isolates."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings

    def prepare(self, owner: str) -> tuple[Path, ...]:
        """Say what this is; there are no control groups."""
        structlog.get_logger().warning("sandbox_is_none", kind="none", notice=NOTICE)
        return ()

    def gateway_dir(self, socket_dir: Path) -> str:
        """The same folder, for there is no inside."""
        return str(socket_dir)

    def launch_loop(self, socket_dir: Path, release: Callable[[], None], order: LoopBoxOrder | None = None) -> Launch:
        """The harness as a process. An order's files and its shared workspace need a real box: `SandboxUnavailable`."""
        limits = self._settings.loop_limits
        if order is None:
            return _launch(self._settings.loop_command, limits, socket_dir, release)
        elsewhere = [path.target for path in order.read_only if path.source != path.target]
        if order.files or order.workspace is not None or elsewhere:
            raise SandboxUnavailable("this harness needs a box of its own, and sandbox.kind is none")
        return _launch(order.command, limits, socket_dir, release, order.environment)

    def launch_tools(self, workspace: Path, order: ToolBoxOrder, release: Callable[[], None]) -> Launch:
        """The tool agent as a process in the workspace. Raises `SandboxUnavailable` for a path put elsewhere."""
        for path in order.read_only:
            if path.source != path.target:
                raise SandboxUnavailable(f"without a box {path.source} cannot be at {path.target}")
        command = (str(tool_runtime().executable), "-I", "-S", toolbox_agent.__file__, str(workspace))
        return _launch(command, order.limits(self._settings.tool_limits), workspace, release, order.environment)

    def probe(self) -> list[ProbeResult]:
        """One line, and it is not good news."""
        return [ProbeResult("isolation", ok=False, detail=NOTICE)]


def _launch(
    command: tuple[str, ...],
    limits: BoxLimits,
    directory: Path,
    release: Callable[[], None],
    variables: Mapping[str, str] = _ENVIRONMENT,
) -> Launch:
    setpriv = find_program("setpriv")
    limited = limit_command(find_program("prlimit"), limits)
    mark = secrets.token_hex(16)
    return Launch(
        ("setpriv", "--pdeathsig", "KILL", "--no-new-privs", *limited, *command),
        setpriv,
        environment={**_ENVIRONMENT, "HOME": str(directory), **variables, MARK: mark},
        directory=directory,
        kill_rest=lambda: kill_marked(f"{MARK}={mark}".encode()),
        release=release,
    )


def kill_marked(mark: bytes) -> bool:
    """SIGKILL every process that was started with this variable; whether there was none."""
    found = False
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark in (folder / "environ").read_bytes().split(b"\0")
            if marked:
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            # Gone meanwhile, or not ours to look into: then it is not ours to kill either.
            continue
        found = found or marked
    return not found
