"""Records that are made many times a second.

Answers for what `@dataclass(frozen=True, slots=True)` is, but for who enforces that nothing is assigned: the type
checker, and no longer each instance at run time. A frozen dataclass takes three times as long to make, a call for each
member, and a step at the Guardian makes some thirty of them (docs/decisions/0012).
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Record = TypeVar("_Record")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_Record]) -> type[_Record]:
    """A dataclass with slots, equal and hashed by its members. Nobody assigns to one: take `dataclasses.replace`."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record_with_cache(cls: type[_Record]) -> type[_Record]:
    """The same without slots: what a `cached_property` worked out has a place in it."""
    return dataclass(unsafe_hash=True)(cls)
