"""Prefixed ULIDs and their UUID form."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.ids import IdMalformed, RandomIds, id_from_uuid, is_id, uuid_of


class StoppedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        """Always the same moment."""
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def monotonic_ms(self) -> int:
        """Always the same."""
        return 0


bits = st.integers(min_value=0, max_value=2**80 - 1)


@given(st.lists(bits, min_size=2, max_size=20))
def test_ids_of_one_millisecond_increase_whatever_chance_says(chances: list[int]) -> None:
    """Lists ordered by id are ordered by making."""
    left = iter(chances)
    ids = RandomIds(StoppedClock(), lambda _: next(left))
    made = [ids.new("trn") for _ in chances]
    assert made == sorted(set(made))


@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_an_id_and_its_uuid_carry_the_same_bits(value: int) -> None:
    """The platform's session id can be told from the ACS one and back."""
    identifier = id_from_uuid("ses", str(UUID(int=value)))
    assert is_id(identifier, "ses")
    assert uuid_of(identifier) == str(UUID(int=value))


def test_a_new_id_has_its_prefix_and_a_uuid_is_random_of_version_four() -> None:
    """What the wire shows."""
    ids = RandomIds(StoppedClock())
    assert is_id(ids.new("agt"), "agt")
    assert UUID(ids.uuid()).version == 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "trn_",
        "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0A",
        "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0ABC",
        "trn_01kbc3y5m8q2v7r9t4w6x1z0ab",
        "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB\n",
        "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AU",
        "ses_01KBC3Y5M8Q2V7R9T4W6X1Z0AB",
    ],
)
def test_another_form_is_not_an_id(text: str) -> None:
    """Length, alphabet, prefix and end are checked."""
    assert not is_id(text, "trn")


def test_more_than_128_bits_are_no_uuid() -> None:
    """26 characters hold 130 bits; the first may be 7 at most."""
    with pytest.raises(IdMalformed):
        uuid_of("trn_8ZZZZZZZZZZZZZZZZZZZZZZZZZ")
    with pytest.raises(IdMalformed):
        id_from_uuid("trn", "not-a-uuid")
