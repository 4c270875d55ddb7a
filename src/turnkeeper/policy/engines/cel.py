"""The built-in rules with conditions in CEL, the Common Expression Language, evaluated in process.

Answers for one decision per step: rules are filtered by hook and tool first, and what is left shares one activation.
The conditions left are first asked together (`a || b || c`): where none holds, which is the common case, one
evaluation has shown it. Where one holds or fails, each is asked alone, so that the decision names its rule.
Bounded: a comprehension ends after the runtime's iteration budget (10,000), `matches` is linear (RE2), recursion in
an expression is limited. Must never read an error as "the rule does not match": an absent member is an error, so
conditions ask `has(...)` first.
"""

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from cel_expr_python import cel

from turnkeeper.acs import Decision, PolicyReference
from turnkeeper.policy.composition import compose
from turnkeeper.policy.facts import FACT_NAMES, Facts
from turnkeeper.policy.rules import PolicyRejected, Rule, RuleSet

MAX_REMEMBERED_SELECTIONS: Final = 256
MAX_REMEMBERED_NAME_CHARACTERS: Final = 128

_BOOLEAN_OR_DYNAMIC = ("BOOL", "DYN")
_TEXT_FACTS = frozenset({"environment"})


@dataclass(frozen=True, slots=True)
class _Compiled:
    rule: Rule
    tools: re.Pattern[str] | None
    condition: cel.Expression | None


class CelEngine:
    """A rule set ready to decide. Raises `PolicyRejected` for a condition that does not compile, naming its rule."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._environment = cel.NewEnv(variables={name: _type_of(name) for name in FACT_NAMES})
        self._compiled = tuple(self._compile(index, rule) for index, rule in enumerate(rules.rules))
        self._remembered = lru_cache(maxsize=MAX_REMEMBERED_SELECTIONS)(self._select)
        self._any_of = lru_cache(maxsize=MAX_REMEMBERED_SELECTIONS)(self._compile_together)

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        return self._rules.reference()

    def evaluate(self, facts: Facts) -> Decision:
        """The policy's word on one step."""
        tool = facts.tool_name
        long = tool is not None and len(tool) > MAX_REMEMBERED_NAME_CHARACTERS
        unconditional, conditional = (self._select if long else self._remembered)(facts.hook, tool)
        if not conditional:
            return compose(self._rules, unconditional, ())
        return self._evaluate_conditions(facts, unconditional, conditional)

    def _evaluate_conditions(
        self, facts: Facts, unconditional: Sequence[Rule], conditional: tuple[int, ...]
    ) -> Decision:
        activation = self._environment.Activation(_without_nul(facts.to_variables()))
        if len(conditional) > 1 and _truth(self._any_of(conditional), activation) is False:
            return compose(self._rules, unconditional, ())
        matched, failed = list(unconditional), list[Rule]()
        for index in conditional:
            truth = _truth(self._compiled[index].condition, activation)
            if truth is not False:
                (failed if truth is None else matched).append(self._compiled[index].rule)
        return compose(self._rules, matched, failed)

    def _select(self, hook: str, tool: str | None) -> tuple[tuple[Rule, ...], tuple[int, ...]]:
        """The rules that hold without a condition, and the indexes of those that have one."""
        found = [index for index, compiled in enumerate(self._compiled) if _concerns(compiled, hook, tool)]
        unconditional = tuple(self._compiled[index].rule for index in found if self._compiled[index].condition is None)
        return unconditional, tuple(index for index in found if self._compiled[index].condition is not None)

    def _compile_together(self, conditional: tuple[int, ...]) -> cel.Expression | None:
        text = " || ".join(f"({self._rules.rules[index].when}\n)" for index in conditional)
        try:
            return self._environment.compile(text)
        except RuntimeError:
            # Too long for the parser as one; each alone is not.
            return None

    def _compile(self, index: int, rule: Rule) -> _Compiled:
        tools = "|".join(fnmatch.translate(pattern) for pattern in rule.tools)
        return _Compiled(rule, re.compile(tools) if tools else None, self._condition(index, rule))

    def _condition(self, index: int, rule: Rule) -> cel.Expression | None:
        if rule.when is None:
            return None
        path = f"rules[{index}].when"
        try:
            expression = self._environment.compile(rule.when)
        except RuntimeError as error:
            raise PolicyRejected(
                f"{path} of rule {rule.id!r} is not CEL: {error}", detail={"path": path, "rule_id": rule.id}
            ) from error
        if expression.return_type().name() not in _BOOLEAN_OR_DYNAMIC:
            raise PolicyRejected(
                f"{path} of rule {rule.id!r} is {expression.return_type().name()}, not true or false",
                detail={"path": path, "rule_id": rule.id},
            )
        return expression


def _without_nul(value: object) -> Any:
    """The value with U+FFFD for every NUL.

    INVARIANT: rules see a text whole. The runtime ends one at its first NUL, so what stands behind it would be hidden.
    """
    if isinstance(value, str):
        return value.replace("\0", "\ufffd") if "\0" in value else value
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {_without_nul(name): _without_nul(member) for name, member in members.items()}
    if isinstance(value, list):
        return [_without_nul(item) for item in cast("list[object]", value)]
    return value


def _type_of(name: str) -> cel.Type:
    return cel.Type.STRING if name in _TEXT_FACTS else cel.Type.Map(cel.Type.STRING, cel.Type.DYN)


def _concerns(compiled: _Compiled, hook: str, tool: str | None) -> bool:
    if compiled.rule.hooks and hook not in compiled.rule.hooks:
        return False
    if compiled.tools is None:
        return True
    return tool is not None and compiled.tools.match(tool) is not None


def _truth(condition: cel.Expression | None, activation: cel.Activation) -> bool | None:
    """Whether the condition holds; None where it has no truth value: an error, or a value that is not a boolean."""
    if condition is None:
        return True
    try:
        value = condition.eval(activation).value()
    except RuntimeError:
        return None
    return value if isinstance(value, bool) else None
