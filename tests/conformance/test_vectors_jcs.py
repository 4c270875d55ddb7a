"""RFC 8785 against its own number table and against documents of other implementations (ledger 23.2)."""

import struct
from typing import Any

import orjson
import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import CanonicalizationRejected, JsonRejected, canonicalize, parse_strict

_VECTORS = read_vectors("jcs")


@pytest.mark.parametrize(("bits", "text"), _VECTORS["numbers"].items())
def test_a_double_is_written_as_the_standard_writes_it(bits: str, text: str) -> None:
    (double,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonicalize([double]).decode() == f"[{text}]"


@pytest.mark.parametrize("document", _VECTORS["documents"], ids=lambda document: document["canonical"][:24])
def test_a_document_has_one_canonical_form(document: dict[str, Any]) -> None:
    assert canonicalize(parse_strict(document["text"].encode())) == document["canonical"].encode()


@pytest.mark.parametrize("document", _VECTORS["documents"], ids=lambda document: document["canonical"][:24])
def test_the_canonical_form_is_its_own_canonical_form(document: dict[str, Any]) -> None:
    canonical = document["canonical"].encode()
    assert canonicalize(orjson.loads(canonical)) == canonical


@pytest.mark.parametrize("text", _VECTORS["refused_texts"])
def test_a_text_without_a_canonical_form_is_refused(text: str) -> None:
    with pytest.raises((JsonRejected, CanonicalizationRejected)):
        canonicalize(parse_strict(text.encode()))
