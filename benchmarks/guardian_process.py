"""The processes that the Guardian's benchmark measures: `turnkeeper guardian` as an operator starts it, and an echo.

Each listens on a port of its own on 127.0.0.1 and is ended with the block.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECRET = b"b" * 32
KEY_ID = "default"
PATIENCE_S = 30
_ADDRESS = re.compile(r"http://127\.0\.0\.1:([0-9]+)")


@dataclass(frozen=True)
class Served:
    """A process that listens."""

    child: subprocess.Popen[str]
    port: int

    def cpu_seconds(self) -> float:
        """Processor time of its threads so far; not that of processes which it started."""
        tasks = Path(f"/proc/{self.child.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def guardian(
    folder: Path, *, policy: Mapping[str, bytes] | None = None, database_url: str | None = None
) -> Generator[Served, None, None]:
    """A Guardian over a new folder, with the policy in these files or the shipped default."""
    folder.mkdir()
    secret = folder / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    arguments = ["guardian", "--port", "0", "--data-dir", str(folder / "data"), "--secret-file", str(secret)]
    if policy is not None:
        arguments += ["--policy", str(_written(folder / "policy", policy))]
    environment = {**os.environ, "TURNKEEPER_LOG__LEVEL": "warning"}
    if database_url is not None:
        environment["TURNKEEPER_GUARDIAN__DATABASE_URL"] = database_url
    with _process([str(Path(sys.executable).with_name("turnkeeper")), *arguments], environment) as served:
        yield served


@contextmanager
def echo() -> Generator[Served, None, None]:
    """An application that reads a body and answers a short text, on the same server and loop."""
    with _process([sys.executable, "-m", "benchmarks.echo"], dict(os.environ)) as served:
        yield served


@contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str]) -> Generator[Served, None, None]:
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield Served(child, _port(child))
    finally:
        child.terminate()
        child.wait(timeout=30)
        if child.stdout is not None:
            child.stdout.close()


def _port(child: subprocess.Popen[str]) -> int:
    for line in child.stdout or ():
        if (found := _ADDRESS.search(line)) is not None:
            _await(int(found[1]))
            return int(found[1])
    raise RuntimeError("the process ended before it listened")


def _await(port: int) -> None:
    """The address is printed once it is bound, which is a moment before it is listened on."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            raise RuntimeError("the process does not listen")
        time.sleep(0.01)


def _written(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder
