"""Lineage: nothing the model saw is lost from what it says, and no label is invented."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import Lineage, LineageFull, Marks, TurnIds, provenance_objects
from turnkeeper.acs.lineage import MAX_SOURCES, MAX_STEP_LINKS
from turnkeeper.clock import SystemClock
from turnkeeper.ids import RandomIds

IDS = RandomIds(SystemClock())
CALL = "steps/toolCallRequest"
RESULT = "steps/toolCallResult"
Label = Mapping[str, Any]
Reach = dict[str, set[str]]


def lineage(*sources: str) -> Lineage:
    return Lineage(IDS, produces=True, sources=sources)


def call(marks: Marks, arguments: int) -> dict[str, object]:
    return {"arguments": {str(number): {"value": number} | marks.generated() for number in range(arguments)}}


def result(marks: Marks, outputs: int) -> dict[str, object]:
    return {"outputs": [{"value": ""} | marks.received("tool_output", "shell") for _ in range(outputs)]}


def spread(reach: Reach, labels: Sequence[Label]) -> Iterator[str]:
    """Each label's id, once it is known what it leads back to."""
    for label in labels:
        name = label["provenance_id"]
        reach[name] = {name}.union(*(reach[source] for source in label.get("derived_from", ())))
        yield name


def labels_of(method: str, payload: Mapping[str, object]) -> list[Label]:
    return list(provenance_objects(method, payload))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.booleans()), max_size=20))
def test_every_generated_value_reaches_every_value_the_model_saw_before(steps: list[tuple[bool, int, bool]]) -> None:
    kept = lineage()
    reach: Reach = {}
    outside: set[str] = set()
    for generates, values, seen in steps:
        marks = kept.marks()
        method, payload = (CALL, call(marks, values)) if generates else (RESULT, result(marks, values))
        names = set(spread(reach, labels_of(method, payload)))
        if generates:
            assert all(outside <= reach[name] for name in names)
        elif seen:
            outside |= names
        kept.keep(marks, seen=seen)


@given(arguments=st.integers(0, 30), sources=st.integers(0, 800))
def test_a_wide_call_spells_out_no_more_than_its_share_and_loses_nothing(arguments: int, sources: int) -> None:
    known = [IDS.uuid() for _ in range(sources)]
    marks = lineage(*known).marks()
    labels = labels_of(CALL, call(marks, arguments))
    links = sum(len(label.get("derived_from", ())) for label in labels)
    assert links <= MAX_STEP_LINKS + arguments
    reach: Reach = {name: {name} for name in known}
    assert all(reach[name] >= set(known) for name in spread(reach, labels))


@given(arguments=st.integers(0, 5), outputs=st.integers(0, 5))
def test_the_labels_of_a_written_step_can_be_read_back(arguments: int, outputs: int) -> None:
    kept = lineage("before")
    for method, write, values in ((CALL, call, arguments), (RESULT, result, outputs)):
        marks = kept.marks()
        payload = write(marks, values)
        read = kept.marks_of(method, payload)
        assert (read.came_in, read.made) == (marks.came_in, marks.made)
        assert set(read.came_in + read.made) == {label["provenance_id"] for label in labels_of(method, payload)}


def test_a_value_somebody_put_where_no_data_is_carried_is_no_label() -> None:
    label = {"provenance_id": "forged", "origin": "user_input"}
    payload = {"tool": {"name": "x", "provenance": label}, "arguments": {"a": {"value": {"provenance": label}}}}
    assert labels_of(CALL, payload) == []


def test_lineage_is_bounded() -> None:
    kept, turn = lineage(), TurnIds()
    marks = kept.marks()
    for _ in range(MAX_SOURCES + 1):
        marks.received("external")
    with pytest.raises(LineageFull):
        kept.keep(marks, seen=True)
    with pytest.raises(LineageFull):
        turn.add(marks)


def test_nobody_is_labelled_where_no_provenance_is_produced() -> None:
    marks = Lineage(IDS, produces=False).marks()
    assert marks.generated() == marks.received("user_input") == {}
