"""What cannot be had from inside a box: one claim, one test, in the loop box and in the tool box.

Each probe is also run without isolation, where it must find what it looks for; else a broken probe would pass.
The whole file is run again as an ordinary user when we are root, because the two use different means.
"""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.unit.sandbox.box_parts import ECHO, PRELUDE, DriverClass, run, running, settings, workspace

from turnkeeper.sandbox.boxes import BoxLimits, DriverSettings, ToolCall
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.protocol import Submit
from turnkeeper.sandbox.runtime_paths import tool_runtime
from turnkeeper.sandbox.unsafe_none import UnsafeNoneDriver

pytestmark = pytest.mark.sandbox

Place = Literal["loop", "tool"]
ORDINARY_UID = 2000
REPOSITORY = Path(__file__).parents[2]
ESCAPE_SUITE = "tests/escape/test_escape.py"

# Runs a function and gives the name of the error it ended with, or "worked".
TRY = """
import ctypes, errno, glob, json, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(work):
    try:
        value = work()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "worked"
def call(function, *arguments):
    def work():
        if function(*arguments) == -1:
            raise OSError(ctypes.get_errno(), "")
    return attempt(work)
"""


@pytest.fixture(params=["loop", "tool"])
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = request.param
    return chosen


@pytest.fixture
def host_process() -> Iterator["subprocess.Popen[bytes]"]:
    """A process of ours outside of every box, with a provider key in its environment."""
    with subprocess.Popen(["sleep", "86399"], env={"PROVIDER_KEY": "sk-host-secret"}) as process:
        yield process
        process.kill()


def probe(place: Place, driver_class: DriverClass, folder: Path, code: str, **changes: Any) -> Any:
    """What `code` leaves in `result` when it is run inside a box of this kind."""
    given = settings(folder, f"{PRELUDE}{TRY}{code}\nsubmit(json.dumps(result))\nsys.stdin.read()", **changes)

    async def work() -> str:
        async with running(driver_class, given) as driver:
            if place == "loop":
                frame = await (await driver.loop_box()).receive()
                assert isinstance(frame, Submit)
                return frame.value
            box = await driver.tool_box(workspace(folder))
            await box.call(
                ToolCall("write_file", {"path": "probe.py", "content": f"{TRY}{code}\nprint(json.dumps(result))"})
            )
            outcome = await box.call(ToolCall("shell", {"command": f"{tool_runtime().executable} -I -S probe.py"}))
            return outcome.text

    return json.loads(run(work()))


def test_no_environment_in_reach_holds_a_provider_key(
    place: Place, tmp_path: Path, host_process: "subprocess.Popen[bytes]"
) -> None:
    code = """
result = []
for path in glob.glob("/proc/[0-9]*/environ"):
    if attempt(lambda: open(path, "rb").read()) == "worked" and b"sk-host-secret" in open(path, "rb").read():
        result.append(path)
"""
    assert probe(place, BwrapDriver, tmp_path / "a", code) == []
    assert probe(place, UnsafeNoneDriver, tmp_path / "b", code) == [f"/proc/{host_process.pid}/environ"]


def test_the_first_process_shows_nothing_of_the_host(place: Place, tmp_path: Path) -> None:
    code = """
def read(name):
    path = "/proc/1/" + name
    if attempt(lambda: open(path).close()) != "worked":
        return ""
    return os.readlink(path) if name in ("cwd", "root") else open(path, "rb").read().decode()
result = {name: read(name) for name in ("environ", "cmdline", "cwd", "root")}
"""
    seen = probe(place, BwrapDriver, tmp_path, code)
    assert seen["environ"] == ""
    assert seen["cwd"] in {"", "/"}
    assert seen["cmdline"].startswith("bwrap\0--args\0")
    assert str(tmp_path) not in json.dumps(seen)


def test_no_host_file_is_there(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "data" / "sessions" / "other"
    other.mkdir(parents=True)
    (other / "notes.txt").write_text("private")
    with tempfile.NamedTemporaryFile(dir=Path.home()) as at_home:
        paths = [str(other / "notes.txt"), str(REPOSITORY / "pyproject.toml"), "/etc/hostname", at_home.name]
        code = f"result = [path for path in {paths} if attempt(lambda: open(path)) == 'worked']"
        assert probe(place, BwrapDriver, tmp_path / "a", code) == []
        assert probe(place, UnsafeNoneDriver, tmp_path / "b", code) == paths


def test_the_hosts_password_file_is_not_there(place: Place, tmp_path: Path) -> None:
    code = "result = [attempt(lambda: os.stat('/etc/shadow')), open('/etc/passwd').read()]"
    missing, passwd = probe(place, BwrapDriver, tmp_path / "a", code)
    assert missing == "ENOENT"
    assert passwd.count("\n") == 1
    assert probe(place, UnsafeNoneDriver, tmp_path / "b", code)[0] == "worked"


def test_no_host_process_is_visible(place: Place, tmp_path: Path, host_process: "subprocess.Popen[bytes]") -> None:
    # A count and one flag, not the list: a host may run more than a tool's text can hold.
    code = """
seen = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    if attempt(lambda: open(path, "rb").read()) == "worked":
        seen.append(path)
def is_the_sleeper(path):
    try:
        return open(path, "rb").read() == b"sleep\\x0086399\\x00"
    except OSError:
        return False
result = {"count": len(seen), "sleeper": any(map(is_the_sleeper, seen))}
"""
    inside = probe(place, BwrapDriver, tmp_path / "a", code)
    assert inside["count"] <= 5
    assert not inside["sleeper"]
    assert probe(place, UnsafeNoneDriver, tmp_path / "b", code)["sleeper"]


def test_no_host_network_is_reachable(place: Place, tmp_path: Path) -> None:
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0turnkeeper-test-{os.getpid()}")
        tcp.listen()
        abstract.listen()
        code = f"""
result = [
    attempt(lambda: socket.create_connection({tcp.getsockname()!r}, 5)),
    attempt(lambda: socket.socket(socket.AF_UNIX).connect({abstract.getsockname().decode()!r})),
]
"""
        assert probe(place, BwrapDriver, tmp_path / "a", code) == ["ECONNREFUSED", "ECONNREFUSED"]
        assert probe(place, UnsafeNoneDriver, tmp_path / "b", code) == ["worked", "worked"]


def test_the_only_interface_is_a_loopback_of_its_own(place: Place, tmp_path: Path) -> None:
    code = "result = [sorted(name for _, name in socket.if_nameindex()), os.readlink('/proc/self/ns/net')]"
    interfaces, namespace = probe(place, BwrapDriver, tmp_path, code)
    assert interfaces == ["lo"]
    assert namespace != os.readlink("/proc/self/ns/net")


def test_nothing_of_the_system_can_be_written(place: Place, tmp_path: Path) -> None:
    folders = ["/", "/usr", "/usr/bin", "/etc", "/dev", "/run", "/proc/sys/kernel"]
    code = f"result = [attempt(lambda: open(folder + '/written', 'w')) for folder in {folders}]"
    assert not {"worked"} & set(probe(place, BwrapDriver, tmp_path, code))


def test_kernel_settings_cannot_be_written(place: Place, tmp_path: Path) -> None:
    paths = ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger"]
    code = f"result = [attempt(lambda: open(path, 'r+b').close()) for path in {paths}]"
    assert not {"worked"} & set(probe(place, BwrapDriver, tmp_path, code))


def test_the_interpreter_and_its_packages_cannot_be_written(place: Place, tmp_path: Path) -> None:
    code = (
        "result = [sys.prefix, attempt(lambda: open(os.__file__, 'a')), attempt(lambda: open(sys.prefix + '/x', 'w'))]"
    )
    _, module, folder = probe(place, BwrapDriver, tmp_path, code)
    assert {module, folder} <= {"EROFS", "EACCES"}


def test_a_loop_box_has_no_workspace_and_a_tool_box_no_model_socket(tmp_path: Path) -> None:
    code = "result = [path for path in ('/workspace', '/run/gateway') if os.path.exists(path)]"
    assert probe("loop", BwrapDriver, tmp_path / "a", code) == ["/run/gateway"]
    assert probe("tool", BwrapDriver, tmp_path / "b", code) == ["/workspace"]


def test_the_socket_folder_cannot_be_written_from_inside(tmp_path: Path) -> None:
    code = "result = attempt(lambda: open('/run/gateway/gateway.sock', 'w'))"
    assert probe("loop", BwrapDriver, tmp_path, code) == "EROFS"


def test_a_box_has_no_privilege(place: Place, tmp_path: Path) -> None:
    code = """
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
result = [os.getuid(), os.getgroups(), [int(status[name], 16) for name in names]]
"""
    uid, groups, bits = probe(place, BwrapDriver, tmp_path, code)
    assert uid != 0
    assert 0 not in groups
    assert bits == [0, 0, 0, 0, 0, 1, 2]


def test_no_descriptor_of_ours_is_open_inside(place: Place, tmp_path: Path) -> None:
    # An ordinary user's box has its own channel twice, as the command's streams and as they were handed to its shell.
    code = """
def file_of(fd):
    found = os.fstat(fd)
    return found.st_dev, found.st_ino

names = [name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)]
own = [file_of(fd) for fd in (0, 1, 2)]
result = [name for name in names if file_of(int(name)) not in own]
"""
    with (tmp_path / "secret").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        assert probe(place, BwrapDriver, tmp_path, code) == []


def test_namespaces_mounts_and_tracing_are_refused(place: Place, tmp_path: Path) -> None:
    code = """
CLONE_NEWUSER, CLONE_NEWNET, PTRACE_TRACEME = 0x10000000, 0x40000000, 0
result = {
    "user namespace": call(libc.unshare, CLONE_NEWUSER),
    "net namespace": call(libc.unshare, CLONE_NEWNET),
    "setns": call(libc.setns, os.open("/proc/self/ns/uts", os.O_RDONLY), 0),
    "mount": call(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None),
    "umount": call(libc.umount2, b"/tmp", 0),
    "chroot": call(libc.chroot, b"/tmp"),
    "ptrace": call(libc.ptrace, PTRACE_TRACEME, 0, 0, 0),
}
"""
    refused = probe(place, BwrapDriver, tmp_path / "a", code)
    assert set(refused.values()) == {"EPERM"}
    assert probe(place, UnsafeNoneDriver, tmp_path / "b", code)["ptrace"] == "worked"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system-call numbers are those of x86-64")
def test_dangerous_system_calls_are_refused(place: Place, tmp_path: Path) -> None:
    code = """
numbers = {"keyctl": 250, "add_key": 248, "request_key": 249, "bpf": 321, "perf_event_open": 298,
           "userfaultfd": 323, "process_vm_readv": 310, "pidfd_getfd": 438, "open_by_handle_at": 304,
           "open_tree": 428, "mount_setattr": 442, "open_tree_attr": 467, "kexec_load": 246}
result = {name: call(libc.syscall, number, 0, 0, 0, 0, 0) for name, number in numbers.items()}
result["io_uring_setup"] = call(libc.syscall, 425, 1, 0)
result["clone3"] = call(libc.syscall, 435, 0, 0)
"""
    refused = probe(place, BwrapDriver, tmp_path / "a", code)
    assert (refused.pop("io_uring_setup"), refused.pop("clone3")) == ("ENOSYS", "ENOSYS")
    assert set(refused.values()) == {"EPERM"}
    assert probe(place, UnsafeNoneDriver, tmp_path / "b", code)["keyctl"] == "EINVAL"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system-call numbers are those of x86-64")
def test_a_child_cannot_be_born_into_a_new_namespace(place: Place, tmp_path: Path) -> None:
    code = """
def born(flag):
    def work():
        child = libc.syscall(56, flag | signal.SIGCHLD, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        if child < 0:
            raise OSError(ctypes.get_errno(), "")
    return attempt(work)
result = [born(flag) for flag in (0, 0x10000000, 0x20000000, 0x40000000, 0x00020000)]
"""
    assert probe(place, BwrapDriver, tmp_path / "a", code) == ["worked", "EPERM", "EPERM", "EPERM", "EPERM"]
    assert probe(place, UnsafeNoneDriver, tmp_path / "b", code)[:2] == ["worked", "worked"]


def test_socket_families_that_leave_the_namespace_are_refused(place: Place, tmp_path: Path) -> None:
    code = """
families = {"vsock": 40, "packet": 17, "bluetooth": 31, "alg": 38, "xdp": 44, "tipc": 30, "unix": 1, "inet": 2}
result = {name: call(libc.socket, family, 2, 0) for name, family in families.items()}
result["high bits"] = call(libc.syscall, 41 if os.uname().machine == "x86_64" else 198, (1 << 32) | 17, 3, 0)
"""
    refused = probe(place, BwrapDriver, tmp_path, code)
    assert (refused.pop("unix"), refused.pop("inet")) == ("worked", "worked")
    assert set(refused.values()) == {"EPERM"}


def test_typing_into_a_terminal_is_refused(place: Place, tmp_path: Path) -> None:
    code = """
result = [call(libc.ioctl, 0, ctypes.c_ulong(request), b"x") for request in (0x5412, 0x541C, (1 << 32) | 0x5412)]
"""
    assert probe(place, BwrapDriver, tmp_path, code) == ["EPERM", "EPERM", "EPERM"]


def test_the_temporary_folder_is_bounded(place: Place, tmp_path: Path) -> None:
    code = """
def fill(path):
    with open(path, "wb") as file:
        for _ in range(40):
            file.write(bytes(1 << 20))
result = [attempt(lambda: fill("/tmp/full")), attempt(lambda: fill("/dev/shm/full"))]
"""
    limits = BoxLimits(tmp_bytes=4 << 20)
    assert probe(place, BwrapDriver, tmp_path, code, loop_limits=limits, tool_limits=limits) == ["ENOSPC", "ENOSPC"]


def test_a_fork_bomb_stops_at_the_limit(place: Place, tmp_path: Path) -> None:
    code = """
children, ended = 0, "worked"
while children < 200 and ended == "worked":
    ended = attempt(lambda: signal.pause() if os.fork() == 0 else None)
    children += 1
result = [children, ended]
"""
    limits = BoxLimits(processes=40)
    children, ended = probe(place, BwrapDriver, tmp_path, code, loop_limits=limits, tool_limits=limits)
    assert ended == "EAGAIN"
    assert children <= 40


def test_the_tool_box_cannot_see_or_touch_the_loop_box(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path, ECHO + "# the loop box")) as driver:
            loop = await driver.loop_box()
            tools = await driver.tool_box(workspace(tmp_path))
            host_pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _is_loop(path)]
            assert host_pids
            code = f"""
seen = [open(path, "rb").read().decode() for path in glob.glob("/proc/[0-9]*/cmdline")]
result = [any("the loop box" in text for text in seen),
          sorted({{attempt(lambda: os.kill(pid, 9)) for pid in {host_pids} if not os.path.exists(f"/proc/{{pid}}")}}),
          os.path.exists({str(loop.socket_dir)!r}), os.path.exists("/run/gateway")]
print(json.dumps(result))
"""
            await tools.call(ToolCall("write_file", {"path": "probe.py", "content": TRY + code}))
            command = f"{tool_runtime().executable} -I -S probe.py"
            outcome = await tools.call(ToolCall("shell", {"command": command}))
            assert json.loads(outcome.text) == [False, ["ESRCH"], False, False]
            await loop.kill()

    run(work())


def test_a_command_cannot_look_into_or_speak_for_the_tool_agent(tmp_path: Path) -> None:
    command = "for name in fd/1 mem environ; do (exec 3<>/proc/$PPID/$name) 2>/dev/null && echo $name; done; true"

    async def work() -> str:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(workspace(tmp_path))
            reachable = "kill -0 $PPID && echo reachable;"
            return (await box.call(ToolCall("shell", {"command": reachable + command}))).text

    assert run(work()) == "reachable\n"


def test_boxes_share_no_temporary_folder_and_no_user(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            folders = [tmp_path / name for name in ("one", "two")]
            for folder in folders:
                folder.mkdir()
            one, two = [await driver.tool_box(folder) for folder in folders]
            await one.call(ToolCall("shell", {"command": "touch /tmp/mine /dev/shm/mine"}))
            listed = await two.call(ToolCall("shell", {"command": "ls /tmp /dev/shm"}))
            assert "mine" not in listed.text
            if os.geteuid() == 0:
                assert folders[0].stat().st_uid != folders[1].stat().st_uid

    run(work())


def test_a_link_in_the_workspace_leads_nowhere_on_the_host(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("private")
    folder = workspace(tmp_path)
    (folder / "link").symlink_to(secret)
    (folder / "up").symlink_to("..")

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(folder)
            for path in ("link", "up/secret.txt", "../secret.txt"):
                assert (await box.call(ToolCall("read_file", {"path": path}))).status == "error"
            written = await box.call(ToolCall("write_file", {"path": "link", "content": "changed"}))
            assert written.status == "error"
        assert secret.read_text() == "private"

    run(work())


def test_attaching_a_workspace_leaves_owners_outside_of_it_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    folder = workspace(tmp_path)
    (folder / "link").symlink_to(outside)
    os.link(outside, folder / "second_name")
    (folder / "own").write_text("x")

    async def work() -> None:
        async with running(BwrapDriver, settings(tmp_path)) as driver:
            box = await driver.tool_box(folder)
            changed = await box.call(ToolCall("shell", {"command": "echo y > own"}))
            assert changed.status == "ok"
        assert outside.stat().st_uid == os.geteuid()

    run(work())


def test_the_state_folder_may_not_lie_where_boxes_can_read(tmp_path: Path) -> None:
    given = replace(settings(tmp_path), read_only=(tmp_path,))
    with pytest.raises(Exception, match="every box can read"):
        run(_start_and_stop(given))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.timeout(600)
def test_the_same_holds_for_an_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = Path(sys.base_prefix).resolve()
    hidden = next((folder for folder in reversed(base.parents) if not folder.stat().st_mode & 0o001), None)
    if not os.access("/usr/bin/unshare", os.X_OK) or any(
        not folder.stat().st_mode & 0o001 for folder in (*REPOSITORY.parents, REPOSITORY, Path(sys.prefix))
    ):
        pytest.skip("the repository cannot be reached by an ordinary user")
    scratch = Path("/tmp") / f"turnkeeper-user-{os.getpid()}"
    scratch.mkdir()
    os.chown(scratch, ORDINARY_UID, ORDINARY_UID)
    # In a mount namespace of its own, an empty folder stands for the home that nobody else may enter.
    uncover = f"""
mkdir {scratch}/hold && mount --bind {base} {scratch}/hold && mount -t tmpfs -o mode=755 none {hidden}
mkdir -p {base} && mount --move {scratch}/hold {base}
"""
    become = f"exec setpriv --reuid {ORDINARY_UID} --regid {ORDINARY_UID} --clear-groups --no-new-privs"
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider --basetemp {scratch}/tests {__file__} {ESCAPE_SUITE}"
    try:
        done = subprocess.run(
            ["/usr/bin/unshare", "-m", "sh", "-ec", f"{uncover if hidden else ''}\n{become} {command}"],
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        # This test itself, and what needs a control group of a user's own.
        assert re.search(r"[1-9] skipped", done.stdout)
    finally:
        shutil.rmtree(scratch)


async def _start_and_stop(given: DriverSettings) -> None:
    async with running(BwrapDriver, given):
        await asyncio.sleep(0)


def _is_loop(path: Path) -> bool:
    try:
        return b"# the loop box" in path.read_bytes()
    except OSError:
        return False
