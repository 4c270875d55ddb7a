"""guardian.db of an older program becomes a current one with its sessions as they were."""

import sqlite3
from pathlib import Path

from turnkeeper.guardian.memory import SessionMemory
from turnkeeper.guardian.ports import SessionProgress
from turnkeeper.guardian.windows import TurnWindow
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.chain_schema import MIGRATIONS, SCHEMA_VERSION, schema_version

HEAD = "a" * 64
TERMS = ("key", "agent", "0.1.0", 300_000, "steps/turnStart", "h", b"{}", 1)


def first_version(path: Path) -> None:
    """A file as the first program left it: one session inside a turn whose start was denied, one outside."""
    connection = sqlite3.connect(path)
    connection.executescript(f"{MIGRATIONS[0]};PRAGMA user_version = 1;")
    rows = [
        ("inside", *TERMS, HEAD, 5, 4, 2, 1, 0, "t\N{SNOWMAN}", 1, 3, 2, 1),
        ("outside", *TERMS, None, 1, 0, 0, 0, 1, None, None, None, None, None),
    ]
    connection.executemany(f"INSERT INTO sessions VALUES ({', '.join('?' * 20)})", rows)
    connection.execute(
        "INSERT INTO turns (session_id, ordinal, turn_id, denied, opened_at) VALUES ('inside', 1, 't', 1, 2)"
    )
    connection.commit()
    connection.close()


def test_sessions_and_open_windows_of_the_first_version_are_kept(tmp_path: Path) -> None:
    first_version(tmp_path / "guardian.db")
    store = SqliteGuardianStore(tmp_path / "guardian.db")
    store.open()
    inside, outside = store.load_session("inside", 9), store.load_session("outside", 9)
    store.close()
    assert inside is not None
    assert outside is not None
    window = TurnWindow("t\N{SNOWMAN}", 1, steps=3, tool_calls=2, denied=True)
    assert inside.progress == SessionProgress(HEAD, 5, 4, 2, 1, closed=False, window=window, memory=SessionMemory())
    assert outside.progress == SessionProgress(recorded=1, closed=True)
    assert (inside.terms.provenance_producer, inside.terms.profiles) == ("none", frozenset())
    assert not inside.terms.strict_provenance


def test_a_migrated_file_is_read_as_a_new_one_is(tmp_path: Path) -> None:
    first_version(tmp_path / "guardian.db")
    store = SqliteGuardianStore(tmp_path / "guardian.db")
    store.open()
    store.close()
    with SqliteChainReader(tmp_path / "guardian.db") as reader:
        assert [session.session_id for session in reader.sessions(limit=9)] == ["inside", "outside"]
        (turn,) = reader.turns("inside")
    assert (turn.turn_id, turn.denied, turn.denials, turn.summary) == ("t", True, 0, None)


def test_a_migrated_file_and_a_new_one_have_the_same_tables(tmp_path: Path) -> None:
    first_version(tmp_path / "old.db")
    shapes: list[list[tuple[object, ...]]] = []
    for name in ("old.db", "new.db"):
        store = SqliteGuardianStore(tmp_path / name)
        store.open()
        store.close()
        connection = sqlite3.connect(tmp_path / name)
        assert schema_version(connection) == SCHEMA_VERSION
        query = (
            'SELECT m.name, c.name, c.type, c."notnull" FROM sqlite_master m, pragma_table_info(m.name) c ORDER BY 1, 2'
        )
        shapes.append(connection.execute(query).fetchall())
        connection.close()
    assert shapes[0] == shapes[1]
