"""What the Guardian asks of whoever knows the policy.

An engine is trusted to decide, not to be well: whoever calls it treats anything it raises as DENY.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from turnkeeper.acs import Decision, PolicyReference
from turnkeeper.policy.facts import Facts
from turnkeeper.policy.rules import Rule


class RuleOutcome(StrEnum):
    """What became of a rule at one step."""

    OTHER_HOOK = "other_hook"
    OTHER_TOOL = "other_tool"
    FALSE = "condition_false"
    HOLDS = "holds"
    FAILED = "condition_failed"


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """A rule and how it looked at a step."""

    rule: Rule
    outcome: RuleOutcome


class PolicyEngine(Protocol):
    """Decides steps by a policy that was loaded and checked before."""

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        ...

    def evaluate(self, facts: Facts) -> Decision:
        """The policy's word on one step. Deterministic, without side effects, and bounded in time."""
        ...
