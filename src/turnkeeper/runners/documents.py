"""Members out of a runner's body, each with the type it has to have. Raises at the first that is wrong. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

from turnkeeper.acs import JsonObject, JsonValue
from turnkeeper.api.problems import RequestRefused

MAX_SAFE_INTEGER: Final = 2**53 - 1


class RunnerFields:
    """One object that has exactly the members `names`. Raises `RequestRefused` for any other."""

    def __init__(self, members: Mapping[str, JsonValue], names: Collection[str], at: str = "") -> None:
        self._members = members
        self._at = at
        extra = sorted(set(members) - set(names))
        if extra:
            raise RequestRefused("unknown_field", f"{at}/{extra[0][:64]} is not a member of this request")

    def require(self, name: str) -> JsonValue:
        """The member, which may be null. Raises `RequestRefused` where it is missing."""
        if name not in self._members:
            raise self.wrong(name, "is required")
        return self._members[name]

    def wrong(self, name: str, what: str) -> RequestRefused:
        """The refusal of a member."""
        return RequestRefused("invalid_field", f"{self._at}/{name} {what}", param=f"{self._at}/{name}")

    def text(self, name: str) -> str:
        """A string."""
        value = self.require(name)
        if not isinstance(value, str):
            raise self.wrong(name, "is not a string")
        return value

    def integer(self, name: str, *, low: int = 1, high: int = MAX_SAFE_INTEGER) -> int:
        """A whole number."""
        value = self.require(name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"is not a whole number from {low} to {high}")
        return value

    def choice(self, name: str, options: Sequence[str]) -> str:
        """One of the options."""
        value = self.text(name)
        if value not in options:
            raise self.wrong(name, f"is not one of {', '.join(options)}")
        return value

    def object(self, name: str) -> JsonObject:
        """An object."""
        value = self.require(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "is not an object")
        return value

    def texts(self, name: str, most: int) -> Sequence[str]:
        """A list of strings."""
        items = self._list(name, most)
        if not all(isinstance(item, str) for item in items):
            raise self.wrong(name, "is not a list of strings")
        return cast("Sequence[str]", items)

    def objects(self, name: str, most: int) -> Sequence[JsonObject]:
        """A list of objects."""
        items = self._list(name, most)
        if not all(isinstance(item, dict) for item in items):
            raise self.wrong(name, "is not a list of objects")
        return cast("Sequence[JsonObject]", items)

    def _list(self, name: str, most: int) -> Sequence[JsonValue]:
        value = self.require(name)
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise self.wrong(name, f"is not a list of 1 to {most} items")
        return value
