"""A Guardian's record on PostgreSQL, as one thing (`guardian_database.GuardianDatabase`)."""

import psycopg

from turnkeeper.store.chain_postgres import PostgresGuardianStore
from turnkeeper.store.chain_postgres_desk import PostgresChainReader, PostgresGuardianDesk
from turnkeeper.store.chain_postgres_link import connect, failure, libpq_url
from turnkeeper.store.chain_postgres_retention import PostgresRetention
from turnkeeper.store.chain_postgres_schema import POSTGRES_SCHEMA_VERSION, migrate_postgres, postgres_version


class PostgresGuardianDatabase:
    """A database of a server. Raises `GuardianUrlInvalid` for a URL that libpq cannot read."""

    def __init__(self, url: str) -> None:
        self._url = libpq_url(url)

    def store(self) -> PostgresGuardianStore:
        """For the one Guardian that works on it; not open yet."""
        return PostgresGuardianStore(self._url)

    def reader(self) -> PostgresChainReader:
        """For reads beside it; open. Raises `StoreFailed`, `SchemaTooNew`."""
        return PostgresChainReader(self._url)

    def desk(self) -> PostgresGuardianDesk:
        """For people beside it."""
        return PostgresGuardianDesk(self._url)

    def retention(self) -> PostgresRetention:
        """For what is erased and archived beside it."""
        return PostgresRetention(self._url)

    def is_there(self) -> bool:
        """Whether the database has a Guardian's tables. Raises `StoreFailed`."""
        try:
            with connect(self._url, purpose="guardian desk", read_only=True) as connection:
                return postgres_version(connection) > 0
        except psycopg.Error as error:
            raise failure("the Guardian's store cannot be reached", error) from error

    def migrate(self) -> int:
        """Makes the tables, or brings them up to date; their version. Raises `StoreFailed`, `SchemaTooNew`."""
        try:
            with connect(self._url, purpose="migration") as connection:
                migrate_postgres(connection)
        except psycopg.Error as error:
            raise failure("the Guardian's store could not be migrated", error) from error
        return POSTGRES_SCHEMA_VERSION
