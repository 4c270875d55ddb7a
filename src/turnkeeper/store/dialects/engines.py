"""What a dialect hands to the store: connections to write with, connections to read with, and how many of each."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError


@dataclass(frozen=True, slots=True)
class Engines:
    """A database that was opened.

    `is_transient` says whether a transaction that failed so may simply be run again. `lock_schema` makes sure that one
    process at a time changes the tables; it is called in the transaction that does. `migrator` is for that alone.
    `lock_name` takes a name until the end of the transaction, waiting at most so many milliseconds; whether it could.
    `read_clock` is the database's own time, which is one for all processes that use it.
    """

    writer: Engine
    reader: Engine
    migrator: Engine
    writer_threads: int
    reader_threads: int
    is_transient: Callable[[DBAPIError], bool]
    lock_schema: Callable[[Connection], None]
    lock_name: Callable[[Connection, str, int], bool]
    read_clock: Callable[[Connection], datetime]
    migrates_at_open: bool

    def dispose(self) -> None:
        """Closes every connection."""
        self.reader.dispose()
        self.writer.dispose()
        self.migrator.dispose()
