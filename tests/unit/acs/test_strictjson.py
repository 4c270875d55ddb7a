"""Strict JSON: one reading or a refusal, and slices that keep every token."""

import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.acs.samples import JSON_OBJECTS, JSON_VALUES

from turnkeeper.acs import JsonLimits, JsonRejected, member_slices, minify, parse_object, parse_strict
from turnkeeper.errors import LocalProtocolError

_SPACES = st.lists(st.sampled_from(["", " ", "\n", "\t\r "]), min_size=1, max_size=5)
_OUTSIDE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')


def _spaced(text: str, spaces: list[str]) -> str:
    tokens: list[str] = _OUTSIDE.findall(text)
    return "".join(spaces[index % len(spaces)] + token for index, token in enumerate(tokens)) + spaces[0]


@given(JSON_VALUES)
def test_a_text_that_others_write_is_read_as_they_meant_it(value: Any) -> None:
    assert parse_strict(json.dumps(value).encode()) == value
    assert parse_strict(orjson.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"{}x", "invalid_json"),
        (b"\xef\xbb\xbf{}", "invalid_json"),
        (b'{"a":1,}', "invalid_json"),
        (b"[01]", "invalid_json"),
        (b'"\xff"', "invalid_json"),
        (b'"\n"', "invalid_json"),
        (b'{"a":1,"a":2}', "duplicate_key"),
        (b'{"a":1,"\\u0061":2}', "duplicate_key"),
        (b'[{"x":{"b":1,"c":2,"b":1}}]', "duplicate_key"),
        (b'"\\ud800"', "lone_surrogate"),
        (b'"\\udc00\\ud800"', "lone_surrogate"),
        (b'{"\\ud83d":1}', "lone_surrogate"),
        (b'"\xed\xa0\x80"', "lone_surrogate"),
        (b"NaN", "not_finite"),
        (b'{"a":[1,-Infinity]}', "not_finite"),
        (b"[Infinity]", "not_finite"),
        (b"1e999", "not_finite"),
        (b"-1e999", "not_finite"),
        (b"1" * 400, "not_finite"),
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep"),
        (b"[" * 500_000, "too_deep"),
        (b'{"a":' * 200_000, "too_deep"),
        (b" " * 1_048_577, "too_large"),
    ],
    ids=lambda value: ascii(value[:16]),
)
def test_a_text_without_one_reading_is_refused_by_its_code(text: bytes, code: str) -> None:
    with pytest.raises(JsonRejected) as refused:
        parse_strict(text)
    assert refused.value.error_code == code


def test_a_refusal_names_the_member_that_occurs_twice_and_cuts_a_long_name() -> None:
    name = "n" * 1000
    with pytest.raises(JsonRejected) as refused:
        parse_strict(f'{{"{name}":1,"{name}":2}}'.encode())
    assert refused.value.detail == {"key": "n" * 100}


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 64 + b"]" * 64,
        b"[" + b"[]," * 1000 + b"[]]",
        b'["' + b"[" * 100 + b'"]',
        b'["\\"' + b"[" * 100 + b'", "\\\\", []]',
    ],
    ids=["deepest", "wide", "brackets in a string", "brackets after an escape"],
)
def test_only_real_nesting_counts_as_depth(text: bytes) -> None:
    assert parse_strict(text) == json.loads(text)


@given(st.integers(1, 90), st.sampled_from(['"]"', '"}"', '"\\\\"', '"\\""', "[]"]))
def test_strings_cannot_hide_depth(depth: int, filler: str) -> None:
    text = (f"[{filler}," * depth + "1" + f",{filler}]" * depth).encode()
    real = depth + (filler == "[]")
    if real <= 64:
        assert parse_strict(text) == json.loads(text)
        return
    with pytest.raises(JsonRejected):
        parse_strict(text)


@pytest.mark.parametrize("integer", [2**53 + 1, 2**63, 2**64 + 1, -(2**63) - 1, 10**300 + 7])
def test_an_integer_is_kept_exactly(integer: int) -> None:
    assert parse_strict(f'{{"n":{integer}}}'.encode()) == {"n": integer}


def test_the_root_of_an_object_text_is_an_object() -> None:
    assert parse_object(b'{"a":1}') == {"a": 1}
    with pytest.raises(JsonRejected):
        parse_object(b"[]")


def test_limits_are_the_callers_to_set_within_reason() -> None:
    with pytest.raises(JsonRejected, match="8 bytes"):
        parse_strict(b"[1,2,34]", JsonLimits(max_bytes=7))
    with pytest.raises(JsonRejected, match="1 levels"):
        parse_strict(b"[[]]", JsonLimits(max_depth=1))
    for depth in (0, 201):
        with pytest.raises(LocalProtocolError):
            JsonLimits(max_depth=depth)


@given(JSON_VALUES, _SPACES, st.booleans())
def test_minifying_drops_white_space_and_nothing_else(value: Any, spaces: list[str], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    spaced = _spaced(text, spaces)
    assert minify(spaced) == text
    assert minify(text) == text
    assert parse_strict(minify(spaced.encode()).encode()) == value


@given(JSON_OBJECTS, _SPACES)
def test_slices_hold_each_member_as_it_was_spelled(members: dict[str, Any], spaces: list[str]) -> None:
    spelled = {name: json.dumps(value, separators=(",", ":")) for name, value in members.items()}
    text = "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in spelled.items()) + "}"
    slices = member_slices(_spaced(text, spaces))
    assert slices == spelled
    assert list(slices) == list(members)


def test_slices_keep_key_order_number_spelling_and_escapes() -> None:
    text = '{ "m" : {"b":1.0, "a":1e2 ,"\\u0063":"\\/ \\" x"} , "n\\u0041":-0 }'
    assert member_slices(text) == {"m": '{"b":1.0,"a":1e2,"\\u0063":"\\/ \\" x"}', "nA": "-0"}


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '"\\', '"' + '\\"' * 400_000, "[]", '{"a":"\ud800"}'])
def test_slices_of_a_text_that_is_refused_are_refused(text: str) -> None:
    with pytest.raises(JsonRejected):
        member_slices(text)


@example(b"20000000000000000001")
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        value = parse_strict(body)
    except JsonRejected:
        return
    # orjson reads an integer of more than 64 bits as a double; we keep it.
    assert json.loads(body.decode()) == value
