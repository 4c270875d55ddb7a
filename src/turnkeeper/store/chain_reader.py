"""guardian.db read beside a running Guardian, for export, verify and the pages that list sessions.

The file is opened read-only, so nothing here can change the chain.
"""

import sqlite3
from pathlib import Path
from typing import Any

from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.ports import (
    StoreFailed,
)
from turnkeeper.store.chain import BUSY_TIMEOUT_MS
from turnkeeper.store.chain_reads import ChainReads
from turnkeeper.store.chain_schema import SCHEMA_VERSION, check_version, schema_version


class SqliteChainReader(ChainReads):
    """The readable side of guardian.db (`ChainReader`); a context manager."""

    def __init__(self, path: Path) -> None:
        """Opens the file. Raises `StoreFailed`, `SchemaTooNew`."""
        self._connection = _open(path)

    def close(self) -> None:
        """Closes the file; idempotent."""
        self._connection.close()

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreFailed(f"the Guardian's store could not be read: {error}") from error


def _open(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None
        )
    except sqlite3.Error as error:
        raise StoreFailed(f"the Guardian's store {path} cannot be opened: {error}") from error
    try:
        check_version(connection)
        found = schema_version(connection)
    except (sqlite3.Error, TurnkeeperError) as error:
        connection.close()
        if isinstance(error, TurnkeeperError):
            raise
        raise StoreFailed(f"{path} is no Guardian's store: {error}") from error
    if found < SCHEMA_VERSION:
        connection.close()
        raise StoreFailed(
            f"the Guardian's store {path} has the older schema version {found}",
            hint="Start the Guardian once, which migrates it.",
        )
    return connection
