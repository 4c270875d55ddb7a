"""Where the bytes of files are kept: in the data dir beside SQLite, in the database where that is PostgreSQL.

Processes that share PostgreSQL need share no folder; processes on SQLite share the data dir anyhow.
"""

from sqlalchemy import make_url

from turnkeeper.store.content_folder import FolderContents
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.contents import ContentStore
from turnkeeper.wiring.base import Base


def open_contents(base: Base, store: SqlTurnStore) -> ContentStore:
    """The contents that belong to the store."""
    url = base.settings.store.url
    if url is None or make_url(url.get_secret_value()).drivername == "sqlite":
        return FolderContents(base.folder.contents, base.clock)
    return store.contents()
