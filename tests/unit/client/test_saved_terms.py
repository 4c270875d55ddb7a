"""Terms that outlive a process: signed, proven again when they are read, and never believed otherwise."""

import json
from pathlib import Path

import pytest
from tests.unit.client.rig import SESSION, Rig

from turnkeeper.client import FileTerms, GuardianClient, MemoryTerms, SavedTerms, StepInvalid, TermsStore
from turnkeeper.client.steps import tool_call_request
from turnkeeper.client.terms import MAX_REMEMBERED
from turnkeeper.testing.scripted_guardian import Fault


async def opened(guardian: GuardianClient) -> None:
    """A session that has been begun and is left open, as by a hook that has ended."""
    await guardian.session(session_id=SESSION).__aenter__()


async def attached(guardian: GuardianClient) -> str:
    """What a later hook's step came to."""
    session = await guardian.attach(SESSION)
    outcome = await session.ask(tool_call_request(session.marks(), "shell", {"command": "ls"}))
    return type(outcome).__name__


@pytest.fixture(params=["memory", "file"])
def terms(request: pytest.FixtureRequest, tmp_path: Path) -> TermsStore:
    """Both places to keep terms."""
    return MemoryTerms() if request.param == "memory" else FileTerms(tmp_path)


def test_a_later_process_goes_on_under_the_saved_terms(terms: TermsStore) -> None:
    rig = Rig(terms=terms)
    rig.run(opened)
    assert rig.run(attached) == "Allowed"
    assert rig.sent() == ["handshake/hello", "sessionStart", "toolCallRequest"]


@pytest.mark.parametrize(("posture", "outcome"), [("deny", "Denied"), ("proceed", "Allowed")])
def test_the_saved_posture_applies_when_the_guardian_is_gone(terms: TermsStore, posture: str, outcome: str) -> None:
    """CORE-HON-11."""
    rig = Rig(terms=terms)
    rig.scripted.on_decision_failure = posture
    rig.run(opened)
    rig.scripted.down = True
    assert rig.run(attached) == outcome
    (record,) = rig.records
    assert (record.document["posture"], record.document["posture_source"]) == (posture, "negotiated")


def test_an_edited_posture_is_refused(tmp_path: Path) -> None:
    """CORE-HS-20: whoever can write the file cannot turn deny into proceed."""
    rig = Rig(terms=FileTerms(tmp_path))
    rig.run(opened)
    file = tmp_path / f"{SESSION}.json"
    edited = file.read_text().replace('\\"on_decision_failure\\":\\"deny\\"', '\\"on_decision_failure\\":\\"proceed\\"')
    assert edited != file.read_text()
    file.write_text(edited)
    assert rig.run(attached) == "Allowed"
    assert rig.audited() == [("saved_terms_rejected", "observed")]
    # It shook hands again instead.
    assert rig.sent().count("handshake/hello") == 2


def test_terms_of_another_session_are_refused(terms: TermsStore) -> None:
    rig, other = Rig(terms=terms), "11111111-2222-4333-8444-555555555555"
    rig.run(opened)
    saved = terms.load(SESSION)
    assert saved is not None
    terms.save(other, saved)

    async def work(guardian: GuardianClient) -> None:
        await guardian.attach(other)

    rig.run(work)
    assert rig.audited() == [("saved_terms_rejected", "observed")]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"request_id":1,"answer":"x"}', b"\xff"])
def test_a_file_that_says_something_else_counts_as_no_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{SESSION}.json").write_bytes(content)
    assert FileTerms(tmp_path).load(SESSION) is None


def test_a_file_is_its_owners_alone_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    FileTerms(tmp_path).save(SESSION, SavedTerms("r", b"{}"))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert json.loads(file.read_text()) == {"request_id": "r", "answer": "{}"}


def test_forgotten_terms_are_gone(terms: TermsStore) -> None:
    terms.save(SESSION, SavedTerms("r", b"{}"))
    terms.forget(SESSION)
    terms.forget(SESSION)
    assert terms.load(SESSION) is None


def test_memory_is_bounded() -> None:
    terms = MemoryTerms()
    for number in range(MAX_REMEMBERED + 1):
        terms.save(str(number), SavedTerms("r", b""))
    assert terms.load("0") is None
    assert terms.load(str(MAX_REMEMBERED)) is not None


def test_a_session_id_that_is_no_uuid_is_refused_before_it_names_a_file() -> None:
    async def work(guardian: GuardianClient) -> None:
        with pytest.raises(StepInvalid):
            await guardian.attach("../../etc/passwd")

    Rig().run(work)


def test_two_handles_on_one_session_ask_in_one_order() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session(session_id=SESSION) as session:
            again = await guardian.attach(SESSION)
            await again.agent_trigger()
            assert again.head == session.head

    rig.run(work)
    assert rig.sent().count("handshake/hello") == 1


def test_a_lost_hello_is_sent_again() -> None:
    rig = Rig()
    rig.scripted.fail("handshake/hello", Fault.LOSE_ANSWER)
    rig.run(opened)
    assert rig.records == []
