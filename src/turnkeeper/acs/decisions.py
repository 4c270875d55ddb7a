"""Dispositions and decisions (ACS 6, ledger sections 2 and 7) and how a decision is written as a result.

Answers for results that pass the response schema. Must never send a member without a value. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from turnkeeper.errors import LocalProtocolError


class Disposition(StrEnum):
    """What a Guardian says about a step."""

    ALLOW = "allow"
    DENY = "deny"
    MODIFY = "modify"
    ASK = "ask"
    DEFER = "defer"


class Evaluator(StrEnum):
    """Which layer reached the decision."""

    DETERMINISTIC = "deterministic"
    AGENT = "agent"
    COMPOSITE = "composite"


class DecisionIncomplete(LocalProtocolError):
    """A decision lacks what its disposition must carry: an engine's fault, to be answered with DENY."""

    code = "decision_incomplete"


@dataclass(frozen=True, slots=True)
class PolicyReference:
    """A policy or rule that took part in a decision."""

    policy_id: str | None = None
    policy_version: str | None = None
    policy_name: str | None = None
    rule_id: str | None = None

    def to_document(self) -> dict[str, object]:
        """The members that have a value; the wire refuses empty strings."""
        members = {
            "policy_id": self.policy_id,
            "policy_version": self.policy_version,
            "policy_name": self.policy_name,
            "rule_id": self.rule_id,
        }
        return {name: value for name, value in members.items() if value}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a decision was reached. `model_id` is owed where an agent took part."""

    evaluator: Evaluator = Evaluator.DETERMINISTIC
    evaluator_version: str | None = None
    evaluation_duration_ms: int | None = None
    model_id: str | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        if self.evaluator is not Evaluator.DETERMINISTIC and not self.model_id:
            raise DecisionIncomplete(f"an evaluation by {self.evaluator} names no model")

    def to_document(self) -> dict[str, object]:
        """The members that have a value."""
        members = {
            "evaluator": self.evaluator.value,
            "evaluator_version": self.evaluator_version,
            "evaluation_duration_ms": self.evaluation_duration_ms,
            "model_id": self.model_id,
            "confidence": self.confidence,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Decision:
    """A Guardian's word on one step.

    Everything but ALLOW carries `reasoning`; MODIFY, ASK and DEFER carry their own details. Raises
    `DecisionIncomplete` on construction where they are missing.
    """

    disposition: Disposition
    reasoning: str | None = None
    reason_codes: tuple[str, ...] = ()
    policy_references: tuple[PolicyReference, ...] = ()
    policy_data: Mapping[str, object] | None = None
    modifications: Mapping[str, object] | None = None
    ask_details: Mapping[str, object] | None = None
    defer_details: Mapping[str, object] | None = None
    cited_provenance_ids: tuple[str, ...] = ()
    evaluation: Evaluation | None = None
    payload: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if self.disposition is not Disposition.ALLOW and not self.reasoning:
            raise DecisionIncomplete(f"a decision to {self.disposition} gives no reasoning")
        owed: dict[Disposition, object] = {
            Disposition.MODIFY: self.modifications,
            Disposition.ASK: self.ask_details,
            Disposition.DEFER: self.defer_details,
        }
        if owed.get(self.disposition, True) is None:
            raise DecisionIncomplete(f"a decision to {self.disposition} lacks its details")


def render_result(
    decision: Decision, *, acs_version: str, request_id: str, chain_hash: str | None
) -> dict[str, object]:
    """The `result` of an answer, unsigned.

    `chain_hash` is the head after the step's own entry, and None where no entry was written.
    """
    disposition = decision.disposition
    members: dict[str, object] = {
        "type": "final",
        "acs_version": acs_version,
        "request_id": request_id,
        "decision": disposition.value,
        "reasoning": decision.reasoning or None,
        "reason_codes": _distinct(decision.reason_codes),
        "policy_references": [found for reference in decision.policy_references if (found := reference.to_document())],
        "policy_data": _plain(decision.policy_data),
        "cited_provenance_ids": _distinct(decision.cited_provenance_ids),
        "modifications": _plain(decision.modifications) if disposition is Disposition.MODIFY else None,
        "ask_details": _plain(decision.ask_details) if disposition is Disposition.ASK else None,
        "defer_details": _plain(decision.defer_details) if disposition is Disposition.DEFER else None,
        "payload": _plain(decision.payload),
        "metadata": decision.evaluation.to_document() if decision.evaluation is not None else None,
        "chain_hash": chain_hash,
    }
    return {name: value for name, value in members.items() if value is not None and value != []}


def _distinct(values: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(values)) if values else []


def _plain(value: Mapping[str, object] | None) -> dict[str, object] | None:
    return None if value is None else dict(value)
