"""RFC 8785: the fast path writes what the reference writes, and refuses what has no canonical form."""

import enum
import math
import struct
from decimal import Decimal
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.acs.samples import JSON_OBJECTS, JSON_VALUES

from turnkeeper.acs import CanonicalizationRejected, canonicalize, canonicalize_safe, parse_strict
from turnkeeper.acs.canonical import canonical_writer


class _Word(enum.StrEnum):
    ALLOW = "allow"


class _Number(enum.IntEnum):
    SEVEN = 7


class _Stranger:
    """What JSON has no word for."""

    def __repr__(self) -> str:
        """Always the same, so that every process gives its tests the same names."""
        return "stranger"


@settings(max_examples=500)
@given(JSON_VALUES)
def test_the_bytes_are_those_of_the_reference(value: Any) -> None:
    assert canonicalize(value) == rfc8785.dumps(value)


@settings(max_examples=500)
@given(st.integers(0, 2**64 - 1))
def test_every_double_is_written_as_the_reference_writes_it_or_refused(bits: int) -> None:
    (double,) = struct.unpack(">d", bits.to_bytes(8))
    if math.isfinite(double):
        assert canonicalize({"v": double}) == rfc8785.dumps({"v": double})
        return
    with pytest.raises(CanonicalizationRejected):
        canonicalize({"v": double})


@given(JSON_VALUES, st.sampled_from([math.inf, -math.inf, math.nan]))
def test_no_place_in_a_document_turns_a_number_that_is_not_finite_into_null(value: Any, double: float) -> None:
    for document in ([value, double], {"a": value, "b": [double]}, {"\U00010000": double, "\uffff": value}):
        with pytest.raises(CanonicalizationRejected):
            canonicalize(document)


_LARGE_INTEGERS = st.integers(-(2**1100), 2**1100) | st.floats(1e15, 1e22).map(int) | st.integers(2**53 - 9, 2**53 + 9)


@settings(max_examples=300)
@given(_LARGE_INTEGERS)
def test_an_integer_is_written_so_that_its_form_is_its_own_or_refused(integer: int) -> None:
    try:
        written = canonicalize(integer)
    except CanonicalizationRejected:
        assert abs(integer) >= 2**53
        return
    assert Decimal(written.decode()) == integer
    assert written == rfc8785.dumps(float(integer))


@pytest.mark.parametrize("integer", [2**53 + 1, 2**60, 60995337792343104, 10**400])
def test_an_integer_that_would_share_the_form_of_another_is_refused(integer: int) -> None:
    with pytest.raises(CanonicalizationRejected):
        canonicalize([integer])


@given(JSON_VALUES)
def test_a_canonical_form_read_again_is_its_own_canonical_form(value: Any) -> None:
    canonical = canonicalize(value)
    assert canonicalize(parse_strict(canonical)) == canonical


@given(JSON_VALUES)
def test_a_document_is_left_as_it_was(value: Any) -> None:
    before = orjson.dumps(value)
    canonicalize(value)
    assert orjson.dumps(value) == before


def test_large_integers_beside_names_in_utf16_order_are_written_by_the_reference() -> None:
    document = {"\uffff": [2**53, True, None], "\U00010000": {"n": 1}}
    assert canonicalize(document).decode() == '{"\U00010000":{"n":1},"\uffff":[9007199254740992,true,null]}'


@pytest.mark.parametrize(
    "value",
    [
        {"a": "\ud800"},
        {"\ud800": 1},
        {"\ud800": 1, "\U00010000\uffff": 2},
        {1: "a"},
        {"a": (1, 2)},
        {"a": b"bytes"},
        {"a": {1, 2}},
        _Stranger(),
        {"\U00010000\uffff": 2**53 + 1},
        {"\U00010000\uffff": _Stranger()},
    ],
    ids=ascii,
)
def test_what_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(CanonicalizationRejected):
        canonicalize(value)


@pytest.mark.parametrize("names", [("a",), ("\U00010000", "\uffff")])
def test_nesting_is_bounded_on_both_paths(names: tuple[str, ...]) -> None:
    deep: object = 1
    for _ in range(64):
        deep = dict.fromkeys(names[:1], deep) | dict.fromkeys(names[1:], 1)
    assert canonicalize(deep).count(b"{") == 64
    with pytest.raises(CanonicalizationRejected, match="64 levels"):
        canonicalize([deep])
    with pytest.raises(CanonicalizationRejected, match="64 levels"):
        canonicalize(dict.fromkeys(names, deep))


def test_enumerations_are_written_as_their_values() -> None:
    assert canonicalize({"d": _Word.ALLOW, "l": [_Word.ALLOW, _Number.SEVEN]}) == b'{"d":"allow","l":["allow",7]}'


@given(st.dictionaries(st.text("abcXYZ_", max_size=5), st.text(max_size=5) | st.integers(-(2**53) + 1, 2**53 - 1)))
def test_a_document_of_our_own_making_takes_the_short_way_to_the_same_bytes(document: dict[str, Any]) -> None:
    try:
        expected = canonicalize(document)
    except CanonicalizationRejected:
        with pytest.raises(CanonicalizationRejected):
            canonicalize_safe(document)
        return
    assert canonicalize_safe(document) == expected


@pytest.mark.parametrize("value", [{1: "a"}, {"a": "\ud800"}, _Stranger()], ids=ascii)
def test_the_short_way_refuses_what_cannot_be_written(value: object) -> None:
    with pytest.raises(CanonicalizationRejected):
        canonicalize_safe(value)


@settings(max_examples=500)
@given(JSON_OBJECTS)
def test_a_writer_chosen_for_a_document_writes_the_document_and_each_part_of_it(document: dict[str, Any]) -> None:
    write = canonical_writer(document)
    assert write(document) == canonicalize(document)
    for name, member in document.items():
        assert write({name: member}) == canonicalize({name: member})


def test_a_writer_is_chosen_for_no_document_that_has_no_canonical_form() -> None:
    with pytest.raises(CanonicalizationRejected):
        canonical_writer({"a": [math.inf]})
