"""Migrations lead to exactly the tables the program knows, on both databases."""

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from tests.contract.conftest import psycopg_url
from tests.contract.store_rig import open_store

from turnkeeper.store.admin import HEAD_REVISION, SchemaOutdated, alembic_config, migrate, revision_of
from turnkeeper.store.engine import StoreUrlInvalid, open_engines
from turnkeeper.store.tables import metadata
from turnkeeper.turns.ports import StoreUnavailable

NewDatabase = Callable[[], str]

POSTGRES_SHAPE = """
SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || COALESCE(column_default, '')
  FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'
UNION ALL
SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'
UNION ALL
SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewDatabase]:
    """Makes empty databases of one kind."""
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path}/{uuid4().hex}.db"
        return
    server = str(request.getfixturevalue("postgres_server"))
    with psycopg.connect(server, autocommit=True) as connection:
        made: list[str] = []

        def make() -> str:
            made.append(f"m{uuid4().hex}")
            connection.execute(f"CREATE DATABASE {made[-1]}".encode())
            return psycopg_url(server, made[-1])

        yield make
        for name in made:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def shape(url: str) -> set[str]:
    """Everything the database says about its tables, line by line."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                return set(connection.execute(text(POSTGRES_SHAPE)).scalars())
            created = connection.execute(text("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'alembic%'"))
            # A column that was added later stands on the line of the one before it, and a table made anew is quoted.
            lines = [
                line
                for (sql,) in created
                for line in re.split(r"\n|, (?=\w+ (?:TEXT|INTEGER|BIGINT|BOOLEAN))", sql or "")
            ]
            return {line.strip(" ,\t").replace('"', "") for line in lines}
    finally:
        engine.dispose()


def on(url: str, work: Callable[[Connection], object]) -> None:
    engine: Engine = create_engine(url)
    try:
        with engine.begin() as connection:
            work(connection)
    finally:
        engine.dispose()


def opened(url: str) -> None:
    async def scenario() -> None:
        await (await open_store(url)).store.close()

    asyncio.run(scenario())


def test_migrating_an_empty_database_makes_the_tables_of_the_program(new_database: NewDatabase) -> None:
    migrated, made = new_database(), new_database()

    assert migrate(migrated) == HEAD_REVISION
    on(made, metadata.create_all)

    assert shape(migrated) == shape(made)
    assert len(shape(made)) > 100


def test_nothing_is_left_for_a_migration_to_do(new_database: NewDatabase) -> None:
    url = new_database()
    migrate(url)

    def compare(connection: Connection) -> None:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []

    on(url, compare)


def test_migrating_twice_changes_nothing(new_database: NewDatabase) -> None:
    url = new_database()
    migrate(url)
    before = shape(url)

    assert migrate(url) == HEAD_REVISION
    assert shape(url) == before


def test_opening_an_empty_store_makes_its_tables(new_database: NewDatabase) -> None:
    url = new_database()

    opened(url)

    assert any("turns" in line for line in shape(url))
    opened(url)


def test_tables_of_a_newer_program_are_left_alone(new_database: NewDatabase) -> None:
    url = new_database()
    migrate(url)
    on(url, lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))

    with pytest.raises(SchemaOutdated, match="9999") as refused:
        opened(url)
    with pytest.raises(SchemaOutdated):
        migrate(url)

    assert refused.value.hint == "Start the version of turnkeeper that made them, or a newer one."


@pytest.mark.postgres
def test_older_tables_on_postgresql_wait_for_the_operator(postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE older")
    url = psycopg_url(postgres_server, "older")
    on(url, lambda connection: connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)")))
    on(url, lambda connection: connection.execute(text("INSERT INTO alembic_version VALUES ('0000')")))

    with pytest.raises(SchemaOutdated) as refused:
        opened(url)

    assert refused.value.hint == "Run `turnkeeper migrate`."


def test_the_program_knows_its_newest_migration() -> None:
    scripts = ScriptDirectory.from_config(alembic_config())

    assert scripts.get_heads() == [HEAD_REVISION]
    for script in scripts.walk_revisions():
        assert Path(script.path).name.startswith((f"before_{script.revision}_", f"after_{script.revision}_"))


def test_a_migration_that_fails_leaves_nothing_behind(sqlite_url: str) -> None:
    on(sqlite_url, lambda connection: connection.execute(text("CREATE TABLE steps (id TEXT)")))

    with pytest.raises(StoreUnavailable):
        opened(sqlite_url)

    def look(connection: Connection) -> None:
        assert revision_of(connection) is None
        assert inspect(connection).get_table_names() == ["steps"]

    on(sqlite_url, look)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "no url", ""])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(StoreUrlInvalid):
        open_engines(url)


@pytest.mark.postgres
def test_a_server_that_is_not_there_is_said_to_be_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="OperationalError"):
        opened("postgresql://nobody@127.0.0.1:1/none")
