import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.idempotency import IdempotencyKeyInvalid, fingerprint, parse_key

PATH = "/v1/sessions/ses_1/turns"


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("invoice-4711", "invoice-4711"),
        ('"invoice-4711"', "invoice-4711"),
        ('"', '"'),
        ("a b", "a b"),
        ("x" * 255,) * 2,
    ],
)
def test_a_key_is_the_text_without_the_quotes_around_it(header: str, key: str) -> None:
    assert parse_key(header) == key


@pytest.mark.parametrize("header", ["", '""', " ", "x" * 256, "caf\u00e9", "tab\there", "nul\0", "line\n", "\x7f"])
def test_what_is_not_1_to_255_printable_characters_is_no_key(header: str) -> None:
    with pytest.raises(IdempotencyKeyInvalid):
        parse_key(header)


def test_key_order_and_number_spelling_make_the_same_request() -> None:
    assert fingerprint("POST", PATH, {"a": 1, "b": [2]}) == fingerprint("post", PATH, {"b": [2.0], "a": 1.0})


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("PUT", PATH, {"a": 1}), ("POST", "/v1/sessions/ses_2/turns", {"a": 1}), ("POST", PATH, {"a": 2})],
)
def test_another_method_path_or_body_is_another_request(method: str, path: str, body: dict[str, int]) -> None:
    assert fingerprint(method, path, body) != fingerprint("POST", PATH, {"a": 1})  # pyright: ignore[reportArgumentType] (dict is invariant)


def test_integers_beyond_the_canonical_form_still_have_a_fingerprint() -> None:
    one, other = (fingerprint("POST", PATH, {"n": 2**60 + 1 + extra, "a": None}) for extra in (0, 2))

    assert one != other
    assert one == fingerprint("POST", PATH, {"a": None, "n": 2**60 + 1})


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text("ab"), st.lists, max_leaves=6), st.data())
def test_a_fingerprint_is_the_same_for_the_same_body(body: object, data: st.DataObject) -> None:
    members = {"x": body, "y": 1, "z": None}
    shuffled = {name: members[name] for name in data.draw(st.permutations(sorted(members)))}

    assert fingerprint("POST", PATH, members) == fingerprint("POST", PATH, shuffled)  # pyright: ignore[reportArgumentType] (generated JSON)
