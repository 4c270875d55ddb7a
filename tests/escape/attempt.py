"""One way to leave a box, as data: what is tried, what must come of it, and what stops it."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from turnkeeper.sandbox.boxes import BoxLimits

Place: TypeAlias = Literal["loop", "tool"]
Need: TypeAlias = Literal["", "x86_64", "memory group"]

BOTH: tuple[Place, ...] = ("loop", "tool")

NOT_MOUNTED = "not mounted"
READ_ONLY = "read-only mounts"
NO_NETWORK = "network namespace without a way out"
PID_NAMESPACE = "pid namespace"
FILTER = "system-call filter"
NO_CAPABILITIES = "no capability, no way to gain one"
OTHER_USER = "user id of its own"
LIMIT = "resource limit"
GROUP = "control group"
SIZED = "tmpfs of a size"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A few lines of Python that leave what came of it in `result`: `worked`, the name of an error, or a word.

    `outcomes` are those that count as expected; without `stopped` the attempt is one that boxes let happen, and the
    page says so. `works_outside`: without a box it does what it tries, which proves that the attempt is one.
    `limits`: it gets a box of its own, with these.
    """

    tries: str
    code: str
    outcomes: tuple[str, ...]
    means: str
    places: tuple[Place, ...] = BOTH
    works_outside: bool = False
    stopped: bool = True
    needs: Need = ""
    limits: BoxLimits | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Attempts of one kind, in the order of the page."""

    title: str
    attempts: tuple[Attempt, ...] = field(default=())


# Inside the box, before every attempt. `attempt` runs a function and gives the name of the error it ended with.
PRELUDE = """
import ctypes, errno, glob, json, mmap, os, resource, signal, socket, stat, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
X86 = {"open_tree": 428, "move_mount": 429, "fsopen": 430, "mount_setattr": 442, "open_tree_attr": 467, "kcmp": 312,
    "pidfd_getfd": 438, "process_madvise": 440, "keyctl": 250, "add_key": 248, "request_key": 249, "bpf": 321,
    "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425, "clone3": 435, "init_module": 175,
    "finit_module": 313, "kexec_load": 246, "open_by_handle_at": 304, "fanotify_init": 300, "quotactl": 179,
    "process_vm_readv": 310, "process_vm_writev": 311, "clone": 56, "pivot_root": 155, "iopl": 172, "ioperm": 173,
    "move_pages": 279, "migrate_pages": 256, "syslog": 103, "personality": 135}
ARM = {"open_tree": 428, "move_mount": 429, "fsopen": 430, "mount_setattr": 442, "open_tree_attr": 467, "kcmp": 272,
    "pidfd_getfd": 438, "process_madvise": 440, "keyctl": 219, "add_key": 217, "request_key": 218, "bpf": 280,
    "perf_event_open": 241, "userfaultfd": 282, "io_uring_setup": 425, "clone3": 435, "init_module": 105,
    "finit_module": 273, "kexec_load": 104, "open_by_handle_at": 265, "fanotify_init": 262, "quotactl": 60,
    "process_vm_readv": 270, "process_vm_writev": 271, "clone": 220, "pivot_root": 41,
    "move_pages": 239, "migrate_pages": 238, "syslog": 116, "personality": 92}
NUMBERS = X86 if os.uname().machine == "x86_64" else ARM
def attempt(work):
    try:
        work()
    except MemoryError:
        return "ENOMEM"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "worked"
def call(function, *arguments):
    def work():
        if function(*arguments) == -1:
            raise OSError(ctypes.get_errno(), "")
    return attempt(work)
def system_call(name, *arguments):
    return call(libc.syscall, ctypes.c_long(NUMBERS[name]), *(ctypes.c_long(one) for one in arguments))
def agent():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        words = open(path, "rb").read().split(bytes(1))
        if words[0] != b"bwrap" and any(b"toolbox_agent" in word for word in words):
            return int(path.split("/")[2])
def read(path):
    return attempt(lambda: open(path, "rb").read(64))
def write(path):
    return attempt(lambda: open(path, "r+b").close())
def connect(family, address):
    def work():
        with socket.socket(family) as client:
            client.settimeout(5)
            client.connect(address)
    return attempt(work)
"""

# Runs each attempt in a process of its own, so that one that dies says so; ends with a line of JSON.
RUNNER = """
def run(code):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(25)
        names = dict(globals())
        try:
            exec(code, names)
            told = str(names["result"])
        except BaseException as error:
            told = "broken: " + repr(error)
        os.write(writer, told.encode()[:200])
        os._exit(0)
    os.close(writer)
    told = b""
    while chunk := os.read(reader, 200):
        told += chunk
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else told.decode()
results = [run(code) for code in codes]
"""
