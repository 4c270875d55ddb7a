"""The contract of retention's store, on both databases: what goes, what stays, and who may not go on."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.contract.test_guardian_desk import question
from tests.contract.test_guardian_store import SESSION, decided, hello, step

from turnkeeper.guardian.ports import (
    ArchivedSession,
    FindingRecord,
    GuardianStore,
    NonceRecord,
    SessionArchived,
    StoreFailed,
    TurnClosed,
)
from turnkeeper.guardian.provenance import KnownDatum
from turnkeeper.guardian.windows import TurnWindow
from turnkeeper.store.guardian_database import guardian_database
from turnkeeper.store.retention import SqlRetention

WINDOW = TurnWindow("t", 1)
LATER = 100


@pytest.fixture
def store(guardian_url: str) -> Iterator[GuardianStore]:
    """A Guardian's store with one closed session."""
    opened = guardian_database(guardian_url).store()
    opened.open()
    second = replace(
        decided(2), opened=WINDOW, question=question(2), lineage=(KnownDatum("a", "request-2", None, "trusted", 0),)
    )
    third = replace(decided(3), closed=TurnClosed(WINDOW, "completed", "short"), findings=(FINDING,))
    last = decided(4)
    opened.commit([hello(), second, third, replace(last, progress=replace(last.progress, closed=True))])
    yield opened
    opened.close()


FINDING = FindingRecord("turn_mismatch", "words", "t")


@pytest.fixture
def retention(guardian_url: str, store: GuardianStore) -> SqlRetention:
    """Retention beside it."""
    return guardian_database(guardian_url).retention()


def buried(retention: SqlRetention, recorded: int = 4) -> bool:
    """Takes the session out, as an archive would."""
    (found,) = retention.closed_sessions(LATER, after="", limit=9)
    progress = found.progress
    counts = (recorded, progress.entries, progress.tool_calls, progress.turns)
    return retention.bury(ArchivedSession(SESSION, "agent", "default", 1, 50, progress.head, *counts, "file", "digest"))


def test_content_is_erased_and_the_rest_of_the_row_stays(retention: SqlRetention, guardian_url: str) -> None:
    (found,) = retention.with_content(LATER, after="", limit=9)
    assert (found.session_id, found.erased) == (SESSION, 0)
    before = retention.steps(SESSION, after=0, limit=9)
    retention.erase(SESSION, [(1, None), (2, b"log"), (3, b"log"), (4, b"log")])
    after = retention.steps(SESSION, after=0, limit=9)
    erased = [replace(row, request=None, response=None, decision_log=row.entry and b"log") for row in before]
    assert after == erased
    assert not retention.with_content(LATER, after="", limit=9)
    assert next(retention.turns(SESSION)).summary is None


def test_a_session_is_read_whole_before_it_goes(retention: SqlRetention) -> None:
    assert [turn.outcome for turn in retention.turns(SESSION)] == ["completed"]
    assert [one.finding for one in retention.session_findings(SESSION)] == [FINDING]
    assert list(retention.session_approvals(SESSION)) == [question(2)]
    assert not retention.closed_sessions(1, after="", limit=9)


def test_an_archived_session_leaves_its_head_and_no_rows(retention: SqlRetention, guardian_url: str) -> None:
    assert buried(retention)
    assert list(retention.buried(9)) == [SESSION]
    while retention.remove_rows(SESSION, 1):
        pass
    assert not retention.buried(9)
    assert not retention.steps(SESSION, after=0, limit=9)
    assert not list(retention.session_approvals(SESSION))
    with guardian_database(guardian_url).reader() as reader:
        left = reader.archived_session(SESSION)
        assert left is not None
        assert (left.head, left.archive_file) == (decided(4).progress.head, "file")


def test_a_session_that_went_on_is_not_taken_out(retention: SqlRetention) -> None:
    assert not buried(retention, recorded=3)
    assert len(retention.steps(SESSION, after=0, limit=9)) == 4


def test_an_archived_session_can_never_go_on(retention: SqlRetention, store: GuardianStore) -> None:
    assert buried(retention)
    with pytest.raises(SessionArchived):
        store.load_session(SESSION, 9)
    with pytest.raises(StoreFailed):
        store.commit([step(5), NonceRecord(SESSION, "n")])
