"""Policies and facts that the tests of this package share."""

from collections.abc import Mapping

from turnkeeper.acs import Decision
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.facts import Facts, SessionFacts, TurnFacts
from turnkeeper.policy.rules import parse_rules

SESSION_ID = "6b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"
HEAD = "version: 1\nname: house\ndefault: allow\nrules:\n"


def engine(rules: str, *, default: str = "allow") -> CelEngine:
    """An engine over rules written as the body of a policy's `rules`."""
    return CelEngine(parse_rules((HEAD.replace("default: allow", f"default: {default}") + rules).encode()))


def tool_call(name: str = "shell", *, turn: TurnFacts | None = None, **arguments: object) -> Facts:
    """A toolCallRequest as rules see it."""
    return call(name, arguments, turn=turn)


def call(name: str, arguments: Mapping[str, object], *, turn: TurnFacts | None = None) -> Facts:
    """A toolCallRequest with arguments of any name."""
    payload: dict[str, object] = {"tool": {"name": name}, "arguments": {k: {"value": v} for k, v in arguments.items()}}
    return facts("steps/toolCallRequest", payload, turn=turn)


def facts(method: str, payload: dict[str, object] | None = None, *, turn: TurnFacts | None = None) -> Facts:
    """Any step as rules see it."""
    return Facts(
        method=method,
        step_id="step",
        payload=payload or {},
        agent_id="agent",
        session=SessionFacts(SESSION_ID, steps=1),
        turn=turn or TurnFacts(),
    )


def rule_ids(decision: Decision) -> list[str | None]:
    """The rules that a decision cites."""
    return [reference.rule_id for reference in decision.policy_references]
