"""The words of a condition in CEL: enough of its grammar to know a name from a text, and a whole from its parts.

Answers for texts and comments never being taken for code. Knows nothing of meaning. Pure.
"""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)"""
    # A raw text has no escapes; every other one may hold its own quote behind a backslash.
    r"""|(?P<text>(?i:r|br|rb)(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')"""
    r"""|(?i:b?)(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))"""
    r"""|(?P<number>[0-9][0-9A-Za-z_]*(?:\.[0-9][0-9A-Za-z_]*)?)"""
    r"""|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<sign>\|\||&&|==|!=|<=|>=|.)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One word: `text`, `number`, `name` or `sign`, as written, and where it starts."""

    kind: str
    written: str
    start: int

    @property
    def end(self) -> int:
        """Where the next one may start."""
        return self.start + len(self.written)


def tokenize(condition: str) -> tuple[Token, ...]:
    """The words of a condition, without space and comments."""
    return tuple(
        Token(match.lastgroup or "sign", match[0], match.start())
        for match in _TOKEN.finditer(condition)
        if match.lastgroup != "space"
    )
