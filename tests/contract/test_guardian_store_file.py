"""What the Guardian's store promises of its file on SQLite, beyond the contract of every store."""

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.test_guardian_store import hello

from turnkeeper.guardian.ports import GuardianStore, StoreFailed
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.chain_schema import SCHEMA_VERSION, SchemaTooNew


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GuardianStore]:
    """An open store."""
    opened = SqliteGuardianStore(tmp_path / "guardian.db")
    opened.open()
    yield opened
    opened.close()


def test_a_reader_can_change_nothing(tmp_path: Path, store: GuardianStore) -> None:
    store.commit([hello()])
    connection = sqlite3.connect(f"file:{tmp_path}/guardian.db?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError):
        connection.execute("DELETE FROM steps")
    connection.close()


def test_the_file_is_its_owners_alone(tmp_path: Path, store: GuardianStore) -> None:
    store.commit([hello()])
    for name in tmp_path.iterdir():
        assert stat.S_IMODE(name.stat().st_mode) == 0o600, name


def test_a_file_of_a_later_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "guardian.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(SchemaTooNew):
        SqliteGuardianStore(path).open()
    with pytest.raises(SchemaTooNew):
        SqliteChainReader(path)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to have a header" * 20, b"SQLite"])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "guardian.db"
    path.write_bytes(content)
    with pytest.raises(StoreFailed):
        SqliteGuardianStore(path).open()
    with pytest.raises(StoreFailed):
        SqliteChainReader(path)


def test_an_empty_file_is_no_store_to_a_reader(tmp_path: Path) -> None:
    (tmp_path / "guardian.db").touch()
    with pytest.raises(StoreFailed):
        SqliteChainReader(tmp_path / "guardian.db")
    with pytest.raises(StoreFailed):
        SqliteChainReader(tmp_path / "absent.db")


def test_a_folder_that_is_missing_is_a_failure_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="nowhere"):
        SqliteGuardianStore(tmp_path / "nowhere" / "guardian.db").open()
