"""Who decides when nobody decides: the rules alone, from a table any implementation can run."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import ServerHello
from turnkeeper.client.outcomes import Allowed
from turnkeeper.client.posture import (
    Failure,
    FailureKind,
    PostureRules,
    Question,
    judge_failure,
    judge_unevaluated,
    may_start_unguarded,
    stance_of,
    startup_stance,
)

VECTORS = read_vectors("outage-posture")
TERMS: dict[str, object] = {
    "negotiated_version": "0.1.0",
    "methods_evaluated": [],
    "selected_transport": "http",
    "timeout_config": {"default_ms": 5_000},
}


def rules_of(case: Mapping[str, Any]) -> PostureRules:
    """The deployment's choices in a case."""
    return PostureRules(**case.get("rules", {}))


def failure_of(case: Mapping[str, Any]) -> Failure:
    """What went wrong in a case."""
    return Failure(FailureKind(case["failure"]["kind"]), "it failed", case["failure"].get("code"))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["id"])
def test_a_missing_decision_is_judged_by_the_table(case: Mapping[str, Any]) -> None:
    terms = None if case["terms"] is None else ServerHello.of(TERMS | case["terms"])
    stance, rules = stance_of(terms, rules_of(case)), rules_of(case)
    question = Question(case.get("method", "steps/toolCallRequest"), {"a": 1}, "r", "s")
    judgement = judge_failure(question, failure_of(case), stance, rules)
    (note,) = judgement.notes
    told = {"outcome": note.effect, "posture": stance.posture, "posture_source": stance.source}
    assert told == case["expected"]
    assert type(judgement.outcome).__name__ == ("Denied" if note.effect == "blocked" else "Allowed")


@pytest.mark.parametrize("case", VECTORS["startup"], ids=lambda case: case["id"])
def test_a_session_without_terms_starts_by_the_table(case: Mapping[str, Any]) -> None:
    assert may_start_unguarded(failure_of(case), rules_of(case)) is case["starts"]


def test_no_environment_variable_changes_a_stance(monkeypatch: pytest.MonkeyPatch) -> None:
    """CORE-HS-18."""
    monkeypatch.setenv("ACS_ON_DECISION_FAILURE", "deny")
    assert stance_of(None, PostureRules()).posture == "proceed"
    assert startup_stance(PostureRules()).source == "default"


def test_a_step_that_proceeds_undecided_says_so_and_keeps_its_payload() -> None:
    question = Question("steps/toolCallRequest", {"a": 1}, "r", "s")
    rules = PostureRules()
    outcome = judge_failure(question, Failure(FailureKind.TIMEOUT, "late"), stance_of(None, rules), rules).outcome
    assert outcome == Allowed("r", {"a": 1}, proceeded=True)


@pytest.mark.parametrize(("rule", "effect"), [("allow", "proceeded"), ("deny", "blocked")])
def test_a_method_nobody_looks_at_is_allowed_unless_the_deployment_says_otherwise(rule: Any, effect: str) -> None:
    """CORE-HS-04."""
    question = Question("steps/memoryStore", {}, None, "s")
    (note,) = judge_unevaluated(question, PostureRules(unevaluated=rule)).notes
    assert (note.effect, note.reason_codes) == (effect, ("method_not_evaluated",))


def test_an_end_that_nobody_looks_at_is_never_blocked() -> None:
    question = Question("steps/turnEnd", {}, None, "s")
    (note,) = judge_unevaluated(question, PostureRules(unevaluated="deny")).notes
    assert note.effect == "proceeded"


@pytest.mark.parametrize(
    ("kind", "trace_class"),
    [
        (FailureKind.TRANSPORT, "unreachable"),
        (FailureKind.TIMEOUT, "timeout"),
        (FailureKind.MALFORMED, "malformed_response"),
        (FailureKind.SIGNATURE, "signature_invalid"),
        (FailureKind.ERROR, "guardian_error"),
        (FailureKind.HANDSHAKE, "handshake_failure"),
        (FailureKind.UNSENDABLE, "other"),
    ],
)
def test_every_failure_has_a_class_of_the_trace_mapping(kind: FailureKind, trace_class: str) -> None:
    assert Failure(kind, "x").trace_class == trace_class
