"""The tables' versions: what a database has, what this program needs, and how to get there.

SQLite is brought up to date when it is opened; PostgreSQL when an operator says so, unless it is still empty.
"""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect, select, table
from sqlalchemy import column as sql_column

from turnkeeper.errors import TurnkeeperError
from turnkeeper.store.dialects.engines import Engines
from turnkeeper.store.engine import open_engines

HEAD_REVISION: Final = "0022"
"""The newest migration. A test compares it with the scripts."""

_VERSIONS: Final = table("alembic_version", sql_column("version_num"))


class SchemaOutdated(TurnkeeperError):
    """The database was made by another version of this program."""

    code = "schema_outdated"


def migrate(url: str) -> str:
    """Brings the tables behind `url` to this program's version and returns it.

    Raises `SchemaOutdated` for tables of a newer program, `StoreUrlInvalid`.
    """
    engines = open_engines(url)
    try:
        with engines.migrator.begin() as connection:
            _upgrade(engines, connection)
    finally:
        engines.dispose()
    return HEAD_REVISION


def prepare(engines: Engines) -> None:
    """Makes sure that the tables are this program's. Raises `SchemaOutdated` with what to do."""
    with engines.reader.begin() as connection:
        found = revision_of(connection)
    if found == HEAD_REVISION:
        return
    if found is not None and not engines.migrates_at_open:
        raise _outdated(found)
    with engines.migrator.begin() as connection:
        _upgrade(engines, connection)


def check(engines: Engines) -> None:
    """Makes sure that the tables are this program's, and changes nothing. Raises `SchemaOutdated`."""
    with engines.reader.begin() as connection:
        found = revision_of(connection)
    if found != HEAD_REVISION:
        raise _outdated(found or "none")


def revision_of(connection: Connection) -> str | None:
    """The version of the tables, `None` where there are none."""
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    return connection.execute(select(_VERSIONS.c.version_num)).scalar_one_or_none()


def alembic_config(connection: Connection | None = None) -> Config:
    """Where the migrations are, and the connection they run on."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _upgrade(engines: Engines, connection: Connection) -> None:
    engines.lock_schema(connection)
    found = revision_of(connection)
    if found == HEAD_REVISION:
        return
    if found is not None and found > HEAD_REVISION:
        raise _outdated(found)
    command.upgrade(alembic_config(connection), "head")


def _outdated(found: str) -> SchemaOutdated:
    hint = (
        "Run `turnkeeper migrate`."
        if found < HEAD_REVISION or found == "none"
        else "Start the version of turnkeeper that made them, or a newer one."
    )
    return SchemaOutdated(f"the store's tables are version {found}, this program needs {HEAD_REVISION}", hint=hint)
