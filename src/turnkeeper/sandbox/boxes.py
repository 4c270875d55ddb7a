"""The ports of the boxes: what a worker may ask of a driver, a loop box and a tool box, and the limits they hold.

A box is used for one turn (loop) or one attachment of a workspace (tools) and thrown away; it is never reused,
because whatever a box kept would leak into the next session. A driver never falls back to a weaker one: what it
cannot isolate it refuses with `SandboxUnavailable` (house rule 3; contract 7.2 row 11).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.protocol import FromHarness, Ready, ToHarness

GATEWAY_SOCKET_NAME: Final = "gateway.sock"
DEFAULT_MAX_OUTPUT_BYTES: Final = 32 * 1024
# A tool's text travels inside an envelope and a frame; escaped sixfold in the worst case it still fits both.
MAX_OUTPUT_BYTES: Final = 128 * 1024

ToolCallStatus: TypeAlias = Literal["ok", "error", "timeout"]
EndReason: TypeAlias = Literal["oom", "quota"]
"""Why we or the kernel ended a box: its memory was used up, or its workspace grew over its quota."""
CgroupUse: TypeAlias = Literal["auto", "require", "off"]


class SandboxError(TurnkeeperError):
    """Something about a box. `diagnostics` is what the box last wrote to stderr: for the log, never for a client."""

    code = "sandbox_error"

    def __init__(self, message: str, *, hint: str | None = None, diagnostics: str = "") -> None:
        super().__init__(message, hint=hint)
        self.diagnostics = diagnostics


class SandboxUnavailable(SandboxError):
    """No box could be started here; `hint` says what the machine lacks."""

    code = "sandbox_unavailable"


class BoxLost(SandboxError):
    """The box ended, does not answer, or answers what its agent never says."""

    code = "sandbox_lost"


class BoxNotGone(SandboxError):
    """A killed box still had processes when the deadline passed, so nobody may say that it was released."""

    code = "sandbox_not_gone"


class WorkspaceRefused(SandboxError):
    """The directory cannot be handed to a box: not a directory, or it holds things a box must not see."""

    code = "workspace_refused"


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """What one box may use.

    `box_memory_bytes` (what is really used, `/tmp` included), `cpu_millis` (thousandths of one processor; `None` is
    no limit), `processes`, `disk_bytes` and `disk_files` (of the workspace) are of the whole box; address space
    (`memory_bytes`), CPU time, open files and file size are of each process.
    """

    memory_bytes: int = 1 << 30
    box_memory_bytes: int = 1 << 30
    cpu_millis: int | None = 1000
    cpu_seconds: int = 600
    processes: int = 128
    open_files: int = 512
    file_bytes: int = 256 << 20
    tmp_bytes: int = 64 << 20
    disk_bytes: int = 2 << 30
    disk_files: int = 200_000


LOOP_LIMITS: Final = BoxLimits()
# Address space, not memory used: Node and the JVM reserve gigabytes they never touch.
TOOL_LIMITS: Final = BoxLimits(memory_bytes=4 << 30, box_memory_bytes=2 << 30, processes=256, open_files=1024)


@dataclass(frozen=True, slots=True)
class HostPath:
    """A file or folder of the host that a box may read, and where it finds it.

    A unix socket in such a folder can be connected to: that is how a box reaches a door of ours.
    """

    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class ToolBoxOrder:
    """What one tool box has that others have not.

    Its size as a whole, `None` being what the driver was told; further host paths, read-only; further variables of
    its environment, which is never the place for a secret: the box can read it and so can what it runs.
    """

    cpu_millis: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    read_only: tuple[HostPath, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def limits(self, usual: BoxLimits) -> BoxLimits:
        """The driver's limits with what was ordered in their place."""
        return replace(
            usual,
            cpu_millis=usual.cpu_millis if self.cpu_millis is None else self.cpu_millis,
            box_memory_bytes=usual.box_memory_bytes if self.memory_bytes is None else self.memory_bytes,
            disk_bytes=usual.disk_bytes if self.disk_bytes is None else self.disk_bytes,
        )


USUAL_ORDER: Final = ToolBoxOrder()


@dataclass(frozen=True, slots=True)
class SharedWorkspace:
    """A workspace in the loop's own box, whose program brings its tools along; the box is then a tool box's size."""

    path: Path
    order: ToolBoxOrder = USUAL_ORDER


@dataclass(frozen=True, slots=True)
class LoopBoxOrder:
    """A loop box with a command of its own, made when it is asked for and never kept warm.

    `read_only` are further host paths; `files` are contents by path inside, which nothing in the box can change;
    `environment` is never the place for a secret.
    """

    command: tuple[str, ...]
    read_only: tuple[HostPath, ...] = ()
    files: Mapping[Path, bytes] = field(default_factory=dict[Path, bytes])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    workspace: SharedWorkspace | None = None


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """What a driver is told once.

    `state_dir` belongs to the driver alone (sockets and locks); several servers may share it. `loop_command` runs
    inside the loop box. `read_only` are further host paths a loop box may read, at their own paths. The user ids
    are used only when we run as root: each box gets one of its own, so that limits and files are its own as well.
    `cgroups` says whether boxes get control groups: where the machine lends them, always, or never.
    """

    state_dir: Path
    loop_command: tuple[str, ...] = (sys.executable, "-I", "-m", "turnkeeper.harness")
    read_only: tuple[Path, ...] = ()
    loop_limits: BoxLimits = LOOP_LIMITS
    tool_limits: BoxLimits = TOOL_LIMITS
    warm_boxes: int = 2
    ready_timeout_ms: int = 30_000
    bwrap: Path | None = None
    first_uid: int = 60_720
    uids: int = 460
    cgroups: CgroupUse = "auto"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One allowed call. Over `timeout_ms` the tool's processes are killed; text over `max_output_bytes` is cut."""

    tool: str
    arguments: Mapping[str, object]
    timeout_ms: int = 120_000
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What became of a call. `text` is for the agent and comes from an untrusted box; `duration_ms` is ours."""

    status: ToolCallStatus
    text: str
    exit_status: int | None
    truncated: bool
    duration_ms: int


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One line of `doctor`: what was tried, whether it works here, and what was seen or what to do.

    `weak`: it works, by a means that holds less than another machine's would.
    """

    name: str
    ok: bool
    detail: str
    weak: bool = False


class LoopBox(Protocol):
    """The agent's loop, for one turn. Its `Ready` was received before anybody gets the box."""

    @property
    def sandbox_id(self) -> str:
        """`sbx_…`."""
        ...

    @property
    def ready(self) -> Ready:
        """What the harness said it is; its own claim."""
        ...

    @property
    def socket_dir(self) -> Path:
        """The host side of the gateway's directory.

        The gateway puts `GATEWAY_SOCKET_NAME` there before `Start` is sent, with mode 0666: as root we run the
        box under another uid, and connecting needs the write permission. Only this box and we can reach the directory.
        """
        ...

    @property
    def gateway_socket(self) -> str:
        """Where the harness finds that socket: the path for `Start.gateway_socket`."""
        ...

    @property
    def warm(self) -> bool:
        """Whether the box was ready before it was asked for."""
        ...

    @property
    def start_ms(self) -> int:
        """How long whoever asked for the box waited for it, to its `Ready`."""
        ...

    @property
    def end_reason(self) -> EndReason | None:
        """Why we or the kernel ended a box that was lost, where that is known."""
        ...

    @property
    def diagnostics(self) -> str:
        """The last bytes of the box's stderr, for the log."""
        ...

    async def send(self, frame: ToHarness) -> None:
        """Hand a frame to the harness. Raises `BoxLost` when it is gone or does not read."""
        ...

    async def receive(self) -> FromHarness:
        """The next frame. Raises `BoxLost` at the end, `HarnessProtocolError` on a bad one; both kill the box."""
        ...

    async def kill(self) -> None:
        """End every process of the box and wait until they are gone. Idempotent. Raises `BoxNotGone`."""
        ...


class ToolBox(Protocol):
    """A workspace and the programs that may work on it."""

    @property
    def sandbox_id(self) -> str:
        """`sbx_…`."""
        ...

    @property
    def end_reason(self) -> EndReason | None:
        """Why we or the kernel ended a box that was lost, where that is known."""
        ...

    @property
    def diagnostics(self) -> str:
        """The last bytes of the box's stderr, for the log."""
        ...

    async def call(self, request: ToolCall) -> ToolOutcome:
        """Run one tool; calls wait for each other. A call given up on takes the box with it. Raises `BoxLost`.

        An outcome says so where the box's memory was used up meanwhile, or its workspace is full.
        """
        ...

    async def suspend(self) -> bool:
        """Stop every process inside until `resume`. False, and nothing stopped, where that cannot be done."""
        ...

    async def resume(self) -> None:
        """Set going what `suspend` stopped; nothing else."""
        ...

    async def kill(self) -> None:
        """End every process of the box and wait until they are gone. Idempotent. Raises `BoxNotGone`."""
        ...


class SandboxDriver(Protocol):
    """Makes boxes of one kind."""

    @property
    def kind(self) -> str:
        """`bwrap` or `none`."""
        ...

    async def start(self) -> None:
        """Check that boxes work here, sweep what a dead owner left, begin to warm. Raises `SandboxUnavailable`."""
        ...

    async def stop(self) -> None:
        """Kill every box this driver made that is still there."""
        ...

    async def loop_box(self, order: LoopBoxOrder | None = None) -> LoopBox:
        """A warm box if there is one, else a cold one; one with an order is always cold. Raises `SandboxUnavailable`.

        What of the order this kind of box cannot give is `SandboxUnavailable`, never left out.
        """
        ...

    async def tool_box(self, workspace: Path, order: ToolBoxOrder = USUAL_ORDER) -> ToolBox:
        """A box on this directory, which no other box may have. Raises `SandboxUnavailable`, `WorkspaceRefused`.

        What of the order this kind of box cannot give is `SandboxUnavailable`, never left out.
        """
        ...

    def probe(self) -> list[ProbeResult]:
        """What `doctor` prints. Starts a box and waits for it, so not for the event loop."""
        ...
