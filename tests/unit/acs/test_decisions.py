"""Decisions as results: complete, without empty members, valid by the response schema."""

from typing import Any

import pytest
from tests.unit.acs.samples import REQUEST_ID

from turnkeeper.acs import (
    Decision,
    DecisionIncomplete,
    Disposition,
    Evaluation,
    Evaluator,
    PolicyReference,
    build_result,
    render_result,
    validator,
)

_ASK = {"approver": {"type": "human", "id": "ops"}, "question": "May it?", "timeout_seconds": 60}
_DEFER = {"reason": "low_confidence", "resolution_method": "timeout", "resolution_timeout_ms": 0}
_DECISIONS = [
    Decision(Disposition.ALLOW),
    Decision(Disposition.DENY, "no"),
    Decision(Disposition.MODIFY, "masked", modifications={"redactions": [{"path": "/arguments/key/value"}]}),
    Decision(Disposition.ASK, "unusual", ask_details=_ASK),
    Decision(Disposition.DEFER, "unclear", defer_details=_DEFER),
]


def _rendered(decision: Decision, chain_hash: str | None = None) -> dict[str, Any]:
    return render_result(decision, acs_version="0.1.0", request_id=REQUEST_ID, chain_hash=chain_hash)


@pytest.mark.parametrize("decision", _DECISIONS, ids=lambda decision: decision.disposition)
def test_every_disposition_makes_a_valid_answer(decision: Decision) -> None:
    validator("response-envelope").check(build_result("call-1", _rendered(decision, "ab" * 32)))


def test_a_bare_allow_has_no_member_without_a_value() -> None:
    expected = {"type": "final", "acs_version": "0.1.0", "request_id": REQUEST_ID, "decision": "allow"}
    assert _rendered(Decision(Disposition.ALLOW)) == expected


def test_references_drop_empty_members_and_codes_are_distinct() -> None:
    decision = Decision(
        Disposition.DENY,
        "no",
        reason_codes=("a", "b", "a"),
        policy_references=(PolicyReference(policy_id="p", policy_version=""), PolicyReference()),
        cited_provenance_ids=("x", "x"),
    )
    result = _rendered(decision)
    assert result["reason_codes"] == ["a", "b"]
    assert result["policy_references"] == [{"policy_id": "p"}]
    assert result["cited_provenance_ids"] == ["x"]


def test_an_evaluation_and_data_are_written_where_given() -> None:
    evaluation = Evaluation(Evaluator.AGENT, evaluation_duration_ms=3, model_id="m", confidence=0.5)
    decision = Decision(Disposition.ALLOW, policy_data={"cel": {"rule": 1}}, evaluation=evaluation, payload={"s": 1})
    result = _rendered(decision)
    validator("response-envelope").check(build_result("call-1", result))
    assert result["metadata"] == {
        "evaluator": "agent",
        "evaluation_duration_ms": 3,
        "model_id": "m",
        "confidence": 0.5,
    }
    assert (result["policy_data"], result["payload"]) == ({"cel": {"rule": 1}}, {"s": 1})


def test_details_of_another_disposition_are_not_sent() -> None:
    decision = Decision(Disposition.DENY, "no", modifications={"modified_content": "x"}, ask_details=_ASK)
    assert not {"modifications", "ask_details"} & _rendered(decision).keys()


@pytest.mark.parametrize("disposition", [each for each in Disposition if each is not Disposition.ALLOW])
def test_a_decision_that_stops_a_step_says_why(disposition: Disposition) -> None:
    with pytest.raises(DecisionIncomplete, match="reasoning"):
        Decision(disposition, modifications={}, ask_details={}, defer_details={})


@pytest.mark.parametrize("disposition", [Disposition.MODIFY, Disposition.ASK, Disposition.DEFER])
def test_a_decision_carries_the_details_it_owes(disposition: Disposition) -> None:
    with pytest.raises(DecisionIncomplete, match="details"):
        Decision(disposition, "why")


def test_an_agents_evaluation_names_its_model() -> None:
    with pytest.raises(DecisionIncomplete):
        Evaluation(Evaluator.COMPOSITE)
