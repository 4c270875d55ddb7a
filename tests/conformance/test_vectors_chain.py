"""Entry hashes and request hashes against vectors of several implementations (ledger 12)."""

import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import ChainBroken, canonicalize, entry_hash, link, request_hash, validator, verify_chain

_VECTORS = read_vectors("chain")
_ENTRIES = [item["entry"] for item in _VECTORS["entries"]]


def test_params_are_hashed_as_received_with_their_signature() -> None:
    for item in _VECTORS["params"]:
        assert request_hash(item["params"]) == item["sha256_hex"]


def test_the_content_of_an_entry_leaves_out_its_two_hashes() -> None:
    for item in _VECTORS["entries"]:
        content = {name: value for name, value in item["entry"].items() if name not in ("entry_hash", "previous_hash")}
        assert canonicalize(content).decode() == item["canonical_content"]
        assert link(content, item["entry"]["previous_hash"]) == item["entry"]


def test_the_chain_of_others_verifies_to_its_head() -> None:
    assert verify_chain(_ENTRIES) == _VECTORS["head"]


def test_every_entry_obeys_the_schema() -> None:
    for entry in _ENTRIES:
        validator("context-entry").check(entry)


def test_the_hash_is_none_of_the_common_mistakes() -> None:
    first, second = _ENTRIES[0], _ENTRIES[1]
    assert entry_hash(first, None) not in _VECTORS["not_the_hash_of_the_first"]
    assert entry_hash(second, first["entry_hash"]) not in _VECTORS["not_the_hash_of_the_second"]


@pytest.mark.parametrize("wrong", _VECTORS["not_the_hash_of_the_second"])
def test_a_chain_with_a_mistaken_hash_is_broken(wrong: str) -> None:
    with pytest.raises(ChainBroken) as broken:
        verify_chain([_ENTRIES[0], {**_ENTRIES[1], "entry_hash": wrong}])
    assert (broken.value.index, broken.value.what) == (1, "entry_hash")
