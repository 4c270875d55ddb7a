"""The built-in rules with conditions in CEL, the Common Expression Language, evaluated in process.

Answers for one decision per step: rules are filtered by hook and tool first, then by what `policy.native` can settle,
and what is left shares one activation. Many conditions left are first asked together (`a || b || c`): where none holds,
which is the common case, one evaluation has shown it. Else each is asked alone, so that the decision names its rule.
Bounded: a comprehension ends after the runtime's iteration budget (10,000), `matches` is linear (RE2), recursion in
an expression is limited. Must never read an error as "the rule does not match": an absent member is an error, so
conditions ask `has(...)` first.
"""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from cel_expr_python import cel

from turnkeeper.acs import Decision, Disposition, ModificationsInapplicable, PolicyReference, apply_modifications
from turnkeeper.policy.composition import EVALUATION_FAILED, compose
from turnkeeper.policy.details import WRAPPED_HOOK, is_wrapped
from turnkeeper.policy.engine import RuleOutcome, RuleTrace
from turnkeeper.policy.facts import FACT_NAMES, Facts
from turnkeeper.policy.native import NativeCondition, native_condition
from turnkeeper.policy.rules import PolicyRejected, Rule, RuleSet

MAX_REMEMBERED_SELECTIONS: Final = 256
MAX_REMEMBERED_NAME_CHARACTERS: Final = 128
# Fewer than that are asked one by one: a joint expression has to be compiled for each choice of them.
ASKED_TOGETHER: Final = 4

_INAPPLICABLE = "A rule of the policy changes what this step does not have, so it is denied."

_BOOLEAN_OR_DYNAMIC = ("BOOL", "DYN")
_TEXT_FACTS = frozenset({"environment"})


@dataclass(frozen=True, slots=True)
class _Compiled:
    rule: Rule
    tools: re.Pattern[str] | None
    condition: cel.Expression | None
    native: NativeCondition | None


@dataclass(frozen=True, slots=True)
class _Selected:
    """What concerns a hook and a tool: rules that hold without a condition, the indexes of those that have one, and
    the decision where none of these holds."""

    unconditional: tuple[Rule, ...]
    conditional: tuple[int, ...]
    decision: Decision


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
        tool, hook = facts.tool_name, facts.hook
        long = len(tool or "") > MAX_REMEMBERED_NAME_CHARACTERS or len(hook) > MAX_REMEMBERED_NAME_CHARACTERS
        selected = (self._select if long else self._remembered)(hook, tool)
        held, failed = self._evaluate_conditions(facts, selected.conditional) if selected.conditional else ((), ())
        if held or failed or facts.approval.granted:
            matched = (*selected.unconditional, *held)
            decision = compose(self._rules, matched, failed, approved=facts.approval.granted)
        else:
            decision = selected.decision
        return self._applicable(facts, decision) if decision.modifications is not None else decision

    def explain(self, facts: Facts) -> tuple[RuleTrace, ...]:
        """How each rule looked at one step, in the order of the policy."""
        activation = self._environment.Activation(_without_nul(facts.to_variables()))
        return tuple(_trace(compiled, facts, activation) for compiled in self._compiled)

    def is_native(self, rule_id: str) -> bool:
        """Whether the rule is decided without the CEL runtime in every case."""
        compiled = next(compiled for compiled in self._compiled if compiled.rule.id == rule_id)
        return compiled.condition is None or (compiled.native is not None and compiled.native.complete)

    def _evaluate_conditions(self, facts: Facts, conditional: tuple[int, ...]) -> tuple[list[Rule], list[Rule]]:
        held, failed, pending = list[Rule](), list[Rule](), list[int]()
        for index in conditional:
            compiled = self._compiled[index]
            native = compiled.native
            truth = native.test(facts) if native is not None else None
            if truth is False:
                continue
            if native is None or not native.complete:
                pending.append(index)
            else:
                (failed if truth is None else held).append(compiled.rule)
        if pending:
            self._evaluate_in_cel(facts, tuple(pending), held, failed)
        return held, failed

    def _evaluate_in_cel(self, facts: Facts, pending: tuple[int, ...], held: list[Rule], failed: list[Rule]) -> None:
        activation = self._environment.Activation(_without_nul(facts.to_variables()))
        if len(pending) >= ASKED_TOGETHER and _truth(self._any_of(pending), activation) is False:
            return
        for index in pending:
            truth = _truth(self._compiled[index].condition, activation)
            if truth is not False:
                (failed if truth is None else held).append(self._compiled[index].rule)

    def _applicable(self, facts: Facts, decision: Decision) -> Decision:
        try:
            apply_modifications(facts.payload, decision.modifications or {})
        except ModificationsInapplicable:
            return Decision(
                Disposition.DENY, _INAPPLICABLE, (EVALUATION_FAILED, *decision.reason_codes), decision.policy_references
            )
        return decision

    def _select(self, hook: str, tool: str | None) -> _Selected:
        found = [
            compiled_at
            for compiled_at in enumerate(self._compiled)
            if _concerns_hook(compiled_at[1].rule, hook) and _concerns_tool(compiled_at[1], tool)
        ]
        unconditional = tuple(compiled.rule for _, compiled in found if compiled.condition is None)
        conditional = tuple(index for index, compiled in found if compiled.condition is not None)
        return _Selected(unconditional, conditional, compose(self._rules, unconditional, ()))

    def _compile_together(self, conditional: tuple[int, ...]) -> cel.Expression | None:
        text = " || ".join(f"({self._rules.rules[index].when}\n)" for index in conditional)
        try:
            return self._environment.compile(text)
        except RuntimeError:
            # Too long for the parser as one; each alone is not.
            return None

    def _compile(self, index: int, rule: Rule) -> _Compiled:
        tools = "|".join(fnmatch.translate(pattern) for pattern in rule.tools)
        condition = self._condition(index, rule)
        native = native_condition(rule.when) if rule.when is not None else None
        return _Compiled(rule, re.compile(tools) if tools else None, condition, native)

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


def _concerns_hook(rule: Rule, hook: str) -> bool:
    if not rule.hooks or hook in rule.hooks:
        return True
    return WRAPPED_HOOK in rule.hooks and is_wrapped(hook)


def _concerns_tool(compiled: _Compiled, tool: str | None) -> bool:
    if compiled.tools is None:
        return True
    return tool is not None and compiled.tools.match(tool) is not None


def _trace(compiled: _Compiled, facts: Facts, activation: cel.Activation) -> RuleTrace:
    if not _concerns_hook(compiled.rule, facts.hook):
        outcome = RuleOutcome.OTHER_HOOK
    elif not _concerns_tool(compiled, facts.tool_name):
        outcome = RuleOutcome.OTHER_TOOL
    elif (truth := _truth(compiled.condition, activation)) is None:
        outcome = RuleOutcome.FAILED
    else:
        outcome = RuleOutcome.HOLDS if truth else RuleOutcome.FALSE
    return RuleTrace(compiled.rule, outcome)


def _truth(condition: cel.Expression | None, activation: cel.Activation) -> bool | None:
    """Whether the condition holds; None where it has no truth value: an error, or a value that is not a boolean."""
    if condition is None:
        return True
    try:
        value = condition.eval(activation).value()
    except RuntimeError:
        return None
    return value if isinstance(value, bool) else None
