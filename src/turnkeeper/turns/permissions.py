"""What an agent's own permissions say about its tools (contract 2.1): allow, deny, or ask a person first.

Pure. The most specific pattern counts: a tool's name before any pattern, then the pattern with the most letters of its
own; of two equals the stricter. Where no pattern matches, permissions say nothing and the Guardian decides alone.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias

Permission: TypeAlias = Literal["allow", "deny", "ask"]

PERMISSIONS: Final = ("allow", "deny", "ask")
MAX_PERMISSIONS: Final = 64
ANY: Final = "*"
PATTERN_FORM: Final = re.compile(r"[A-Za-z0-9_.*-]{1,128}\Z")

_STRICTNESS: Final[Mapping[Permission, int]] = {"allow": 0, "ask": 1, "deny": 2}


def permission_for(permissions: Mapping[str, Permission], tool: str) -> Permission:
    """What holds for a tool; `allow` where nothing is said."""
    matching = [pattern for pattern in permissions if _matches(pattern, tool)]
    if not matching:
        return "allow"
    best = max(_specificity(pattern, tool) for pattern in matching)
    equals: list[Permission] = [permissions[pattern] for pattern in matching if _specificity(pattern, tool) == best]
    return max(equals, key=lambda permission: _STRICTNESS[permission])


def _specificity(pattern: str, tool: str) -> tuple[bool, int]:
    return pattern == tool, len(pattern.replace(ANY, ""))


def _matches(pattern: str, tool: str) -> bool:
    return _compiled(pattern).fullmatch(tool) is not None


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in re.split(r"\*+", pattern)), re.DOTALL)
