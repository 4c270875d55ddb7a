"""Hosts on one machine: each a network namespace with an address, joined by a bridge whose cables can be pulled.

The driver first puts itself into namespaces of its own (network, mounts, processes), so that nothing it makes is seen
outside, and everything vanishes with it. Where the machine does not allow that, all parts share loopback.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INSIDE: Final = "TURNKEEPER_CHAOS_INSIDE"
SUBNET: Final = "10.77.0"
UNSHARE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
# A shell as the first process, because it reaps whatever loses its parent; it must not replace itself.
INIT: Final = ("sh", "-c", '"$@"; exit $?', "init")
READY_TIMEOUT_S: Final = 10


def isolation_refused() -> str | None:
    """Why this machine gives no namespaces of our own; None where it does."""
    if os.geteuid() != 0:
        return "network namespaces and mounts need root"
    tried = "ip link add hub type bridge && mount -t tmpfs -o size=1m none /mnt && unshare --time true"
    try:
        done = subprocess.run(
            [*UNSHARE, "sh", "-c", tried], capture_output=True, text=True, timeout=READY_TIMEOUT_S, check=False
        )
    except OSError as error:
        return f"{error.filename} cannot be run: {error.strerror}"
    return None if done.returncode == 0 else f"no namespaces: {done.stderr.strip()}"


def enter(arguments: Sequence[str]) -> int:
    """The driver again, inside of namespaces of its own; its exit code."""
    command = [*UNSHARE, *INIT, sys.executable, "-m", "tests.acceptance.chaos", *arguments]
    return subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode


def is_inside() -> bool:
    """Whether these are namespaces of our own."""
    return INSIDE in os.environ


@dataclass(frozen=True, slots=True)
class Host:
    """Where a part runs. Without a `namespace` it is the machine that the driver runs on."""

    name: str
    address: str
    namespace: Path | None = None

    def command(self, words: Sequence[str]) -> list[str]:
        """The words that run a command there."""
        if self.namespace is None:
            return list(words)
        return ["nsenter", f"--net={self.namespace}/net", f"--time={self.namespace}/time", "--", *words]


class Network:
    """A bridge at `.1`, which is the app's own host, and the hosts on it."""

    def __init__(self, *, isolated: bool) -> None:
        self.isolated = isolated
        self._holders: list[subprocess.Popen[bytes]] = []
        self.app = Host("app", f"{SUBNET}.1" if isolated else "127.0.0.1")
        if isolated:
            _ip("link", "set", "lo", "up")
            _ip("link", "add", "hub", "type", "bridge")
            _ip("address", "add", f"{self.app.address}/24", "dev", "hub")
            _ip("link", "set", "hub", "up")

    @property
    def pids(self) -> set[int]:
        """The processes that keep the hosts there."""
        return {child for holder in self._holders for child in (holder.pid, *_children(holder.pid))}

    def host(self, name: str, number: int, *, uptime_s: int = 0) -> Host:
        """A host whose monotonic clock is ahead of ours by `uptime_s`, as that of a host that booted earlier is."""
        if not self.isolated:
            return Host(name, "127.0.0.1")
        ahead = ("--time", "--monotonic", str(uptime_s), "--boottime", str(uptime_s))
        command = ["unshare", "--net", *ahead, "--fork", "--kill-child", "sleep", "infinity"]
        holder = subprocess.Popen(command)
        self._holders.append(holder)
        namespace = Path(f"/proc/{_only_child(holder.pid)}/ns")
        host = Host(name, f"{SUBNET}.{number}", namespace)
        inside = f"--net={namespace}/net"
        _ip("link", "add", _cable(host), "type", "veth", "peer", "name", "eth0", "netns", namespace.parent.name)
        _ip("link", "set", _cable(host), "master", "hub", "up")
        for words in (("link", "set", "lo", "up"), ("address", "add", f"{host.address}/24", "dev", "eth0")):
            _run("nsenter", inside, "--", "ip", *words)
        _run("nsenter", inside, "--", "ip", "link", "set", "eth0", "up")
        return host

    def cut(self, host: Host) -> None:
        """Pulls the host's cable: what is on the way is lost, and nobody is told."""
        _ip("link", "set", _cable(host), "down")

    def mend(self, host: Host) -> None:
        """Puts it back."""
        _ip("link", "set", _cable(host), "up")

    def close(self) -> None:
        """Lets the hosts go."""
        for holder in self._holders:
            holder.kill()
            holder.wait(timeout=READY_TIMEOUT_S)


def _cable(host: Host) -> str:
    return f"to-{host.name}"


def _only_child(pid: int) -> int:
    """The child of `unshare`, which is inside once it is there."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not (found := _children(pid)):
        assert time.monotonic() < deadline, "unshare has started nothing"
        time.sleep(0.01)
    return found[0]


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=READY_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
