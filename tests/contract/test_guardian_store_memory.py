"""The contract of `GuardianStore` for what a session remembers: kept until replaced, whole, in the step's commit."""

from dataclasses import replace

from tests.contract.test_guardian_store import SESSION, decided, hello, terms

from turnkeeper.guardian.memory import Kept, ProvenanceSummary, SessionMemory, Skill
from turnkeeper.guardian.ports import StepRecord, StoredSession, TurnClosed, TurnSummary, UsedBefore
from turnkeeper.guardian.provenance import MAX_PROVENANCE_IDS, KnownDatum
from turnkeeper.guardian.windows import TurnWindow
from turnkeeper.store.guardian_database import guardian_database

KEPT = Kept(skills={"k": Skill("k", "sha-256:aa", ("fs",), ("other",))}, noted=("x",))


def stored(url: str, *records: StepRecord) -> StoredSession:
    """The session as another store finds it after these records."""
    writer, reader = guardian_database(url).store(), guardian_database(url).store()
    writer.open()
    writer.commit(records)
    writer.close()
    reader.open()
    found = reader.load_session(SESSION, 100)
    reader.close()
    assert found is not None
    return found


def remembering(number: int, memory: SessionMemory, kept: Kept | None) -> StepRecord:
    """A decided step that leaves a memory behind."""
    record = decided(number)
    return replace(record, progress=replace(record.progress, memory=memory), kept=kept)


def test_what_is_kept_stays_until_a_step_changes_it(guardian_url: str) -> None:
    first = SessionMemory(started=True, kept=KEPT)
    second = replace(first, denials=1, taint_step="r", taint_turns=3, provenance=ProvenanceSummary({"system": 1}))
    found = stored(guardian_url, hello(), remembering(2, first, KEPT), remembering(3, second, None))
    assert found.progress.memory == second
    third = replace(second, kept=Kept(intent_fixed=True))
    assert stored(guardian_url, remembering(4, third, third.kept)).progress.memory == third


def test_of_two_changes_in_one_batch_the_later_one_stays(guardian_url: str) -> None:
    memory = SessionMemory(kept=KEPT)
    records = [remembering(2, SessionMemory(), Kept()), remembering(3, memory, KEPT), remembering(4, memory, None)]
    assert stored(guardian_url, hello(), *records).progress.memory == memory


def test_terms_of_provenance_and_wrapping_come_back(guardian_url: str) -> None:
    told = replace(
        terms(),
        provenance_producer="deterministic",
        profiles=frozenset({"acs-core", "acs-provenance"}),
        mcp_versions=frozenset({"2025-06-18", "x"}),
    )
    found = stored(guardian_url, replace(hello(), new_session=told))
    assert found.terms == told
    assert found.terms.strict_provenance


def test_lineage_comes_back_and_a_known_id_takes_the_later_trust_alone(guardian_url: str) -> None:
    first = KnownDatum("a", "request-2", "t", "trusted", 1)
    again = KnownDatum("a", "request-2", "t", "untrusted", 1)
    other = KnownDatum("b", "request-3", None, "unknown", 0)
    found = stored(
        guardian_url, hello(), replace(decided(2), lineage=(first,)), replace(decided(3), lineage=(again, other))
    )
    assert sorted(found.lineage, key=lambda datum: datum.provenance_id) == [again, other]


def test_no_more_lineage_is_loaded_than_a_session_remembers(guardian_url: str) -> None:
    many = tuple(KnownDatum(str(number), "r", None, "trusted", 0) for number in range(MAX_PROVENANCE_IDS + 3))
    assert len(stored(guardian_url, hello(), replace(decided(2), lineage=many)).lineage) == MAX_PROVENANCE_IDS


def test_requests_come_back_with_the_method_of_their_entry_and_without_one_with_none(guardian_url: str) -> None:
    found = stored(guardian_url, hello(), decided(2))
    assert dict(zip(found.request_ids, found.methods, strict=True)) == {
        "request-1": "",
        "request-2": "steps/userMessage",
    }
    store = guardian_database(guardian_url).store()
    store.open()
    named = [
        store.find_used(SESSION, "new", None, reference) for reference in ("request-1", "request-2", "nobody", None)
    ]
    store.close()
    assert named == [UsedBefore(None, False, method) for method in (None, "steps/userMessage", None, None)]


def test_a_turn_is_read_with_all_that_was_counted_in_it(guardian_url: str) -> None:
    opened = TurnWindow("t", 1, triggered_by="agent_loop", parent_turn_id="p")
    ended = replace(opened, steps=4, tool_calls=2, denials=1, deferrals=3, taint_step="r")
    records = (replace(decided(2), opened=opened), replace(decided(3), closed=TurnClosed(ended, "error", "in short")))
    stored(guardian_url, hello(), *records)
    with guardian_database(guardian_url).reader() as reader:
        assert list(reader.turns(SESSION)) == [
            TurnSummary("t", 1, False, "error", 4, 2, "agent_loop", "p", "r", 1, 3, "in short")
        ]


def test_an_open_window_comes_back_with_the_turns_around_it(guardian_url: str) -> None:
    window = TurnWindow("n", 2, steps=1, outer=TurnWindow("t", 1, steps=5, denials=2, carried_steps=7))
    record = decided(2)
    found = stored(guardian_url, hello(), replace(record, progress=replace(record.progress, window=window)))
    assert found.progress.window == window
