"""Values that lie encrypted: whole, for what they belong to, with the right key, or not at all."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.sealing import SealBroken, Sealer, SealKeyMalformed

SEALER = Sealer(b"5e" * 32 + b"\n")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=50)


@given(TEXTS, TEXTS, TEXTS)
def test_a_value_opens_for_what_it_was_sealed_for_and_for_nothing_else(value: str, bound: str, other: str) -> None:
    sealed = SEALER.seal(value, bound)
    assert SEALER.open(sealed, bound) == value
    assert SEALER.seal(value, bound) != sealed
    if other != bound:
        with pytest.raises(SealBroken):
            SEALER.open(sealed, other)


@given(st.integers(min_value=0, max_value=30), st.integers(min_value=1, max_value=255))
def test_one_changed_byte_breaks_the_seal(place: int, change: int) -> None:
    raw = bytearray(base64.b64decode(SEALER.seal("secret", "bound")))
    raw[place] ^= change
    with pytest.raises(SealBroken):
        SEALER.open(base64.b64encode(raw).decode(), "bound")


@pytest.mark.parametrize("sealed", ["", "AQ==", "not base64!", "é"])
def test_what_was_never_sealed_is_no_value(sealed: str) -> None:
    with pytest.raises(SealBroken):
        SEALER.open(sealed, "bound")


def test_another_key_opens_nothing_and_marks_differently() -> None:
    other = Sealer(b"6f" * 32)
    with pytest.raises(SealBroken):
        other.open(SEALER.seal("secret", "bound"), "bound")
    assert SEALER.mark("secret") == Sealer(b"5e" * 32).mark("secret") != other.mark("secret")


@pytest.mark.parametrize("key", [b"", b"5e" * 31, b"zz" * 32, b"\xff" * 64])
def test_a_key_file_that_was_cut_short_is_no_key(key: bytes) -> None:
    with pytest.raises(SealKeyMalformed):
        Sealer(key)
