"""Engines that live in a process of their own: what they are asked, and how their word joins the built-in rules'.

Answers for the port that Cedar uses and Rego or OPA can: `HostedEngine.evaluate(facts)` is awaited *before* the
Guardian's synchronous step, on facts that are compared again inside it; what was heard about other facts counts as
nothing. Must never wait without a deadline, nor read silence, an error or a malformed answer as anything but DENY.
I/O is handed in. The choice: docs/decisions/0006.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from turnkeeper.acs import Decision, Disposition, PolicyReference
from turnkeeper.errors import TurnkeeperError
from turnkeeper.policy.composition import (
    APPROVED,
    EVALUATION_FAILED,
    PRECEDENCE,
    asks_for_approval,
    quote,
    with_details,
)
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.facts import Facts

BUILT_IN: Final = "rules"

_NOT_HEARD = "An engine of the policy was not asked about this step as it stands, so it is denied."
_NO_ANSWER = "An engine of the policy gave no answer for this step, so it is denied."


class EngineUnavailable(TurnkeeperError):
    """An engine's process gave no usable answer in time: it is dead, late, or does not speak as agreed."""

    code = "engine_unavailable"


class HostedEngine(Protocol):
    """An engine that is asked over a wire. Named as its paradigm is in `policy_data`."""

    @property
    def name(self) -> str:
        """`cedar`, `rego`, ..."""
        ...

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        ...

    def concerns(self, facts: Facts) -> bool:
        """Whether this engine has a say in a step."""
        ...

    async def evaluate(self, facts: Facts) -> Decision:
        """The engine's word on one step: a DENY for whatever goes wrong, within its own deadline."""
        ...


class EngineLink(Protocol):
    """The wire to one engine's process."""

    async def ask(self, question: Mapping[str, object]) -> Mapping[str, object]:
        """The answer to a question, within the link's deadline. Raises `EngineUnavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class Hearing:
    """What the hosted engines said about certain facts."""

    facts: Facts
    said: tuple[tuple[str, Decision], ...]


class ComposedEngine:
    """The built-in rules and hosted engines as one policy. The strictest word holds, and every engine is cited."""

    def __init__(self, built_in: PolicyEngine, hosted: Sequence[HostedEngine]) -> None:
        self._built_in = built_in
        self._hosted = tuple(hosted)

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        return self._built_in.reference

    def needs_hearing(self, facts: Facts) -> bool:
        """Whether a hosted engine has to be asked before the step can be decided."""
        return any(engine.concerns(facts) for engine in self._hosted)

    async def hear(self, facts: Facts) -> Hearing:
        """Asks every hosted engine that is concerned. Raises nothing that an engine does."""
        said = [(engine.name, await engine.evaluate(facts)) for engine in self._hosted if engine.concerns(facts)]
        return Hearing(facts, tuple(said))

    def evaluate(self, facts: Facts, hearing: Hearing | None = None) -> Decision:
        """The policy's word on one step, synchronously.

        DENY where a hosted engine is concerned and `hearing` is absent or about other facts; the caller may hear
        again, a bounded number of times.
        """
        built_in = self._built_in.evaluate(facts)
        if not self.needs_hearing(facts):
            return built_in
        if hearing is None or hearing.facts != facts:
            return Decision(Disposition.DENY, _NOT_HEARD, (EVALUATION_FAILED,), (self.reference,))
        return compose_decisions([(BUILT_IN, built_in), *hearing.said], approved=facts.approval.granted)


def compose_decisions(said: Sequence[tuple[str, Decision]], *, approved: bool = False) -> Decision:
    """What several engines say as one decision, whatever their order; `policy_data` is keyed by engine."""
    effective = [(name, _lifted(decision) if approved else decision) for name, decision in said]
    strictest = min((decision.disposition for _, decision in effective), key=PRECEDENCE.index)
    leading = [decision for _, decision in effective if decision.disposition is strictest]
    references = tuple(dict.fromkeys(found for _, decision in effective for found in decision.policy_references))
    codes = tuple(dict.fromkeys(code for decision in leading for code in decision.reason_codes))
    details = [decision.modifications or decision.ask_details or decision.defer_details or {} for decision in leading]
    composed = with_details(
        strictest,
        details,
        reasoning=quote(decision.reasoning for decision in leading) or None,
        reason_codes=codes,
        references=references,
    )
    return replace(
        composed,
        policy_data={name: _data(decision) for name, decision in effective},
        cited_provenance_ids=tuple(dict.fromkeys(one for _, said in effective for one in said.cited_provenance_ids)),
    )


def unanswered(reference: PolicyReference) -> Decision:
    """The word of an engine that gave none."""
    return Decision(Disposition.DENY, _NO_ANSWER, (EVALUATION_FAILED,), (reference,))


def _lifted(decision: Decision) -> Decision:
    if not asks_for_approval(decision.disposition, decision.defer_details):
        return decision
    return Decision(Disposition.ALLOW, reason_codes=(APPROVED,), policy_references=decision.policy_references)


def _data(decision: Decision) -> dict[str, object]:
    return {**(decision.policy_data or {}), "decision": decision.disposition.value}
