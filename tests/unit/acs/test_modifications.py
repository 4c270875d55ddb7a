"""MODIFY: what has one meaning, what is refused, and what a payload becomes."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vectors.reading import read_vectors

from turnkeeper.acs.modifications import (
    ModificationsInapplicable,
    ModificationsRejected,
    apply_modifications,
    check_modifications,
    merge_modifications,
    parse_pointer,
)

VECTORS = read_vectors("modify-composition")
CASES = [*VECTORS["adapter_root_cases"], *VECTORS["payload_root_cases"]]
PAYLOAD: dict[str, object] = {
    "tool": {"name": "shell"},
    "arguments": {
        "command": {"value": "rm x", "provenance": {"provenance_id": "p"}},
        "a/b": {"value": {"~": 1, "list": [1, 2]}},
    },
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["modifications"]))
def test_the_published_composition_cases(case: dict[str, object]) -> None:
    modifications = case["modifications"]
    assert isinstance(modifications, dict)
    if case["expected"] == "VALID":
        check_modifications(modifications)  # pyright: ignore[reportUnknownArgumentType]
        return
    with pytest.raises(ModificationsRejected):
        check_modifications(modifications)  # pyright: ignore[reportUnknownArgumentType]


@pytest.mark.parametrize(
    "modifications",
    [
        {"modified_content": 7},
        {"modified_content": None},
        {"redactions": []},
        {"redactions": [], "parameter_overrides": {}},
        {"redactions": [{"path": ""}]},
        {"redactions": [{"replacement": "x"}]},
        {"redactions": [{"path": "/a", "replacement": None}]},
        {"redactions": [{"path": "/a"}, {"path": "/a/b"}]},
        {"redactions": [{"path": "/a/b/c"}, {"path": "/a/b!"}, {"path": "/a/b"}]},
        {"redactions": [{"path": "/a", "replacement": "x"}, {"path": "/a", "replacement": "y"}]},
        {"parameter_overrides": []},
        {"redactions": [{"path": "/" + "a" * 5_000}]},
        {"redactions": [{"path": f"/{index}"} for index in range(1_001)]},
        {"modified_content": "x", "other": 1},
    ],
)
def test_what_has_no_single_meaning_is_refused(modifications: dict[str, object]) -> None:
    with pytest.raises(ModificationsRejected):
        check_modifications(modifications)


def test_neighbours_whose_names_begin_alike_are_not_ancestors() -> None:
    check_modifications({"redactions": [{"path": "/a"}, {"path": "/a-b"}, {"path": "/ab"}, {"path": "/A"}]})


def test_redactions_and_overrides_change_their_places_and_nothing_else() -> None:
    before = copy.deepcopy(PAYLOAD)
    after = apply_modifications(
        PAYLOAD,
        {
            "redactions": [{"path": "/arguments/a~1b/value/~0"}, {"path": "/arguments/a~1b/value/list/1"}],
            "parameter_overrides": {"command": ["ls"]},
        },
    )
    assert before == PAYLOAD
    assert after["tool"] == {"name": "shell"}
    assert after["arguments"] == {
        "command": {"value": ["ls"], "provenance": {"provenance_id": "p"}},
        "a/b": {"value": {"~": "[REDACTED]", "list": [1, "[REDACTED]"]}},
    }


@pytest.mark.parametrize(
    "modifications",
    [
        {"redactions": [{"path": "/command"}]},
        {"redactions": [{"path": "/arguments/token/value"}]},
        {"redactions": [{"path": "/arguments/a~1b/value/list/2"}]},
        {"redactions": [{"path": "/arguments/a~1b/value/list/-"}]},
        {"redactions": [{"path": "/arguments/a~1b/value/list/01"}]},
        {"redactions": [{"path": "/tool/name/deeper"}]},
        {"parameter_overrides": {"token": "x"}},
        {"modified_content": "x"},
    ],
)
def test_what_the_payload_has_no_place_for_is_never_left_out(modifications: dict[str, object]) -> None:
    with pytest.raises(ModificationsInapplicable):
        apply_modifications(PAYLOAD, modifications)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (
            {"content": [{"type": "image", "value": "x", "p": 1}]},
            {"content": [{"type": "text", "value": "new", "p": 1}]},
        ),
        ({"content": [{"type": "text", "value": "x", "p": 1}] * 2}, {"content": [{"type": "text", "value": "new"}]}),
        ({"content": {"value": "x", "p": 1}}, {"content": {"value": "new", "p": 1}}),
        ({"outputs": [{"value": "x", "p": 1}], "t": 1}, {"outputs": [{"value": "new", "p": 1}], "t": 1}),
        ({"outputs": []}, {"outputs": [{"value": "new"}]}),
        (
            {"query": {"value": "q"}, "results": [{"value": 1}]},
            {"query": {"value": "q"}, "results": [{"value": "new"}]},
        ),
        ({"summary": {"value": "x", "p": 1}}, {"summary": {"value": "new", "p": 1}}),
    ],
)
def test_modified_content_replaces_what_the_hook_carries(
    payload: dict[str, object], expected: dict[str, object]
) -> None:
    assert apply_modifications(payload, {"modified_content": "new"}) == expected


def test_modifications_of_several_origins_become_one_where_they_touch_different_places() -> None:
    merged = merge_modifications(
        [
            {"redactions": [{"path": "/a"}]},
            {"parameter_overrides": {"x": 1}, "redactions": [{"path": "/a"}, {"path": "/b"}]},
        ]
    )
    assert merged == {"redactions": [{"path": "/a"}, {"path": "/b"}], "parameter_overrides": {"x": 1}}


@pytest.mark.parametrize(
    "parts",
    [
        [{"redactions": [{"path": "/a"}]}, {"redactions": [{"path": "/a/b"}]}],
        [{"redactions": [{"path": "/a"}]}, {"redactions": [{"path": "/a", "replacement": "x"}]}],
        [{"parameter_overrides": {"x": 1}}, {"parameter_overrides": {"x": True}}],
        [{"parameter_overrides": {"x": 1}}, {"redactions": [{"path": "/arguments/x/value"}]}],
        [{"modified_content": "a"}, {"modified_content": "b"}],
        [{"modified_content": "a"}, {"parameter_overrides": {"x": 1}}],
    ],
)
def test_modifications_that_touch_one_place_do_not_become_one(parts: list[dict[str, object]]) -> None:
    with pytest.raises(ModificationsRejected):
        merge_modifications(parts)


NAMES = st.text("ab~/01", min_size=0, max_size=3)
POINTERS = st.lists(NAMES, min_size=1, max_size=3)


def _pointer(segments: list[str]) -> str:
    return "".join("/" + segment.replace("~", "~0").replace("/", "~1") for segment in segments)


@given(POINTERS)
def test_a_pointer_is_read_back_as_the_segments_it_was_written_from(segments: list[str]) -> None:
    assert parse_pointer(_pointer(segments)) == tuple(segments)


@given(POINTERS, POINTERS)
def test_two_places_overlap_exactly_where_one_leads_to_the_other(left: list[str], right: list[str]) -> None:
    shorter = min(len(left), len(right))
    overlap = left[:shorter] == right[:shorter] and left != right
    modifications: dict[str, object] = {"redactions": [{"path": _pointer(left)}, {"path": _pointer(right)}]}
    if overlap:
        with pytest.raises(ModificationsRejected):
            check_modifications(modifications)
    else:
        check_modifications(modifications)
