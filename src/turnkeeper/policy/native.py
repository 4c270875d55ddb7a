"""Simple conditions as plain functions, so that most steps are decided without entering a CEL runtime.

Answers for a part of CEL: comparisons of the Guardian's own counts and names, presence and text tests of an argument,
`&&`, `||`, `!`. Where a condition is a chain of `&&` of which only some parts are simple, those are its guard: one that
is false settles the whole. Must never differ from CEL in what it does answer: an error is None, and is absorbed by
what decides without it. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter, contains, eq, ge, gt, le, lt, ne
from typing import Any, Final, cast

from turnkeeper.policy.facts import FACT_NAMES, ApprovalFacts, Facts, SessionFacts, TurnFacts
from turnkeeper.policy.tokens import Token, tokenize

Truth = Callable[[Facts], bool | None]

MAX_NESTING: Final = 20

_INT64 = range(-(2**63), 2**63)
_ORDER: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_EQUALITY = ("==", "!=")
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "contains": contains,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
}
_MISSING = object()
_ARGUMENT = "argument"
_OPEN_FACTS = ("args", "payload")


@dataclass(frozen=True, slots=True)
class NativeCondition:
    """What a condition comes to. `complete` says that it is the whole; otherwise only False settles anything."""

    test: Truth
    complete: bool


@dataclass(frozen=True, slots=True)
class _Term:
    """A value and its kind: `bool`, `int`, `str` of a known place, or the agent's, which is anything or missing."""

    kind: str
    get: Callable[[Facts], object]
    constant: object = None


class _Unsupported(Exception):
    """Not a condition of this kind; CEL decides it."""


def native_condition(condition: str) -> NativeCondition | None:
    """The condition as functions; None where no part of it is simple."""
    tokens = tokenize(condition)
    if (whole := _read(tokens)) is not None:
        return NativeCondition(whole, complete=True)
    guards = [guard for part in _conjuncts(tokens) if (guard := _read(part)) is not None]
    return NativeCondition(_all(guards), complete=False) if guards else None


def _read(tokens: Sequence[Token]) -> Truth | None:
    try:
        return _Reader(tokens).whole()
    except _Unsupported:
        return None


def _conjuncts(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """The parts of a chain of `&&`; none where something weaker than `&&` joins them."""
    parts: list[Sequence[Token]] = []
    depth = start = 0
    for index, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.written in ("||", "?") and depth == 0:
            return []
        depth += (token.written in "([{") - (token.written in ")]}")
        if token.written == "&&" and depth == 0:
            parts.append(tokens[start:index])
            start = index + 1
    return [*parts, tokens[start:]]


class _Reader:
    """A recursive descent over the simple part of CEL's grammar."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Truth:
        """Everything as one condition. Raises `_Unsupported`."""
        truth = self._any()
        if self._at != len(self._tokens):
            raise _Unsupported
        return truth

    def _any(self) -> Truth:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise _Unsupported
        parts = [self._all()]
        while self._take("||"):
            parts.append(self._all())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _any(parts)

    def _all(self) -> Truth:
        parts = [self._comparison()]
        while self._take("&&"):
            parts.append(self._comparison())
        return parts[0] if len(parts) == 1 else _all(parts)

    def _comparison(self) -> Truth:
        if self._take("!"):
            return _not(self._single())
        if self._take("("):
            truth = self._any()
            self._expect(")")
            return truth
        if self._next() == "[":
            return self._exists(self._texts())
        if self._next() == "has":
            return self._has()
        if self._next() == "type":
            return self._is_text()
        return self._of(self._term())

    def _single(self) -> Truth:
        """What `!` binds to: it binds closer than any comparison."""
        if self._take("("):
            truth = self._any()
            self._expect(")")
            return truth
        if self._next() == "has":
            return self._has()
        term = self._term()
        return self._text_test(term) if self._next() == "." else _as_truth(term)

    def _of(self, term: _Term) -> Truth:
        following = self._next()
        if following == ".":
            return self._text_test(term)
        if following == "in":
            self._at += 1
            return _member(term, frozenset(self._texts()))
        if following in _ORDER:
            self._at += 1
            return _compared(term, following, self._term())
        return _as_truth(term)

    def _text_test(self, term: _Term) -> Truth:
        self._expect(".")
        test = _TEXT_TESTS.get(self._name())
        self._expect("(")
        wanted = self._text()
        self._expect(")")
        if test is None:
            raise _Unsupported
        return _tested(term, test, (wanted,))

    def _exists(self, texts: tuple[str, ...]) -> Truth:
        """`[...].exists(name, VALUE.contains(name))`."""
        for sign in (".", "exists", "("):
            self._expect(sign)
        variable = self._name()
        self._expect(",")
        term = self._term()
        self._expect(".")
        test = _TEXT_TESTS.get(self._name())
        for sign in ("(", variable, ")", ")"):
            self._expect(sign)
        if test is None or variable in FACT_NAMES:
            raise _Unsupported
        return _tested(term, test, texts)

    def _has(self) -> Truth:
        self._expect("has")
        self._expect("(")
        get = self._argument_getter()
        self._expect(")")
        return lambda facts: get(facts) is not _MISSING

    def _is_text(self) -> Truth:
        """`type(args.x) == string`."""
        for sign in ("type", "("):
            self._expect(sign)
        get = self._argument_getter()
        self._expect(")")
        wanted = {"==": True, "!=": False}.get(self._take_any())
        self._expect("string")
        if wanted is None:
            raise _Unsupported
        return lambda facts: None if (found := get(facts)) is _MISSING else isinstance(found, str) is wanted

    def _term(self) -> _Term:
        token = self._token()
        if token.kind == "text":
            return _constant(self._text())
        if token.kind == "number" or token.written == "-":
            return _constant(self._number())
        if token.written in ("true", "false"):
            self._at += 1
            return _constant(token.written == "true")
        if token.written in _OPEN_FACTS:
            return _Term(_ARGUMENT, self._argument_getter())
        return self._fact()

    def _fact(self) -> _Term:
        name = self._name()
        if name != "environment":
            self._expect(".")
            name = f"{name}.{self._name()}"
        if name not in _FACTS:
            raise _Unsupported
        return _FACTS[name]

    def _argument_getter(self) -> Callable[[Facts], object]:
        """`args.NAME` or `payload.NAME`: anything, or missing."""
        root = self._name()
        self._expect(".")
        name = self._name()
        if root == "args":
            return lambda facts: facts.arguments.get(name, _MISSING)
        if root == "payload":
            return lambda facts: facts.payload.get(name, _MISSING)
        raise _Unsupported

    def _number(self) -> int:
        written = "-" if self._take("-") else ""
        token = self._token()
        self._at += 1
        if token.kind != "number" or not token.written.isdecimal() or int(written + token.written) not in _INT64:
            raise _Unsupported
        return int(written + token.written)

    def _texts(self) -> tuple[str, ...]:
        self._expect("[")
        found = [self._text()]
        while self._take(","):
            found.append(self._text())
        self._expect("]")
        return tuple(found)

    def _text(self) -> str:
        token = self._token()
        self._at += 1
        inner = token.written[1:-1]
        if (
            token.kind != "text"
            or token.written[0] not in "\"'"
            or "\\" in inner
            or token.written[:3] in ('"""', "'''")
        ):
            raise _Unsupported
        return inner

    def _token(self) -> Token:
        if self._at >= len(self._tokens):
            raise _Unsupported
        return self._tokens[self._at]

    def _next(self) -> str:
        return self._tokens[self._at].written if self._at < len(self._tokens) else ""

    def _take(self, sign: str) -> bool:
        found = self._next() == sign
        self._at += found
        return found

    def _take_any(self) -> str:
        token = self._token()
        self._at += 1
        return token.written

    def _expect(self, written: str) -> None:
        if not self._take(written):
            raise _Unsupported

    def _name(self) -> str:
        token = self._token()
        if token.kind != "name":
            raise _Unsupported
        self._at += 1
        return token.written


def _any(parts: Sequence[Truth]) -> Truth:
    def test(facts: Facts) -> bool | None:
        outcome: bool | None = False
        for part in parts:
            truth = part(facts)
            if truth:
                return True
            if truth is None:
                outcome = None
        return outcome

    return test


def _all(parts: Sequence[Truth]) -> Truth:
    def test(facts: Facts) -> bool | None:
        outcome: bool | None = True
        for part in parts:
            truth = part(facts)
            if truth is False:
                return False
            if truth is None:
                outcome = None
        return outcome

    return test


def _not(part: Truth) -> Truth:
    return lambda facts: None if (truth := part(facts)) is None else not truth


def _as_truth(term: _Term) -> Truth:
    if term.kind != "bool":
        raise _Unsupported
    return cast("Truth", term.get)


def _compared(left: _Term, sign: str, right: _Term) -> Truth:
    if _ARGUMENT in (left.kind, right.kind):
        return _argument_compared(left, sign, right)
    if left.kind != right.kind or (left.kind == "bool" and sign not in _EQUALITY):
        raise _Unsupported
    order, get, other = _ORDER[sign], left.get, right.get
    if right.constant is not None:
        constant = right.constant
        return lambda facts: order(get(facts), constant)
    return lambda facts: order(get(facts), other(facts))


def _argument_compared(left: _Term, sign: str, right: _Term) -> Truth:
    """An argument against a text that is written out: equal to it only if it is a text."""
    if sign not in _EQUALITY or left.kind != _ARGUMENT or not isinstance(right.constant, str):
        raise _Unsupported
    get, constant, equal = left.get, right.constant, sign == "=="
    return lambda facts: None if (found := get(facts)) is _MISSING else (found == constant) is equal


def _member(term: _Term, texts: frozenset[str]) -> Truth:
    if term.kind not in ("str", _ARGUMENT):
        raise _Unsupported
    get = term.get

    def test(facts: Facts) -> bool | None:
        found = get(facts)
        return None if found is _MISSING else isinstance(found, str) and found in texts

    return test


def _tested(term: _Term, test: Callable[[str, str], bool], wanted: tuple[str, ...]) -> Truth:
    if term.kind not in ("str", _ARGUMENT):
        raise _Unsupported
    get = term.get

    def holds(facts: Facts) -> bool | None:
        found = get(facts)
        if not isinstance(found, str):
            return None
        for text in wanted:  # noqa: SIM110  any() takes up to three times as long
            if test(found, text):
                return True
        return False

    return holds


def _constant(value: object) -> _Term:
    return _Term(type(value).__name__, lambda _: value, value)


def _counted(name: str, part: TurnFacts | SessionFacts | ApprovalFacts) -> dict[str, _Term]:
    return {
        f"{name}.{member.name}": _Term(type(getattr(part, member.name)).__name__, attrgetter(f"{name}.{member.name}"))
        for member in fields(part)
    }


_FACTS: dict[str, _Term] = {
    **_counted("turn", TurnFacts()),
    **_counted("session", SessionFacts("")),
    **_counted("approval", ApprovalFacts()),
    "step.method": _Term("str", attrgetter("method")),
    "step.hook": _Term("str", attrgetter("hook")),
    "step.id": _Term("str", attrgetter("step_id")),
    "tool.name": _Term("str", lambda facts: facts.tool_name or ""),
    "agent.id": _Term("str", attrgetter("agent_id")),
    "environment": _Term("str", attrgetter("environment")),
    "provenance.trust": _Term("str", attrgetter("provenance.trust")),
    "intent.scope_mode": _Term("str", attrgetter("intent.scope_mode")),
    "intent.declared": _Term("bool", attrgetter("intent.declared")),
    **{
        f"intent.{name}": _Term(
            "bool", lambda facts, name=name: facts.intent.declared and getattr(facts.intent_match, name)
        )
        for name in ("covered", "covers_tool", "unclear")
    },
}
