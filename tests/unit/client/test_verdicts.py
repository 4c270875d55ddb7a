"""What a decision means for a step: applied whole, denied, or waited for."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import Disposition, Verdict
from turnkeeper.client.outcomes import Allowed, Denied, Pending
from turnkeeper.client.posture import Judgement, Question
from turnkeeper.client.verdicts import MAX_PENDING_MS, Abilities, judge_expiry, judge_verdict

TOOL_CALL: Mapping[str, object] = {
    "tool": {"name": "shell"},
    "arguments": {"command": {"value": "rm x"}, "token": {"value": "secret"}},
}
SUMMARY: Mapping[str, object] = {
    "summary": {"value": "kept", "provenance": {"provenance_id": "p", "origin": "agent_generated"}},
    "entries_compacted": ["e"],
    "pre_compact_chain_hash": "0" * 64,
    "post_compact_chain_hash": "0" * 64,
}
COMPOSITION = read_vectors("modify-composition")
REFUSED = [
    case
    for case in [*COMPOSITION["payload_root_cases"], *COMPOSITION["adapter_root_cases"]]
    if case["expected"] == "REFUSED"
]


def judged(
    decision: str,
    *,
    method: str = "steps/toolCallRequest",
    payload: Mapping[str, object] = TOOL_CALL,
    abilities: Abilities = Abilities(),  # noqa: B008  frozen
    **members: object,
) -> Judgement:
    """The judgement of a decision with these members."""
    verdict = Verdict(Disposition(decision), "because", ("code",), None, {"decision": decision, **members})
    return judge_verdict(Question(method, payload, "r-1", "s-1", "t-1"), verdict, abilities, now_ms=1_000)


def test_an_allow_hands_back_the_payload_and_leaves_no_note() -> None:
    judgement = judged("allow")
    assert isinstance(judgement.outcome, Allowed)
    assert (judgement.outcome.payload, judgement.notes) == (TOOL_CALL, ())


def test_a_deny_has_the_guardians_words_and_codes() -> None:
    outcome = judged("deny").outcome
    assert isinstance(outcome, Denied)
    assert (outcome.reasoning, outcome.reason_codes) == ("because", ("code",))


def test_the_outcome_does_not_depend_on_the_reasoning() -> None:
    """CORE-DISP-08: codes are for programs, reasoning is for people."""
    told = [
        judge_verdict(
            Question("steps/toolCallRequest", TOOL_CALL, "r", "s"),
            Verdict(Disposition.DENY, text, ("code",), None, {}),
            Abilities(),
            0,
        ).outcome
        for text in ("allow", "this is an ask")
    ]
    assert all(isinstance(outcome, Denied) for outcome in told)


def test_a_modification_is_applied_to_a_copy() -> None:
    outcome = judged("modify", modifications={"parameter_overrides": {"command": "ls"}}).outcome
    assert isinstance(outcome, Allowed)
    assert outcome.modified
    assert outcome.payload["arguments"] == {"command": {"value": "ls"}, "token": {"value": "secret"}}
    assert TOOL_CALL["arguments"] == {"command": {"value": "rm x"}, "token": {"value": "secret"}}


def test_an_agent_that_cannot_modify_denies_and_says_so() -> None:
    """CORE-MOD-06: never the original payload."""
    judgement = judged(
        "modify", abilities=Abilities(modify=False), modifications={"parameter_overrides": {"command": "ls"}}
    )
    (note,) = judgement.notes
    assert isinstance(judgement.outcome, Denied)
    assert (note.received, note.applied, note.reason_codes) == ("modify", "deny", ("modify_unsupported",))
    # CORE-MOD-04: no decision failed.
    assert note.failure is None


def test_a_modification_the_step_has_no_place_for_is_denied() -> None:
    judgement = judged("modify", modifications={"redactions": [{"path": "/arguments/absent/value"}]})
    assert isinstance(judgement.outcome, Denied)
    assert judgement.outcome.reason_codes == ("modify_unsupported",)


def test_a_modification_that_leaves_no_valid_step_is_denied() -> None:
    judgement = judged("modify", modifications={"redactions": [{"path": "/arguments"}]})
    assert isinstance(judgement.outcome, Denied)
    assert judgement.outcome.reason_codes == ("modify_unsupported",)


@pytest.mark.parametrize("kind", ["broken", "unable"])
def test_after_compaction_the_original_summary_is_kept(kind: str) -> None:
    """CORE-MOD-07."""
    both = {"modified_content": "x", "redactions": [{"path": "/summary/value"}]}
    judgement = judged(
        "modify",
        method="steps/postCompact",
        payload=SUMMARY,
        abilities=Abilities(modify=kind == "broken"),
        modifications=both if kind == "broken" else {"modified_content": "x"},
    )
    (note,) = judgement.notes
    assert isinstance(judgement.outcome, Allowed)
    assert judgement.outcome.payload == SUMMARY
    assert (note.effect, note.applied) == ("original_kept", "original_kept")


def test_a_changed_summary_is_kept_where_it_can_be() -> None:
    outcome = judged(
        "modify", method="steps/postCompact", payload=SUMMARY, modifications={"modified_content": "shorter"}
    ).outcome
    assert isinstance(outcome, Allowed)
    assert outcome.payload["summary"] == SUMMARY["summary"] | {"value": "shorter"}  # type: ignore[operator]


ASK: Mapping[str, object] = {
    "approver": {"type": "human", "id": "operators"},
    "question": "Delete?",
    "timeout_seconds": 600,
}
DEFER: Mapping[str, object] = {
    "reason": "insufficient_context",
    "resolution_method": "human_approval",
    "resolution_timeout_ms": 5_000,
}


def pending_of(judgement: Judgement) -> Pending:
    """The outcome, which must be a wait."""
    assert isinstance(judgement.outcome, Pending)
    return judgement.outcome


def test_an_ask_waits_until_its_end_and_is_denied_then() -> None:
    pending = pending_of(judged("ask", ask_details=ASK))
    assert (pending.expires_at_ms, pending.on_expiry, pending.question) == (601_000, "deny", "Delete?")
    assert (pending.request_id, pending.turn_id, pending.session_id) == ("r-1", "t-1", "s-1")


def test_an_ask_may_end_in_an_allow_where_the_guardian_said_so() -> None:
    """CORE-ASK-07: both ends are audited."""
    judgement = judge_expiry(pending_of(judged("ask", ask_details={**ASK, "timeout_disposition": "allow"})))
    (note,) = judgement.notes
    assert isinstance(judgement.outcome, Allowed)
    assert (note.event, note.effect, note.applied) == ("pending_expired", "proceeded", "allow")


def test_a_defer_waits_and_is_denied_at_its_end_by_default() -> None:
    """CORE-DISP-04."""
    pending = pending_of(judged("defer", defer_details=DEFER))
    assert (pending.expires_at_ms, pending.on_expiry, pending.polled) == (6_000, "deny", True)
    judgement = judge_expiry(pending)
    assert isinstance(judgement.outcome, Denied)
    assert judgement.outcome.reason_codes == ("pending_expired",)


def test_a_defer_that_only_time_resolves_is_not_asked_again() -> None:
    assert not pending_of(judged("defer", defer_details={**DEFER, "resolution_method": "timeout"})).polled


def test_no_answer_can_keep_a_step_waiting_for_longer_than_the_bound() -> None:
    pending = pending_of(judged("ask", ask_details={**ASK, "timeout_seconds": 10**12}))
    assert pending.expires_at_ms == 1_000 + MAX_PENDING_MS


def test_an_agent_that_cannot_ask_denies_and_names_the_reason() -> None:
    """CORE-ASK-04, seen from the agent."""
    judgement = judged("ask", abilities=Abilities(ask=False), ask_details=ASK)
    assert isinstance(judgement.outcome, Denied)
    assert judgement.outcome.reason_codes == ("approver_unavailable",)


@pytest.mark.parametrize("decision", ["deny", "modify", "ask", "defer"])
def test_what_has_happened_is_not_denied_whatever_the_guardian_says(decision: str) -> None:
    """CORE-HOOK-05."""
    judgement = judged(decision, method="steps/turnEnd", payload={"turn_id": "t", "outcome": "completed"})
    (note,) = judgement.notes
    assert isinstance(judgement.outcome, Allowed)
    assert note.event == "disposition_not_permitted"


def test_a_decision_a_hook_does_not_permit_is_a_denial() -> None:
    judgement = judged("ask", method="steps/userMessage", payload={"content": []}, ask_details=ASK)
    assert isinstance(judgement.outcome, Denied)
    assert judgement.outcome.reason_codes == ("disposition_not_permitted",)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_modifications_of_more_than_one_meaning_are_denied(case: Mapping[str, Any]) -> None:
    """CORE-MOD-01 to 03 and 10: what the table denies is never applied."""
    judgement = judged("modify", modifications=case["modifications"])
    (note,) = judgement.notes
    assert isinstance(judgement.outcome, Denied)
    assert note.reason_codes == ("modify_composition",)
