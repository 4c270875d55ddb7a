"""The contract of the desk, on both databases: reads in pages, one answer per question, keys by their digest."""

from collections.abc import Iterator
from dataclasses import replace
from threading import Barrier, Thread

import pytest
from tests.contract.test_guardian_store import OTHER, SESSION, decided, hello

from turnkeeper.guardian.apikeys import DECIDE, GuardianKey
from turnkeeper.guardian.approvals import (
    Approval,
    ApprovalAnswer,
    ApprovalKind,
    ApprovalRefused,
    ApprovalScope,
    ApprovalStatus,
    Approver,
)
from turnkeeper.guardian.ports import FindingRecord, GuardianStore, TurnSummary
from turnkeeper.guardian.windows import TurnWindow
from turnkeeper.store.guardian_database import guardian_database
from turnkeeper.store.guardian_desk import GuardianDesk

ANA = Approver("key_ana", "ana", "human", frozenset({"*"}))
EVERYBODY = 99


def question(number: int, *, expires_at_ms: int = 1_000) -> Approval:
    """What step `number` asks."""
    return Approval(
        approval_id=f"apr_{number}",
        session_id=SESSION,
        request_id=f"request-{number}",
        turn_id="t\0",
        agent_id="agent",
        key_id="default",
        kind=ApprovalKind.ASK,
        method="steps/toolCallRequest",
        tool="delete",
        input_hash="a" * 64,
        question="Delete\0it?",
        approver_type="human",
        approver_id="operators",
        created_at_ms=number,
        expires_at_ms=expires_at_ms,
        extension={"scopes": ["x"]},
    )


@pytest.fixture
def store(guardian_url: str) -> Iterator[GuardianStore]:
    """The Guardian's own side, running beside the desk."""
    opened = guardian_database(guardian_url).store()
    opened.open()
    opened.commit([hello(), *(replace(decided(number), question=question(number)) for number in (2, 3, 4))])
    yield opened
    opened.close()


@pytest.fixture
def desk(guardian_url: str, store: GuardianStore) -> GuardianDesk:
    """The desk beside the store."""
    return guardian_database(guardian_url).desk()


def listed(desk: GuardianDesk, status: ApprovalStatus | None, *, after: int = 0, now_ms: int = 500) -> list[str]:
    """The approvals on a page."""
    page = desk.approvals(status=status, after=after, limit=EVERYBODY, now_ms=now_ms)
    return [approval.approval_id for _, approval in page]


def test_a_question_comes_back_as_it_was_asked(desk: GuardianDesk) -> None:
    assert desk.approval("apr_2") == question(2)
    assert desk.approval("apr_9") is None


def test_questions_are_listed_by_what_became_of_them(desk: GuardianDesk) -> None:
    desk.decide("apr_2", ApprovalAnswer("approve", scope=ApprovalScope.THIS_REQUEST), ANA, 500)
    desk.decide("apr_3", ApprovalAnswer("deny", note="no\0"), ANA, 500)
    assert listed(desk, None) == ["apr_2", "apr_3", "apr_4"]
    assert listed(desk, ApprovalStatus.APPROVED) == ["apr_2"]
    assert listed(desk, ApprovalStatus.DENIED) == ["apr_3"]
    assert (listed(desk, ApprovalStatus.PENDING), listed(desk, ApprovalStatus.EXPIRED)) == (["apr_4"], [])
    assert (listed(desk, ApprovalStatus.PENDING, now_ms=1_000), listed(desk, ApprovalStatus.EXPIRED, now_ms=1_000)) == (
        [],
        ["apr_4"],
    )


def test_a_page_goes_on_where_the_last_one_ended(desk: GuardianDesk) -> None:
    ((place, first),) = desk.approvals(status=None, after=0, limit=1, now_ms=0)
    assert first.approval_id == "apr_2"
    assert listed(desk, None, after=place) == ["apr_3", "apr_4"]


def test_an_answer_is_final_and_the_guardian_sees_it(desk: GuardianDesk, store: GuardianStore) -> None:
    given = desk.decide("apr_2", ApprovalAnswer("approve", scope=ApprovalScope.SESSION, note="ok"), ANA, 500)
    assert given == store.find_approval(SESSION, "request-2")
    assert given is not None
    assert (given.status, given.decided_by_key, given.note) == (ApprovalStatus.APPROVED, "key_ana", "ok")
    with pytest.raises(ApprovalRefused):
        desk.decide("apr_2", ApprovalAnswer("deny"), ANA, 501)
    assert desk.decide("apr_9", ApprovalAnswer("deny"), ANA, 500) is None


def test_a_question_that_is_taken_back_is_open_no_more_and_has_no_answer(
    desk: GuardianDesk, store: GuardianStore
) -> None:
    taken_back = desk.withdraw("apr_3", ANA, "nobody waits", 400)
    assert taken_back == desk.approval("apr_3")
    assert (listed(desk, ApprovalStatus.PENDING), listed(desk, ApprovalStatus.EXPIRED)) == (
        ["apr_2", "apr_4"],
        ["apr_3"],
    )
    with pytest.raises(ApprovalRefused):
        desk.decide("apr_3", ApprovalAnswer("approve"), ANA, 401)
    desk.decide("apr_4", ApprovalAnswer("deny"), ANA, 401)
    with pytest.raises(ApprovalRefused):
        desk.withdraw("apr_4", ANA, None, 402)
    assert desk.withdraw("apr_9", ANA, None, 402) is None


def test_of_many_who_answer_at_once_one_is_heard(guardian_url: str, desk: GuardianDesk) -> None:
    heard: list[str] = []
    together = Barrier(4)

    def answer(name: str) -> None:
        own = guardian_database(guardian_url).desk()
        own.approval("apr_2")
        together.wait(timeout=30)
        try:
            own.decide("apr_2", ApprovalAnswer("deny", note=name), replace(ANA, name=name), 500)
            heard.append(name)
        except ApprovalRefused:
            pass

    threads = [Thread(target=answer, args=(f"approver-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    decided_row = desk.approval("apr_2")
    assert decided_row is not None
    assert heard == [decided_row.note]


def test_keys_are_found_by_their_digest_until_they_are_revoked(desk: GuardianDesk) -> None:
    key = GuardianKey("key_1", "ana", frozenset({DECIDE}), "human", frozenset({"*"}), 1)
    desk.add_key(key, "d" * 64)
    assert desk.key_of_secret("d" * 64) == key
    assert desk.key_of_secret("e" * 64) is None
    assert desk.revoke_key("key_1", 7)
    assert desk.revoke_key("key_1", 8)
    assert not desk.revoke_key("key_2", 7)
    assert desk.keys(limit=9) == [replace(key, revoked_at_ms=7)]


def test_people_read_sessions_turns_entries_findings_and_requests(desk: GuardianDesk, store: GuardianStore) -> None:
    finding = FindingRecord("turn_mismatch", "words", None)
    store.commit([replace(decided(5), opened=TurnWindow("t", 1), findings=(finding,)), hello(OTHER)])
    assert [one.session_id for one in desk.sessions(after="", limit=9)] == [SESSION, OTHER]
    found = desk.session(SESSION)
    assert found is not None
    assert found.progress.recorded == 5
    assert desk.session("nobody") is None
    assert desk.turns(SESSION, after=0, limit=9) == [TurnSummary("t", 1, False, None, None, None)]
    assert [entry.recorded for entry in desk.entries(SESSION, after=2, limit=2)] == [3, 4]
    assert [one.finding for one in desk.findings(SESSION, after=0, limit=9)] == [finding]
    assert desk.request(SESSION, "request-2") == b'{"request":1}'
    assert desk.request(SESSION, "nothing") is None
