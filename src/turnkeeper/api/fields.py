"""Typed members out of a parsed JSON object, with every wrong one named (contract 1 and 13).

Answers for a request object that is closed: a member that the contract does not know is `unknown_field`, one that it
knows and we have not built is `not_supported_yet`, each with its JSON Pointer. `null` counts as left out.
"""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, cast

from turnkeeper.acs.strictjson import JsonObject, JsonValue
from turnkeeper.api.problems import Issue, refused_for

MAX_SAFE_INTEGER: Final = 2**53 - 1
_SHOWN_CHARACTERS = 100
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)


class Fields:
    """One object of a body. Readers return a value of the wanted type always; what was wrong is kept until `finish`."""

    def __init__(self, members: JsonObject, at: str = "", issues: list[Issue] | None = None) -> None:
        self._members = members
        self._at = at
        self._issues: list[Issue] = [] if issues is None else issues

    def close(self, known: Collection[str], unbuilt: Mapping[str, tuple[JsonValue, ...]]) -> None:
        """Notes members that are not `known`. An `unbuilt` one may have one of the values it would have anyway."""
        for name, value in self._members.items():
            if name in unbuilt:
                if value is not None and not _is_one_of(value, unbuilt[name]):
                    self.note(name, "not_supported_yet", f"{_shown(name)} is not supported yet")
            elif name not in known:
                self.note(name, "unknown_field", f"{_shown(name)} is not a field of this request")

    def has(self, name: str) -> bool:
        """Whether the member is there and not `null`."""
        return self._members.get(name) is not None

    def text(self, name: str, *, max_characters: int, one_line: bool = True) -> str | None:
        """A string of at most `max_characters`; `one_line` refuses control characters."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            return self._wrong(name, "is not a string")
        if len(value) > max_characters:
            return self._wrong(name, f"is longer than {max_characters} characters")
        if one_line and _CONTROL.search(value) is not None:
            return self._wrong(name, "has control characters")
        return value

    def required_text(self, name: str, *, max_characters: int, one_line: bool = True) -> str:
        """Like `text`, and neither missing nor blank."""
        value = self.text(name, max_characters=max_characters, one_line=one_line)
        if value is None and self.has(name):
            return ""
        if value is None or not value.strip():
            self.note(name, "invalid_field", f"{name} is required and not empty")
        return value or ""

    def integer(self, name: str, *, low: int, high: int = MAX_SAFE_INTEGER, code: str = "invalid_field") -> int | None:
        """A whole number from `low` to `high`; `1.0` is one."""
        value = self._members.get(name)
        if value is None:
            return None
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(whole, bool) or not isinstance(whole, int):
            return self._wrong(name, "is not a whole number", code)
        if not low <= whole <= high:
            return self._wrong(name, f"is not between {low} and {high}", code)
        return whole

    def flag(self, name: str) -> bool:
        """True or false; false where nothing is said."""
        value = self._members.get(name)
        if value is not None and not isinstance(value, bool):
            self._wrong(name, "is neither true nor false")
        return value is True

    def time(self, name: str) -> datetime | None:
        """A time of RFC 3339, in UTC."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
            return self._wrong(name, "is not a time such as 2026-12-01T10:00:00Z")
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError):
            return self._wrong(name, "is not a time that exists")

    def choice(self, name: str, options: tuple[str, ...], default: str) -> str:
        """One of the options."""
        value = self._members.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or value not in options:
            self._wrong(name, f"is not one of {', '.join(options)}")
            return default
        return value

    def texts(self, name: str, *, max_items: int) -> tuple[str, ...]:
        """A list of distinct strings."""
        value = self._members.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._wrong(name, "is not a list of strings")
            return ()
        items = cast("list[str]", value)
        if len(items) > max_items:
            self._wrong(name, f"has more than {max_items} items")
        elif len(set(items)) < len(items):
            self._wrong(name, "names something twice")
        return tuple(items)

    def object(self, name: str) -> "Fields | None":
        """A member that is an object, to be read in turn."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            return self._wrong(name, "is not an object")
        return Fields(value, self.pointer(name), self._issues)

    def required_object(self, name: str) -> "Fields":
        """Like `object`; one without members in place of a missing one."""
        if not self.has(name):
            self.note(name, "invalid_field", f"{name} is required")
        return self.object(name) or Fields({}, self.pointer(name), self._issues)

    def objects(self, name: str, *, max_items: int) -> list["Fields"]:
        """The elements of a list of objects, each to be read in turn; what is no object is noted and left empty."""
        items = self._members.get(name)
        if not isinstance(items, list) or len(items) > max_items:
            self._wrong(name, f"is not a list of at most {max_items} objects")
            return []
        return [self.element(name, index, item) for index, item in enumerate(items)]

    def element(self, name: str, index: int, item: JsonValue) -> "Fields":
        """One element of a list, to be read as an object in turn."""
        return self._element(f"{self.pointer(name)}/{index}", item)

    def _element(self, at: str, item: JsonValue) -> "Fields":
        if isinstance(item, dict):
            return Fields(item, at, self._issues)
        self._issues.append(Issue(at, "invalid_field", f"{at} is not an object"))
        return Fields({}, at, self._issues)

    def raw_object(self, name: str, slices: Mapping[str, str], *, max_bytes: int) -> str | None:
        """The text of a member that is an object, as received without white space."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            return self._wrong(name, "is not an object")
        if len(slices[name].encode()) > max_bytes:
            return self._wrong(name, f"is longer than {max_bytes} bytes")
        return slices[name]

    def members(self) -> JsonObject:
        """The object itself."""
        return self._members

    def value(self, name: str) -> JsonValue:
        """A member as it is; `None` when it is missing."""
        return self._members.get(name)

    def pointer(self, name: str) -> str:
        """The JSON Pointer of a member."""
        return f"{self._at}/{name.replace('~', '~0').replace('/', '~1')[:_SHOWN_CHARACTERS]}"

    def note(self, name: str, code: str, message: str) -> None:
        """Keeps one thing that is wrong with a member."""
        self._issues.append(Issue(self.pointer(name), code, message))

    def note_whole(self, code: str, why: str) -> None:
        """Keeps one thing that is wrong with this object itself."""
        self._issues.append(Issue(self._at, code, f"{self._at} {why}"))

    def finish(self) -> None:
        """Raises `RequestRefused` if anything was wrong in this object or those read from it."""
        if self._issues:
            raise refused_for(self._issues)

    def _wrong(self, name: str, why: str, code: str = "invalid_field") -> None:
        self.note(name, code, f"{self.pointer(name)} {why}")


def _shown(name: str) -> str:
    return repr(name[:_SHOWN_CHARACTERS])


def _is_one_of(value: JsonValue, options: tuple[JsonValue, ...]) -> bool:
    # To Python `True` is 1.
    return any(type(value) is type(option) and value == option for option in options)
