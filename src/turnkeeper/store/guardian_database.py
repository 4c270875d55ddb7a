"""The database that a Guardian keeps its record in, chosen by URL.

Answers for the choice alone: what is behind it is SQLite's or PostgreSQL's. The driver for PostgreSQL is an extra, so
its modules are loaded by whoever names such a database.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from turnkeeper.guardian.ports import GuardianStore
from turnkeeper.store.chain import SqliteGuardianStore, migrate_file
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.chain_reads import ChainReads
from turnkeeper.store.guardian_desk import GuardianDesk, SqliteGuardianDesk
from turnkeeper.store.guardian_refusals import GuardianUrlInvalid
from turnkeeper.store.retention import SqliteRetention, SqlRetention

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgresql+psycopg://")


class GuardianDatabase(Protocol):
    """One Guardian's record: what writes it, what reads it, what answers approvals in it."""

    def store(self) -> GuardianStore:
        """For the one Guardian that works on it; not open yet."""
        ...

    def reader(self) -> ChainReads:
        """For reads beside it; open. Raises `StoreFailed`, `SchemaTooNew`."""
        ...

    def desk(self) -> GuardianDesk:
        """For people beside it."""
        ...

    def retention(self) -> SqlRetention:
        """For what is erased and archived beside it."""
        ...

    def is_there(self) -> bool:
        """Whether a Guardian's record was ever begun here. Raises `StoreFailed` where that cannot be known."""
        ...

    def migrate(self) -> int:
        """Makes the tables, or brings them up to date; their version. Raises `StoreFailed`, `SchemaTooNew`."""
        ...


class SqliteGuardianDatabase:
    """A file (`GuardianDatabase`)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def store(self) -> GuardianStore:
        """For the one Guardian that works on it; not open yet."""
        return SqliteGuardianStore(self._path)

    def reader(self) -> ChainReads:
        """For reads beside it; open. Raises `StoreFailed`, `SchemaTooNew`."""
        return SqliteChainReader(self._path)

    def desk(self) -> GuardianDesk:
        """For people beside it."""
        return SqliteGuardianDesk(self._path)

    def retention(self) -> SqlRetention:
        """For what is erased and archived beside it."""
        return SqliteRetention(self._path)

    def is_there(self) -> bool:
        """Whether there is such a file."""
        return self._path.is_file()

    def migrate(self) -> int:
        """Makes the file, or brings it up to date; its version. Raises `StoreFailed`, `SchemaTooNew`."""
        return migrate_file(self._path)


def guardian_database(url: str) -> GuardianDatabase:
    """The database behind `sqlite:////path` or `postgresql://…`. Raises `GuardianUrlInvalid`."""
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        return SqliteGuardianDatabase(Path(url.removeprefix(_SQLITE)))
    if url.startswith(_POSTGRES):
        return _postgres(url)
    raise GuardianUrlInvalid(
        "the URL of the Guardian's store names no database that is known here",
        hint="Use sqlite:////path/to/file or postgresql://user@host/name.",
    )


def _postgres(url: str) -> GuardianDatabase:
    try:
        module: Any = import_module("turnkeeper.store.chain_postgres_database")
    except ModuleNotFoundError as error:
        raise GuardianUrlInvalid(
            "the driver for PostgreSQL is not installed", hint="pip install 'turnkeeper[postgres]'"
        ) from error
    return cast("GuardianDatabase", module.PostgresGuardianDatabase(url))
