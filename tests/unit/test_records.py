"""Records: what a frozen dataclass with slots is, as far as whoever reads and copies one can tell."""

from dataclasses import fields, replace
from functools import cached_property

import pytest

from turnkeeper.records import record, record_with_cache


@record
class _Point:
    """A place."""

    x: int
    y: int = 0


@record_with_cache
class _Line:
    """Two places."""

    length: int

    @cached_property
    def double(self) -> list[int]:
        """Worked out once."""
        return [self.length, self.length]


def test_records_are_equal_and_hashed_by_their_members() -> None:
    assert _Point(1, 2) == replace(_Point(1), y=2)
    assert {_Point(1, 2), _Point(1, 2), _Point(2, 1)} == {_Point(1, 2), _Point(2, 1)}
    assert [member.name for member in fields(_Point(1))] == ["x", "y"]


def test_a_record_has_no_place_for_what_it_does_not_declare() -> None:
    with pytest.raises(AttributeError):
        setattr(_Point(1), "z", 3)  # noqa: B010  what a type checker refuses


def test_what_a_record_with_a_cache_works_out_is_kept_and_not_copied() -> None:
    line = _Line(2)
    assert line.double is line.double
    assert replace(line, length=3).double == [3, 3]
