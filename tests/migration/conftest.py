"""The databases of the contract suite, for migrations."""

from tests.contract.conftest import postgres_server, psycopg_url, sqlite_url

__all__ = ["postgres_server", "psycopg_url", "sqlite_url"]
