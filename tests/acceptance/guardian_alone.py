"""A real `turnkeeper guardian` process for the acceptance suite: started, stopped, frozen, killed with -9."""

import json
import os
import secrets
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

import httpx
from tests.acceptance.server import READY_TIMEOUT_S, TURNKEEPER, Json, clean_environment, free_port, run_command

from turnkeeper.acs.keys import Keyring, read_secret
from turnkeeper.guardian.export import export_lines
from turnkeeper.store.chain_reader import SqliteChainReader

ALLOW_ALL = "version: 1\nname: allow-all\ndefault: allow\nrules: []\n"


class GuardianAlone:
    """One Guardian on a data dir, at one address. `start` after `kill` is the crash and the restart."""

    def __init__(
        self, folder: Path, *, policy: str = ALLOW_ALL, settings: str = "", data_dir: Path | None = None
    ) -> None:
        self.home, self.data_dir = folder, data_dir or folder / "data"
        self.policy, self.secret, self.config = folder / "policy.yaml", folder / "client.key", folder / "guardian.toml"
        self.policy.write_text(policy)
        self.secret.write_text(secrets.token_hex(32) + "\n")
        self.config.write_text(settings)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/acs"
        self.log_file = folder / "guardian.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def keyring(self) -> Keyring:
        """What clients sign with."""
        return Keyring({"default": read_secret(self.secret.read_bytes())})

    @property
    def pid(self) -> int:
        """Of the running Guardian."""
        assert self._process is not None
        return self._process.pid

    @property
    def database(self) -> Path:
        """Its store."""
        return self.data_dir / "guardian" / "guardian.db"

    @property
    def options(self) -> list[str]:
        """What the command is told in every case."""
        named = {
            "--data-dir": self.data_dir,
            "--policy": self.policy,
            "--secret-file": self.secret,
            "--config": self.config,
        }
        return [str(word) for pair in named.items() for word in pair]

    def spawn(self) -> None:
        """Starts it and does not wait."""
        command = [TURNKEEPER, "guardian", *self.options, "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=clean_environment(self.home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start(self) -> None:
        """Starts it and waits until it answers."""
        self.spawn()
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._answers():
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            httpx.get(self.url, timeout=1, trust_env=False)
        except httpx.TransportError:
            return False
        return True

    def kill(self) -> None:
        """Ends it as a power failure would."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def terminate(self) -> int:
        """Ends it as an operator does; its exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """The exit code, once there is one."""
        assert self._process is not None
        return self._process.wait(timeout=READY_TIMEOUT_S)

    def log(self) -> str:
        """The end of its log."""
        return self.log_file.read_text()[-4_000:]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command on the data dir."""
        return run_command(*words, "--data-dir", str(self.data_dir), home=self.home)

    def verified(self) -> Json:
        """What `turnkeeper verify` says."""
        said = self.run("verify", "--json", "--secret-file", str(self.secret))
        assert said.stdout, said.stderr
        return json.loads(said.stdout)

    def exported(self, session_id: str) -> list[Json]:
        """A session's lines, as `turnkeeper export` writes them; a process for each session would take a second."""
        with SqliteChainReader(self.database) as reader:
            return [json.loads(line) for line in export_lines(reader, session_id)]
