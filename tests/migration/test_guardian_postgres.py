"""The Guardian's tables on PostgreSQL: the same as SQLite's, made once, and refused when they are a later program's."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from tests.contract.conftest import psycopg_url

from turnkeeper.guardian.ports import StoreFailed
from turnkeeper.store.chain import migrate_file
from turnkeeper.store.chain_postgres_link import SCHEMA
from turnkeeper.store.chain_postgres_schema import POSTGRES_SCHEMA_VERSION
from turnkeeper.store.chain_schema import SchemaTooNew
from turnkeeper.store.guardian_database import guardian_database

pytestmark = pytest.mark.postgres

Columns = set[tuple[str, str]]


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    """An empty database."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE guardian_migration")
        yield psycopg_url(postgres_server, "guardian_migration").replace("+psycopg", "", 1)
        connection.execute("DROP DATABASE guardian_migration WITH (FORCE)")


def columns_of_file(path: Path) -> Columns:
    """Every column of guardian.db, by table."""
    query = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute(query).fetchall())


def test_both_databases_have_the_same_tables_and_columns(tmp_path: Path, url: str) -> None:
    migrate_file(tmp_path / "guardian.db")
    guardian_database(url).migrate()
    query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
    with psycopg.connect(url) as connection:
        columns: Columns = {(str(row[0]), str(row[1])) for row in connection.execute(query, (SCHEMA,)).fetchall()}
    assert columns - {("schema_version", "version")} == columns_of_file(tmp_path / "guardian.db")


def test_two_who_migrate_at_once_agree(url: str) -> None:
    versions: list[int] = []
    threads = [Thread(target=lambda: versions.append(guardian_database(url).migrate())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert versions == [POSTGRES_SCHEMA_VERSION] * 3
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT version FROM {SCHEMA}.schema_version".encode()).fetchall()
    assert found == [(version,) for version in range(1, POSTGRES_SCHEMA_VERSION + 1)]


def test_tables_of_a_later_program_are_refused_by_everybody(url: str) -> None:
    database = guardian_database(url)
    database.migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        later = (POSTGRES_SCHEMA_VERSION + 1,)
        connection.execute(f"INSERT INTO {SCHEMA}.schema_version VALUES (%s)".encode(), later)
    for use in (database.migrate, database.reader, database.store().open, lambda: database.desk().keys(limit=1)):
        with pytest.raises(SchemaTooNew):
            use()


def test_a_database_of_another_encoding_is_refused(postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE guardian_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(StoreFailed, match="UTF8"):
                guardian_database(psycopg_url(postgres_server, "guardian_latin")).store().open()
        finally:
            connection.execute("DROP DATABASE guardian_latin WITH (FORCE)")
