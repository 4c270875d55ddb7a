"""A real `turnkeeper serve` process for the acceptance suite: started, talked to over HTTP, killed with -9.

Nothing here reaches into the program: what a user can type and see is all that is used.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import httpx

READY_TIMEOUT_S = 60.0
GONE_TIMEOUT_S = 20.0
TURNKEEPER = str(Path(sys.executable).parent / "turnkeeper")

NO_WARM_BOXES = "[sandbox]\nwarm = 0\n"
"""Settings for a server that runs no turns, or few: a box made ready costs two seconds of processor."""

Json = dict[str, Any]


def free_port() -> int:
    """A port nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a new user's shell has: a path, an empty home, a language."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **(extra or {})}


GROUPS = frozenset(
    [
        "keys",
        "config",
        "agents",
        "sessions",
        "turns",
        "events",
        "files",
        "artifacts",
        "webhooks",
        "secrets",
        "skills",
        "budgets",
    ]
)
"""Commands that have commands."""


def run_command(
    *arguments: str, home: Path, timeout_s: float = 120, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """`turnkeeper ARGUMENTS…` as its own process, which reads `given`."""
    return subprocess.run(
        [TURNKEEPER, *arguments],
        env=clean_environment(home),
        input=given,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=home,
    )


@dataclass(frozen=True)
class ProcessMark:
    """A process as itself: a pid alone may be used again."""

    pid: int
    start_ticks: str


class Server:
    """One `turnkeeper serve` on a data dir. `start` after `kill` is the crash and the restart."""

    def __init__(self, folder: Path, config: str, *, environment: Mapping[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.data_dir = folder / "data"
        self.home.mkdir(parents=True, exist_ok=True)
        self.config_file = folder / "turnkeeper.toml"
        self.config_file.write_text(config)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = folder / "serve.log"
        self._environment = clean_environment(self.home, environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._secret: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Spawns it and waits until `/readyz` answers 200."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    TURNKEEPER,
                    "serve",
                    *("--config", str(self.config_file)),
                    *("--data-dir", str(self.data_dir)),
                    *("--host", "127.0.0.1", "--port", str(self.port)),
                ],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
            )
        self._wait_ready()

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"serve ended with {self._process.returncode}:\n{self.log_tail()}")
            try:
                if httpx.get(f"{self.url}/readyz", timeout=1).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"serve was not ready in time:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The end of what the server printed."""
        return self.log_file.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """SIGKILL, as a crash would be."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=GONE_TIMEOUT_S)
        self._process = None

    def stop(self) -> int | None:
        """SIGTERM and the exit status; -9 if it does not leave."""
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(timeout=GONE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=GONE_TIMEOUT_S)
            raise AssertionError(f"serve did not stop on SIGTERM:\n{self.log_tail()}") from None
        self._process = None
        return status

    def command(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """A `turnkeeper` command on this server's data dir and settings, which reads `given`."""
        place = ("--config", str(self.config_file), "--data-dir", str(self.data_dir))
        head, tail = _split_command(arguments)
        return run_command(*head, *place, *tail, home=self.home, given=given)

    @property
    def secret(self) -> str:
        """An API key of this data dir, made once with `keys create`."""
        if self._secret is None:
            made = self.command("keys", "create", "--name", "acceptance")
            assert made.returncode == 0, made.stderr
            self._secret = made.stdout.strip()
        return self._secret

    def client(self, *, timeout_s: float = 60) -> httpx.Client:
        """An HTTP client with the key."""
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.secret}"}, timeout=timeout_s, trust_env=False
        )

    def post(self, path: str, body: Json, **headers: str) -> Json:
        """A POST that must succeed."""
        with self.client() as client:
            answer = client.post(path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        assert answer.status_code < 300, answer.text
        return cast(Json, answer.json())

    def get(self, path: str) -> Json:
        """A GET that must succeed."""
        with self.client(timeout_s=90) as client:
            answer = client.get(path)
        assert answer.status_code == 200, answer.text
        return cast(Json, answer.json())

    def ended(self, turn_id: str, *, timeout_s: float = 90) -> Json:
        """The turn once it is terminal."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            turn = self.get(f"/v1/turns/{turn_id}?wait_ms=5000")
            if turn["status"] in {"completed", "failed", "canceled"}:
                return turn
        raise AssertionError(f"{turn_id} did not end in {timeout_s} s:\n{self.log_tail()}")

    def events(self, session_id: str) -> list[Json]:
        """All stored events of a session, oldest first."""
        found: list[Json] = []
        while True:
            after = found[-1]["sequence"] if found else 0
            page = self.get(f"/v1/sessions/{session_id}/events?after={after}&limit=1000")
            found.extend(cast("list[Json]", page["data"]))
            if not page["has_more"]:
                return found

    def export(self, session_id: str) -> list[Json]:
        """The session's steps as `turnkeeper export` prints them."""
        done = self.command("export", session_id)
        assert done.returncode == 0, done.stderr
        return [cast(Json, json.loads(line)) for line in done.stdout.splitlines()]

    def descendants(self) -> set[ProcessMark]:
        """Every process below the server now, boxes included."""
        children = _children_by_parent()
        found: set[ProcessMark] = set()
        wave = [self.pid]
        while wave:
            wave = [mark.pid for parent in wave for mark in children.get(parent, ())]
            found.update(mark for parent in children for mark in children[parent] if mark.pid in wave)
        return found


def _split_command(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    words = 2 if arguments[0] in GROUPS else 1
    return arguments[:words], arguments[words:]


def _children_by_parent() -> dict[int, list[ProcessMark]]:
    found: dict[int, list[ProcessMark]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found.setdefault(int(fields[1]), []).append(ProcessMark(int(entry.name), fields[19]))
    return found


def alive(marks: set[ProcessMark]) -> set[ProcessMark]:
    """Those of the marked processes that still run (a zombie does not)."""
    left: set[ProcessMark] = set()
    for mark in marks:
        try:
            fields = Path(f"/proc/{mark.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[19] == mark.start_ticks and fields[0] not in "ZX":
            left.add(mark)
    return left


def wait_gone(marks: set[ProcessMark], *, timeout_s: float = GONE_TIMEOUT_S) -> set[ProcessMark]:
    """Those still alive when the time is up; empty is what one wants."""
    deadline = time.monotonic() + timeout_s
    while (left := alive(marks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
