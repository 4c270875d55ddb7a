"""The built-in rules with conditions in CEL, the Common Expression Language, evaluated in process.

Answers for one decision per step: rules are filtered by hook and tool first, and what is left shares one activation.
Bounded: a comprehension ends after the runtime's iteration budget (10,000), `matches` is linear (RE2), recursion in
an expression is limited. Must never read an error as "the rule does not match": an absent member is an error, so
conditions ask `has(...)` first.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cel_expr_python import cel

from turnkeeper.acs import Decision, PolicyReference
from turnkeeper.policy.composition import compose
from turnkeeper.policy.facts import FACT_NAMES, Facts
from turnkeeper.policy.rules import PolicyRejected, Rule, RuleSet

MAX_REMEMBERED_HOOKS: Final = 256

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
        self._for_hook = lru_cache(maxsize=MAX_REMEMBERED_HOOKS)(self._select)

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        return self._rules.reference()

    def evaluate(self, facts: Facts) -> Decision:
        """The policy's word on one step."""
        tool = facts.tool_name
        candidates = [found for found in self._for_hook(facts.hook) if _concerns(found, tool)]
        matched = [found.rule for found in candidates if found.condition is None]
        failed: list[Rule] = []
        conditional = [(found.rule, found.condition) for found in candidates if found.condition is not None]
        if conditional:
            self._evaluate_conditions(conditional, facts, matched, failed)
        return compose(self._rules, matched, failed)

    def _evaluate_conditions(
        self,
        conditional: Sequence[tuple[Rule, cel.Expression]],
        facts: Facts,
        matched: list[Rule],
        failed: list[Rule],
    ) -> None:
        activation = self._environment.Activation(facts.to_variables())
        for rule, condition in conditional:
            truth = _truth(condition, activation)
            if truth is None:
                failed.append(rule)
            elif truth:
                matched.append(rule)

    def _select(self, hook: str) -> tuple[_Compiled, ...]:
        return tuple(found for found in self._compiled if not found.rule.hooks or hook in found.rule.hooks)

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


def _type_of(name: str) -> cel.Type:
    return cel.Type.STRING if name in _TEXT_FACTS else cel.Type.Map(cel.Type.STRING, cel.Type.DYN)


def _concerns(found: _Compiled, tool: str | None) -> bool:
    if found.tools is None:
        return True
    return tool is not None and found.tools.match(tool) is not None


def _truth(condition: cel.Expression, activation: cel.Activation) -> bool | None:
    """Whether the condition holds; None where it has no truth value: an error, or a value that is not a boolean."""
    try:
        value = condition.eval(activation).value()
    except RuntimeError:
        return None
    return value if isinstance(value, bool) else None
