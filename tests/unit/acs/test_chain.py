"""The chain: what is linked verifies, and what was changed does not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.acs.samples import AT, JSON_OBJECTS, KEY, REQUEST_ID, request

from turnkeeper.acs import (
    ChainBroken,
    ContextEntry,
    RequestEnvelope,
    canonicalize,
    link,
    request_hash,
    sign_request,
    validator,
    verify_chain,
)
from turnkeeper.errors import LocalProtocolError


def _linked(contents: list[dict[str, Any]], previous: str | None = None) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for index, content in enumerate(contents):
        entry = {"x": content, "entry_id": str(index), "step_id": str(index), "step_type": "steps/userMessage"}
        entries.append(link(entry, entries[-1]["entry_hash"] if entries else previous))
    return entries


_CHAINS = st.lists(JSON_OBJECTS, min_size=1, max_size=5).map(_linked)


def _broken(entries: list[dict[str, Any]]) -> tuple[int, str]:
    with pytest.raises(ChainBroken) as broken:
        verify_chain(entries)
    assert broken.value.detail == {"index": broken.value.index, "what": broken.value.what}
    return broken.value.index, broken.value.what


@given(_CHAINS)
def test_a_linked_chain_verifies_to_the_hash_of_its_last_entry(entries: list[dict[str, Any]]) -> None:
    assert verify_chain(entries) == entries[-1]["entry_hash"]
    assert entries[0]["previous_hash"] is None


@given(_CHAINS, st.data())
def test_a_changed_entry_breaks_the_chain_where_it_stands(entries: list[dict[str, Any]], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(entries) - 1))
    member = data.draw(st.sampled_from(["x", "step_id", "step_type", "added"]))
    entries[index] = entries[index] | {member: "changed"}
    assert _broken(entries) == (index, "entry_hash")


@given(_CHAINS, st.data())
def test_a_chain_without_one_of_its_inner_entries_is_broken(entries: list[dict[str, Any]], data: st.DataObject) -> None:
    if len(entries) < 2:
        assert verify_chain([]) is None
        return
    index = data.draw(st.integers(0, len(entries) - 2))
    assert _broken(entries[:index] + entries[index + 1 :]) == (index, "previous_hash")


def test_a_chain_is_continued_from_a_head() -> None:
    first = _linked([{}, {}])
    head = verify_chain(first)
    rest = _linked([{"a": 1}], head)
    assert verify_chain(rest, previous=head) == rest[-1]["entry_hash"]
    assert _broken(rest) == (0, "previous_hash")


def test_an_id_occurs_once_in_a_chain() -> None:
    first = _linked([{}])[0]
    again = link({name: first[name] for name in ("entry_id", "step_id", "step_type")}, first["entry_hash"])
    assert _broken([first, again]) == (1, "duplicate_entry_id")


@pytest.mark.parametrize(
    ("member", "value"),
    [("entry_id", None), ("step_type", 5), ("entry_hash", "AB" * 32), ("entry_hash", ""), ("x", float("nan"))],
)
def test_an_entry_of_another_shape_is_malformed(member: str, value: object) -> None:
    assert _broken([_linked([{}])[0] | {member: value}]) == (0, "malformed")


@pytest.mark.parametrize("previous", ["", "ab", "AB" * 32, "0x" + "ab" * 31])
def test_an_entry_is_linked_to_a_digest_or_to_nothing(previous: str) -> None:
    with pytest.raises(LocalProtocolError):
        link({}, previous)


def test_the_entry_of_a_step_is_made_of_its_traffic_alone() -> None:
    document: Any = sign_request(request(turn_id="trn"), KEY)
    entry = ContextEntry.for_request(RequestEnvelope.of(document), turn_id="trn").to_document()
    assert entry == {
        "entry_id": REQUEST_ID,
        "step_id": REQUEST_ID,
        "step_type": "steps/toolCallRequest",
        "request_hash": request_hash(document["params"]),
        "timestamp": AT,
        "turn_id": "trn",
    }
    validator("context-entry").check(link(entry, None))


def test_an_entry_outside_a_turn_has_no_turn_id_and_nothing_is_null() -> None:
    entry = ContextEntry("e", "s", "steps/sessionStart", provenance_summary={"entry_count": 0}).to_document()
    assert entry == {
        "entry_id": "e",
        "step_id": "s",
        "step_type": "steps/sessionStart",
        "provenance_summary": {"entry_count": 0},
    }


@given(JSON_OBJECTS)
def test_a_request_is_hashed_with_unknown_members_and_its_signature(vendor: dict[str, Any]) -> None:
    document: Any = request()
    document["params"]["x_vendor"] = vendor
    signed: Any = sign_request(document, KEY)
    assert request_hash(signed["params"]) != request_hash(document["params"])
    assert canonicalize(vendor) in canonicalize(signed["params"])
