"""Which window a rule counts in: the turn, whose counts the next turnStart resets, or the whole session.

Answers for the name `scope` in conditions, which stands for the window that the rule declares, and for a rule of one
window never reading the counts of the other: an agent that opens and closes turns resets only what a rule says it may.
Pure.
"""

from collections.abc import Iterator
from typing import Final

from turnkeeper.policy.document import rejected
from turnkeeper.policy.tokens import Token, tokenize

TURN: Final = "turn"
SESSION: Final = "session"
SCOPES: Final = (TURN, SESSION)
SCOPE_NAME: Final = "scope"
SCOPED_FACTS: Final = frozenset({"steps", "tool_calls", "tainted", "taint_step", "denials", "deferrals"})
"""What `scope.` can be asked for: what is counted in both windows."""

# What names the turn, and is no count of what happened in it.
_ABOUT_THE_TURN = frozenset({"id", "open", "denied", "parent_id", "triggered_by"})


def scoped(condition: str, scope: str | None) -> str:
    """The condition with `scope` replaced by the window's own name."""
    if scope is None:
        return condition
    parts: list[str] = []
    position = 0
    for name, _ in _roots(condition):
        if name.written == SCOPE_NAME:
            parts += [condition[position : name.start], scope]
            position = name.end
    return "".join(parts) + condition[position:]


def check_scope(condition: str, scope: str | None, path: str) -> None:
    """Raises `PolicyRejected` where a condition reads a window that its rule does not declare."""
    for token, member in _roots(condition):
        name = token.written
        if name == SCOPE_NAME:
            if scope is None:
                raise rejected(path, "reads scope, and the rule declares none; add scope: turn or scope: session")
            if member not in SCOPED_FACTS:
                raise rejected(path, f"reads scope.{member}, which is none of {', '.join(sorted(SCOPED_FACTS))}")
        elif scope == SESSION and name == TURN and member not in _ABOUT_THE_TURN:
            raise rejected(path, f"reads turn.{member}, which a turnStart resets; the rule's scope is the session")
        elif scope == TURN and name == SESSION and member != "id":
            raise rejected(path, f"reads session.{member}; the rule's scope is the turn")


def _roots(condition: str) -> Iterator[tuple[Token, str]]:
    """The names that are no members themselves, each with the member that is read from it, if one is."""
    tokens = tokenize(condition)
    for index, token in enumerate(tokens):
        if token.kind != "name" or (index and tokens[index - 1].written == "."):
            continue
        dot, member = tokens[index + 1 : index + 2], tokens[index + 2 : index + 3]
        yield token, member[0].written if dot and member and dot[0].written == "." else ""
