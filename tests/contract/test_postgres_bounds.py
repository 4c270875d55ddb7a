"""How long a process that stands still can keep others from a PostgreSQL that they share."""

import pytest
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import DBAPIError

from turnkeeper.store.dialects.postgres import open_postgres

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
