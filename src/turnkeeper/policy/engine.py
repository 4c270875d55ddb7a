"""What the Guardian asks of whoever knows the policy.

An engine is trusted to decide, not to be well: whoever calls it treats anything it raises as DENY.
"""

from typing import Protocol

from turnkeeper.acs import Decision, PolicyReference
from turnkeeper.policy.facts import Facts


class PolicyEngine(Protocol):
    """Decides steps by a policy that was loaded and checked before."""

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        ...

    def evaluate(self, facts: Facts) -> Decision:
        """The policy's word on one step. Deterministic, without side effects, and bounded in time."""
        ...
