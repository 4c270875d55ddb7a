"""How long a process that stands still can keep others from a PostgreSQL that they share, and how it goes on."""

import asyncio

import pytest
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import DBAPIError

from turnkeeper.store.dialects.postgres import open_postgres
from turnkeeper.store.engine import Database

pytestmark = pytest.mark.postgres

ANY_LOCK = 4711


def lock(connection: Connection) -> None:
    """Takes a lock that is held until the end of the transaction."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ANY_LOCK})


def test_what_a_stopped_process_has_locked_is_free_before_anybody_gives_up_waiting(postgres_url: str) -> None:
    stopped, lives = open_postgres(make_url(postgres_url)), open_postgres(make_url(postgres_url))
    with stopped.writer.connect() as standing_still:
        lock(standing_still)
        with lives.writer.begin() as other:
            lock(other)
        with pytest.raises(DBAPIError):
            standing_still.execute(text("SELECT 1"))
        standing_still.invalidate()
    stopped.dispose()
    lives.dispose()


@pytest.mark.parametrize("kind", ["write", "read"])
def test_a_process_that_stood_still_in_a_transaction_runs_it_again(postgres_url: str, kind: str) -> None:
    """The server has undone it; whoever asked for it hears nothing of that."""
    tries: list[int] = []

    def body(connection: Connection) -> int:
        tries.append(1)
        if len(tries) == 1:
            # What the server says of it, as far as it is heard before the connection is gone.
            connection.exec_driver_sql("DO $$ BEGIN RAISE 'too long' USING ERRCODE = '25P03'; END $$")
        return connection.execute(text("SELECT 1")).scalar_one()

    async def main() -> int:
        database = Database(open_postgres(make_url(postgres_url)))
        try:
            return await (database.write(body, lambda: None) if kind == "write" else database.read(body))
        finally:
            await database.close()

    assert asyncio.run(main()) == 1
    assert len(tries) == 2
