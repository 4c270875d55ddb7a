"""The contract of `GuardianStore`, run on each implementation: all or nothing, durable, unique, bounded reads."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, assume, given, settings
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
from turnkeeper.store.guardian_database import guardian_database
from turnkeeper.store.guardian_refusals import StoreInUse

SESSION = "6b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"
OTHER = "7b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"
NOTHING = RecordedAnswer(None, None, None)

Reopen = Callable[[], GuardianStore]


@pytest.fixture
def reopen(guardian_url: str) -> Iterator[Reopen]:
    """Opens the store again and again over the same data, closing the one before."""
    opened: list[GuardianStore] = []

    def again() -> GuardianStore:
        for store in opened:
            store.close()
        opened.append(guardian_database(guardian_url).store())
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


def decided(number: int, session_id: str = SESSION) -> StepRecord:
    head = f"{number:064x}"
    return replace(
        step(number, session_id=session_id),
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


def test_a_closed_or_unopened_store_fails_and_says_so(guardian_url: str) -> None:
    store = guardian_database(guardian_url).store()
    for _ in range(2):
        with pytest.raises(StoreFailed):
            store.load_session(SESSION, 1)
        with pytest.raises(StoreFailed):
            store.commit([hello()])
        store.open()
        store.close()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.uuids())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
def test_however_records_are_batched_the_result_is_the_same(store: GuardianStore, sizes: list[int], id_: UUID) -> None:
    session_id = str(id_)
    assume(store.load_session(session_id, 1) is None)
    records = [hello(session_id), *(decided(number, session_id) for number in range(2, sum(sizes) + 1))]
    for size in sizes:
        store.commit(records[:size])
        records = records[size:]
    stored = store.load_session(session_id, 100)
    assert stored is not None
    assert stored.progress.recorded == sum(sizes)
    assert len(stored.request_ids) == sum(sizes)


def test_readers_see_rows_turns_and_findings_in_order(guardian_url: str, store: GuardianStore) -> None:
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
    with guardian_database(guardian_url).reader() as reader:
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


def test_readers_take_sessions_a_page_at_a_time(guardian_url: str, store: GuardianStore) -> None:
    names = sorted(f"{number:08d}-4d7a-4e3b-8a51-9c0d2e7f1a36" for number in range(7))
    store.commit([hello(name) for name in names])
    with guardian_database(guardian_url).reader() as reader:
        seen: list[str] = []
        while page := reader.sessions(after=seen[-1] if seen else "", limit=3):
            seen += [summary.session_id for summary in page]
    assert seen == names


def test_a_long_session_is_read_to_its_end(guardian_url: str, store: GuardianStore) -> None:
    store.commit([hello(), *(decided(number) for number in range(2, 100))])
    with guardian_database(guardian_url).reader() as reader:
        assert len(list(reader.rows(SESSION))) == 99


@pytest.mark.parametrize("text", ["a\0b", "\x1a", "\x1a0\0\x1a1", "ü\0", "\\0"])
def test_a_text_comes_back_as_it_was_whatever_is_in_it(reopen: Reopen, guardian_url: str, text: str) -> None:
    said = replace(decided(2), method=text, turn_id=text, findings=(FindingRecord("code", text, text),))
    reopen().commit([replace(hello(), new_session=replace(terms(), agent_id=text)), said])
    found = reopen().load_session(SESSION, 9)
    assert found is not None
    assert (found.terms.agent_id, found.methods[-1]) == (text, text)
    with guardian_database(guardian_url).reader() as reader:
        assert reader.findings(SESSION, limit=9)[0].finding.message == text
        assert list(reader.rows(SESSION))[1].turn_id == text


def test_numbers_of_any_size_and_bytes_of_any_kind_come_back(reopen: Reopen, guardian_url: str) -> None:
    body = bytes(range(256)) * 3
    large = replace(decided(2), request=body, received_at_ms=2**53, answer=RecordedAnswer("deny", "c" * 64, -32001))
    reopen().commit([hello(), large])
    assert reopen().find_used(SESSION, "request-2", None).request == large.answer
    with guardian_database(guardian_url).reader() as reader:
        assert list(reader.rows(SESSION))[1].request == body
        assert reader.entries(SESSION, after=0, limit=9)[0].received_at_ms == 2**53


def test_a_second_guardian_is_refused_until_the_first_has_ended(store: GuardianStore, guardian_url: str) -> None:
    second = guardian_database(guardian_url).store()
    with pytest.raises(StoreInUse, match="another Guardian"):
        second.open()
    store.commit([hello()])
    store.close()
    second.open()
    assert second.load_session(SESSION, 9) is not None
    second.close()


def test_a_step_of_a_session_that_is_not_there_fails_its_batch(store: GuardianStore) -> None:
    store.commit([hello()])
    with pytest.raises(StoreFailed):
        store.commit([step(2), step(2, session_id=OTHER)])
    assert store.find_used(SESSION, "request-2", None) == UsedBefore(None, False)


def test_what_nobody_began_is_not_there_and_a_migration_begins_it(guardian_url: str) -> None:
    database = guardian_database(guardian_url)
    assert not database.is_there()
    with pytest.raises(StoreFailed):
        database.reader()
    assert database.migrate() == database.migrate()
    assert database.is_there()


def test_a_record_may_be_migrated_and_read_beside_its_guardian(store: GuardianStore, guardian_url: str) -> None:
    store.commit([hello()])
    guardian_database(guardian_url).migrate()
    with guardian_database(guardian_url).reader() as reader:
        assert [summary.session_id for summary in reader.sessions(limit=9)] == [SESSION]
    store.commit([step(2)])
