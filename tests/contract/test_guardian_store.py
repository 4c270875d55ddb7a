"""The contract of `GuardianStore`, run on each implementation: all or nothing, durable, unique, bounded reads."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnkeeper.guardian.ports import (
    ExportRow,
    FindingRecord,
    GuardianStore,
    NonceRecord,
    RecordedAnswer,
    SessionProgress,
    SessionTerms,
    StepKind,
    StepRecord,
    StoreFailed,
    TurnClosed,
    TurnSummary,
    UsedBefore,
)
from turnkeeper.guardian.windows import TurnWindow
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.chain_schema import SCHEMA_VERSION, SchemaTooNew

SESSION = "6b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"
OTHER = "7b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"
NOTHING = RecordedAnswer(None, None, None)

Reopen = Callable[[], GuardianStore]


@pytest.fixture(params=["sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Opens the store again and again over the same data, closing the one before."""
    opened: list[GuardianStore] = []

    def again() -> GuardianStore:
        for store in opened:
            store.close()
        opened.append(SqliteGuardianStore(tmp_path / "guardian.db"))
        opened[-1].open()
        return opened[-1]

    yield again
    for store in opened:
        store.close()


@pytest.fixture
def store(reopen: Reopen) -> GuardianStore:
    return reopen()


def terms(session_id: str = SESSION) -> SessionTerms:
    return SessionTerms(
        session_id=session_id,
        key_id="default",
        agent_id="agent",
        acs_version="0.1.0",
        skew_window_ms=300_000,
        methods=frozenset({"steps/turnStart", "steps/turnEnd"}),
        hello_hash="h" * 64,
        server_hello=b'{"a":1}',
        created_at_ms=1,
    )


def hello(session_id: str = SESSION) -> StepRecord:
    return replace(step(1, session_id=session_id), kind=StepKind.HELLO, answer=NOTHING, new_session=terms(session_id))


def step(number: int, *, session_id: str = SESSION, nonce: str | None = None) -> StepRecord:
    return StepRecord(
        session_id=session_id,
        recorded=number,
        kind=StepKind.STEP,
        method="steps/userMessage",
        request_id=f"request-{number}",
        nonce=nonce or f"nonce-{number}",
        door="http",
        request=b'{"request":1}',
        response=b'{"response":1}',
        received_at_ms=number,
        progress=SessionProgress(recorded=number),
        answer=NOTHING,
    )


def decided(number: int) -> StepRecord:
    head = f"{number:064x}"
    return replace(
        step(number),
        entry=b'{"entry":1}',
        answer=RecordedAnswer("allow", head, None),
        progress=SessionProgress(head=head, recorded=number, entries=number - 1),
    )


def test_a_session_comes_back_as_it_was_after_reopening(reopen: Reopen) -> None:
    progress = SessionProgress("a" * 64, 2, 1, 1, 1, False, TurnWindow("t", 1, steps=4, tool_calls=2, denied=True))
    reopen().commit([hello(), replace(decided(2), progress=progress)])
    stored = reopen().load_session(SESSION, 10)
    assert stored is not None
    assert stored.terms == terms()
    assert stored.progress == progress
    assert stored.request_ids == ("request-1", "request-2")
    assert set(stored.nonces) == {"nonce-1", "nonce-2"}
    assert stored.complete


def test_a_session_that_was_never_opened_is_none(store: GuardianStore) -> None:
    assert store.load_session(SESSION, 10) is None


def test_of_many_ids_the_newest_are_loaded_and_the_rest_is_said_to_exist(store: GuardianStore) -> None:
    store.commit([hello(), *(step(number) for number in range(2, 30))])
    stored = store.load_session(SESSION, 5)
    assert stored is not None
    assert stored.request_ids == tuple(f"request-{number}" for number in range(25, 30))
    assert len(stored.nonces) == 5
    assert not stored.complete


def test_used_ids_are_found_with_their_answer_and_in_their_session_alone(store: GuardianStore) -> None:
    refusal = replace(step(3), kind=StepKind.REFUSAL, answer=RecordedAnswer(None, None, -32602))
    store.commit([hello(), decided(2), refusal, hello(OTHER)])
    assert store.find_used(SESSION, "request-2", "nonce-9") == UsedBefore(decided(2).answer, False)
    assert store.find_used(SESSION, "request-3", None) == UsedBefore(refusal.answer, False)
    assert store.find_used(SESSION, "request-9", "nonce-2") == UsedBefore(None, True)
    assert store.find_used(OTHER, "request-2", "nonce-2") == UsedBefore(None, False)


@pytest.mark.parametrize(
    "broken",
    [
        replace(step(3), request_id="request-2"),
        replace(step(3), nonce="nonce-2"),
        replace(step(3), recorded=2),
        NonceRecord(SESSION, "nonce-2"),
        hello(),
    ],
)
def test_a_batch_with_an_id_that_was_used_fails_as_a_whole(reopen: Reopen, broken: StepRecord | NonceRecord) -> None:
    store = reopen()
    store.commit([hello(), step(2)])
    with pytest.raises(StoreFailed):
        store.commit([step(4), broken, step(5)])
    assert store.find_used(SESSION, "request-4", "nonce-4") == UsedBefore(None, False)
    stored = reopen().load_session(SESSION, 10)
    assert stored is not None
    assert stored.progress.recorded == 2


def test_after_a_failed_batch_the_store_goes_on(store: GuardianStore) -> None:
    store.commit([hello()])
    with pytest.raises(StoreFailed):
        store.commit([replace(step(2), recorded=1)])
    store.commit([step(2)])
    assert store.find_used(SESSION, "request-2", None).request == NOTHING


def test_a_batch_that_cannot_even_be_written_leaves_the_store_usable(store: GuardianStore) -> None:
    store.commit([hello()])
    with pytest.raises(UnicodeEncodeError):
        store.commit([step(2), replace(step(3), method="\ud800")])
    store.commit([step(2)])
    assert store.find_used(SESSION, "request-3", "nonce-3") == UsedBefore(None, False)


def test_the_nonce_of_a_repeat_is_remembered(reopen: Reopen) -> None:
    reopen().commit([hello(), NonceRecord(SESSION, "repeat")])
    assert reopen().find_used(SESSION, "other", "repeat").nonce


def test_a_step_without_a_nonce_is_recorded(store: GuardianStore) -> None:
    store.commit([hello(), replace(step(2), nonce=None), replace(step(3), nonce=None)])
    stored = store.load_session(SESSION, 10)
    assert stored is not None
    assert len(stored.request_ids) == 3


def test_a_closed_or_unopened_store_fails_and_says_so(tmp_path: Path) -> None:
    store = SqliteGuardianStore(tmp_path / "guardian.db")
    with pytest.raises(StoreFailed):
        store.load_session(SESSION, 1)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
def test_however_records_are_batched_the_result_is_the_same(tmp_path: Path, sizes: list[int]) -> None:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}-{os.urandom(4).hex()}.db"
    store = SqliteGuardianStore(path)
    store.open()
    records = [hello(), *(decided(number) for number in range(2, sum(sizes) + 1))]
    for size in sizes:
        store.commit(records[:size])
        records = records[size:]
    stored = store.load_session(SESSION, 100)
    store.close()
    assert stored is not None
    assert stored.progress.recorded == sum(sizes)
    assert len(stored.request_ids) == sum(sizes)


def test_readers_see_rows_turns_and_findings_in_order(tmp_path: Path, store: GuardianStore) -> None:
    window = TurnWindow("t", 1, steps=3, tool_calls=1)
    finding = FindingRecord("turn_mismatch", "words", "t")
    store.commit(
        [
            hello(),
            replace(decided(2), opened=TurnWindow("t", 1, denied=True), turn_id="t"),
            replace(decided(3), closed=TurnClosed(window, "error"), findings=(finding,)),
            replace(decided(4), opened=TurnWindow("u", 2)),
        ]
    )
    with SqliteChainReader(tmp_path / "guardian.db") as reader:
        rows = list(reader.rows(SESSION))
        assert [row.recorded for row in rows] == [1, 2, 3, 4]
        assert isinstance(rows[1], ExportRow)
        assert (rows[1].request, rows[1].entry, rows[1].turn_id) == (b'{"request":1}', b'{"entry":1}', "t")
        assert list(reader.turns(SESSION)) == [
            TurnSummary("t", 1, True, "error", 3, 1),
            TurnSummary("u", 2, False, None, None, None),
        ]
        (found,) = reader.findings(SESSION, limit=9)
        assert (found.recorded, found.finding) == (3, finding)
        assert reader.findings(OTHER, limit=9) == []
        assert reader.findings(after=found.id, limit=9) == []


def test_readers_take_sessions_a_page_at_a_time(tmp_path: Path, store: GuardianStore) -> None:
    names = sorted(f"{number:08d}-4d7a-4e3b-8a51-9c0d2e7f1a36" for number in range(7))
    store.commit([hello(name) for name in names])
    with SqliteChainReader(tmp_path / "guardian.db") as reader:
        seen: list[str] = []
        while page := reader.sessions(after=seen[-1] if seen else "", limit=3):
            seen += [summary.session_id for summary in page]
    assert seen == names


def test_a_long_session_is_read_to_its_end(tmp_path: Path, store: GuardianStore) -> None:
    store.commit([hello(), *(decided(number) for number in range(2, 100))])
    with SqliteChainReader(tmp_path / "guardian.db") as reader:
        assert len(list(reader.rows(SESSION))) == 99


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
