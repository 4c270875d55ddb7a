"""What a session remembers survives its way through the store, whatever is in it."""

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.guardian.memory import (
    Component,
    Kept,
    KnownCapability,
    KnownIntent,
    PendingCall,
    ProvenanceSummary,
    SessionMemory,
    Skill,
    parse_memory,
    parse_window,
    render_kept,
    render_standing,
    render_window,
)
from turnkeeper.guardian.provenance import Datum, Trace
from turnkeeper.guardian.windows import TurnWindow

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
COUNTS = st.integers(0, 2**53)
TUPLES = st.lists(WORDS, max_size=3).map(tuple)


def windows(depth: int = 2) -> st.SearchStrategy[TurnWindow]:
    """Windows inside one another."""
    outer = st.none() if depth == 0 else st.none() | windows(depth - 1)
    return st.builds(
        TurnWindow, turn_id=WORDS, ordinal=COUNTS, steps=COUNTS, denied=st.booleans(), taint_step=WORDS, outer=outer
    )


INTENTS = st.builds(
    KnownIntent,
    digest=WORDS,
    raw=WORDS,
    scope_mode=WORDS,
    capabilities=st.none() | st.lists(st.builds(KnownCapability, WORDS, WORDS, WORDS), max_size=2).map(tuple),
)
KEPT = st.builds(
    Kept,
    intent=st.none() | INTENTS,
    intent_fixed=st.booleans(),
    skills=st.dictionaries(WORDS, st.builds(Skill, WORDS, WORDS, TUPLES, TUPLES), max_size=2),
    pending_calls=st.dictionaries(WORDS, st.builds(PendingCall, WORDS, WORDS, WORDS), max_size=2),
    agbom=st.none() | st.dictionaries(WORDS, st.builds(Component, WORDS, WORDS, WORDS, WORDS), max_size=2),
    deferred_turns=st.dictionaries(WORDS, windows(0), max_size=2),
    noted=TUPLES,
)
MEMORIES = st.builds(
    SessionMemory,
    started=st.booleans(),
    denials=COUNTS,
    taint_step=WORDS,
    taint_turns=st.integers(-1, 9),
    lineage_cut=st.booleans(),
    provenance=st.builds(
        ProvenanceSummary, st.dictionaries(WORDS, COUNTS, max_size=2), st.dictionaries(WORDS, WORDS, max_size=2), COUNTS
    ),
    kept=KEPT,
)


@given(MEMORIES)
def test_a_memory_comes_back_as_it_was(memory: SessionMemory) -> None:
    assert parse_memory(render_standing(memory), render_kept(memory.kept)) == memory


@given(windows())
def test_a_window_comes_back_with_those_around_it(window: TurnWindow) -> None:
    assert parse_window(render_window(window)) == window


def test_a_session_of_an_older_program_remembers_nothing() -> None:
    assert parse_memory(None, None) == SessionMemory()


@given(st.lists(st.lists(st.sampled_from(["system", "external", "retrieved"]), max_size=3), max_size=6))
def test_a_summary_counts_every_object_and_never_falls(steps: list[list[str]]) -> None:
    """CORE-PS-01."""
    summary = ProvenanceSummary()
    for number, origins in enumerate(steps):
        before = summary
        data = tuple(Datum(str(number), origin, "", ()) for origin in origins)
        summary = summary.grown(Trace(data, depth=number), str(number))
        assert all(summary.by_origin[origin] >= count for origin, count in before.by_origin.items())
        assert summary.earliest_step.items() >= before.earliest_step.items()
        assert summary.max_lineage_depth >= before.max_lineage_depth
    flat = [origin for origins in steps for origin in origins]
    document = summary.to_document()
    assert document["entry_count"] == len(flat)
    assert document["entry_count_by_origin"] == {origin: flat.count(origin) for origin in set(flat)}
