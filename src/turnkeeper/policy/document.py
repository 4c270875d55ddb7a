"""Reading a YAML document that must not have two readings: every problem is refused with the path of its place.

Answers for plain data and for what a member may be. Must never resolve an alias, build an object, or let a key stand
twice. Pure.
"""

import re
from collections.abc import Hashable, Mapping
from typing import cast

import yaml

from turnkeeper.errors import TurnkeeperError


class PolicyRejected(TurnkeeperError):
    """A policy that cannot be used; `detail.path` says where. `not_supported_yet` for what isn't built."""

    code = "policy_rejected"


class _StrictLoader(yaml.SafeLoader):
    """Plain data only; a key that stands twice in one mapping, and any alias, is an error."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not used in policies")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002, RUF100  the library's signature
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if len({repr(key) for key in keys}) != len(keys):
            raise yaml.YAMLError(f"a key stands twice in the mapping at line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def load_document(content: bytes, what: str = "the policy") -> object:
    """The plain data in a YAML text. Raises `PolicyRejected`."""
    try:
        return cast("object", yaml.load(content.decode(), Loader=_StrictLoader))  # noqa: S506  a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyRejected(f"{what} is not readable YAML: {error}", detail={"path": ""}) from error


def mapping(
    value: object, path: str, allowed: frozenset[str] | None, *, required: tuple[str, ...] = ()
) -> Mapping[str, object]:
    """A mapping with text keys, of the known ones where `allowed` names them."""
    if not isinstance(value, dict):
        raise rejected(path, "must be a mapping")
    members = cast("dict[object, object]", value)
    for key in members:
        if not isinstance(key, str) or (allowed is not None and key not in allowed):
            known = "a text" if allowed is None else f"a known key; one of {', '.join(sorted(allowed))}"
            raise rejected(f"{path}.{key}".lstrip("."), f"is not {known}")
    for key in required:
        if key not in members:
            raise rejected(f"{path}.{key}".lstrip("."), "is required")
    return cast("Mapping[str, object]", members)


def sequence(value: object, path: str) -> list[object]:
    """A list."""
    if not isinstance(value, list):
        raise rejected(path, "must be a list")
    return cast("list[object]", value)


def texts(members: Mapping[str, object], key: str, path: str) -> tuple[str, ...]:
    """A member that is a list of texts; empty where it is absent."""
    if key not in members:
        return ()
    items = sequence(members[key], f"{path}.{key}")
    if not items:
        raise rejected(f"{path}.{key}", "must not be empty; leave it out to mean any")
    for index, item in enumerate(items):
        if not isinstance(item, str) or not item:
            raise rejected(f"{path}.{key}[{index}]", "must be a non-empty text")
    return tuple(cast("list[str]", items))


def optional_text(members: Mapping[str, object], key: str, path: str, limit: int) -> str | None:
    """A member that is a text of at most `limit` characters; None where it is absent."""
    if key not in members:
        return None
    value = members[key]
    if not isinstance(value, str) or not value.strip():
        raise rejected(f"{path}.{key}", "must be a non-empty text")
    if len(value) > limit:
        raise rejected(f"{path}.{key}", f"has more than {limit} characters")
    return value.strip()


def whole_number(value: object, path: str, lowest: int, highest: int) -> int:
    """A whole number within limits."""
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise rejected(path, f"must be a whole number from {lowest} to {highest}")
    return value


def one_of(value: object, path: str, allowed: tuple[str, ...]) -> str:
    """One of a few texts."""
    if not isinstance(value, str) or value not in allowed:
        raise rejected(path, f"must be one of {', '.join(allowed)}")
    return value


def matching(value: object, path: str, pattern: re.Pattern[str]) -> str:
    """A text of a certain form."""
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise rejected(path, f"must be a text of the form {pattern.pattern}")
    return value


def rejected(path: str, problem: str) -> PolicyRejected:
    """The refusal of one place."""
    return PolicyRejected(f"{path or 'the policy'} {problem}", detail={"path": path})
