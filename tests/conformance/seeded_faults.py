"""Faults as data: what is replaced by what, and the test that finds it.

Each stands for a mistake that an implementation of the standard makes or could make. `target` is the dotted name under
which the code looks a function up; `make` gets what stands there and gives what stands there instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.conformance.faulty_parts import (
    always,
    answered_at_once,
    any_input,
    any_label,
    as_it_was,
    as_the_policy_says,
    closing_any,
    failing_open,
    forgetting,
    found_anywhere,
    lenient,
    linked_after_zeros,
    linked_in_hex,
    never_closed,
    never_used,
    raised,
    rising,
    short_by_one,
    skipped_signature,
    starting_anew,
    taken_as_it_is,
    telling,
    unbounded,
    uncounted,
    unsigned,
    without_head,
)

from turnkeeper.guardian.checks import CONTENT

_ORDER: Final = "tests.unit.guardian.test_order_of_checks:"
_TURNS: Final = "tests.unit.guardian.test_turns_at_the_guardian:"
_FAULTS: Final = "tests.unit.guardian.test_faults:"
_OURS: Final = "tests.conformance.test_guardian_requirements:"
_CLIENT: Final = "tests.unit.client."
_PLATFORM: Final = "tests.integration.test_producing_platform:"
_APPROVALS: Final = "tests.unit.guardian.test_approvals:"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `killer` is a module and a test function; each of its cases is tried."""

    name: str
    target: str
    make: Callable[[Any], Any]
    killer: str


_HEADLESS = _OURS + "test_the_first_entry_of_a_session_hashes_nothing_before_it"

FAULTS: Final = (
    Fault(
        "signatures are not verified",
        "turnkeeper.guardian.calls.verify_request",
        skipped_signature,
        _ORDER + "test_unsigned_forged_and_partly_signed_requests_are_refused_unsigned_and_burn_no_id",
    ),
    Fault(
        "an unknown label opens with another secret",
        "turnkeeper.acs.keys.Keyring.session_key",
        any_label,
        "tests.unit.acs.test_keys:test_an_unknown_label_has_no_key_and_no_fallback",
    ),
    Fault(
        "duplicate members are taken",
        "turnkeeper.guardian.calls.parse_strict",
        lenient,
        _ORDER + "test_a_body_that_is_no_request_gets_an_unsigned_error",
    ),
    Fault(
        "errors are not signed",
        "turnkeeper.guardian.pipeline.render_error",
        unsigned,
        _ORDER + "test_a_broken_envelope_that_is_signed_gets_a_signed_error",
    ),
    Fault(
        "a replay is answered again",
        "turnkeeper.guardian.steps._check_replay",
        always(None),
        _ORDER + "test_a_repeat_in_the_window_is_a_replay_whatever_the_first_was_answered",
    ),
    Fault(
        "nonces are not remembered",
        "turnkeeper.guardian.sessions.ReplayMemory.has_nonce",
        always(value=False),
        _ORDER + "test_the_same_nonce_under_a_new_id_is_a_replay",
    ),
    Fault(
        "a refused request reserves nothing",
        "turnkeeper.guardian.steps._refused",
        raised,
        _ORDER + "test_a_method_that_was_not_negotiated_is_refused_and_burns_its_id",
    ),
    Fault(
        "replay memory does not survive a restart",
        "turnkeeper.store.chain.SqliteGuardianStore.load_session",
        forgetting,
        "tests.unit.guardian.test_restart:test_refused_requests_stay_used",
    ),
    Fault(
        "timestamps are not looked at",
        "turnkeeper.guardian.steps._check_time",
        always(None),
        _ORDER + "test_a_timestamp_outside_the_window_is_refused_and_burns_no_id",
    ),
    Fault(
        "any method is negotiated",
        "turnkeeper.guardian.steps._check_negotiated",
        always(None),
        _ORDER + "test_a_method_that_was_not_negotiated_is_refused_and_burns_its_id",
    ),
    Fault(
        "payloads are not looked at",
        "turnkeeper.guardian.steps._check_payload",
        always(None),
        _ORDER + "test_a_payload_that_breaks_its_schema_is_refused_and_recorded",
    ),
    Fault(
        "whoever has a key speaks in any session",
        "turnkeeper.guardian.steps._check_binding",
        always(None),
        _ORDER + "test_another_key_or_agent_is_denied_in_a_session_it_did_not_open",
    ),
    Fault(
        "a session never ends",
        "turnkeeper.guardian.steps._advanced",
        never_closed,
        _ORDER + "test_after_session_end_a_step_is_denied_and_an_audit_hook_gets_an_error",
    ),
    Fault(
        "the client's head is not compared",
        "turnkeeper.guardian.verdicts._differs",
        always(value=False),
        _ORDER + "test_another_chain_head_is_denied_with_an_entry",
    ),
    Fault(
        "the previous hash is appended as text",
        "turnkeeper.guardian.steps.link",
        linked_in_hex,
        "tests.unit.guardian.test_verify:test_a_store_is_verified_beside_a_running_guardian",
    ),
    Fault("the first hash follows zeros", "turnkeeper.guardian.steps.link", linked_after_zeros, _HEADLESS),
    Fault("the head is not published", "turnkeeper.guardian.steps.render_decision", without_head, _HEADLESS),
    Fault(
        "an answer leaves before its commit",
        "turnkeeper.guardian.pipeline.Guardian._answer_call",
        answered_at_once,
        _FAULTS + "test_a_step_that_cannot_be_recorded_is_denied_and_may_be_sent_again",
    ),
    Fault(
        "a turnEnd is denied",
        "turnkeeper.guardian.verdicts.give",
        as_the_policy_says,
        _FAULTS + "test_a_rule_against_an_audit_hook_is_replaced_and_noted",
    ),
    Fault(
        "a compaction is denied",
        "turnkeeper.guardian.verdicts.give",
        as_the_policy_says,
        _OURS + "test_a_compaction_is_never_denied",
    ),
    Fault(
        "a turnEnd closes whatever is open",
        "turnkeeper.guardian.windows._end",
        closing_any,
        _TURNS + "test_wrong_turn_ends_are_allowed_noted_and_close_nothing",
    ),
    Fault(
        "a turnStart resets the count of an open turn",
        "turnkeeper.guardian.windows._start",
        starting_anew,
        _TURNS + "test_neither_a_new_turn_start_nor_a_foreign_id_escapes_the_count",
    ),
    Fault(
        "steps are not counted",
        "turnkeeper.guardian.windows.TurnWindow.counted",
        uncounted,
        _TURNS + "test_an_honest_turn_leaves_its_counts_and_no_finding",
    ),
    Fault(
        "what the client counts is not compared",
        "turnkeeper.guardian.windows._wrong_counts",
        always(()),
        _TURNS + "test_wrong_turn_ends_are_allowed_noted_and_close_nothing",
    ),
    Fault(
        "an engine that fails allows",
        "turnkeeper.guardian.verdicts._evaluate",
        failing_open,
        _FAULTS + "test_an_engine_that_fails_denies_and_tells_nothing",
    ),
    Fault(
        "an engine that fails tells why",
        "turnkeeper.guardian.verdicts._evaluate",
        telling,
        _FAULTS + "test_an_engine_that_fails_denies_and_tells_nothing",
    ),
    Fault(
        "a reference is found in any session",
        "turnkeeper.guardian.steps._with_reference",
        found_anywhere,
        "tests.unit.guardian.test_references:test_a_reference_to_a_refused_call_is_a_finding",
    ),
    Fault(
        "any skill loads",
        "turnkeeper.guardian.skills._path_checked",
        always(CONTENT),
        "tests.unit.guardian.test_skills:test_a_skill_loads_another_only_where_it_is_composed_of_it",
    ),
    Fault(
        "an intent comes from anywhere",
        "turnkeeper.guardian.intent._origin_denied",
        always(None),
        "tests.unit.guardian.test_intents:"
        "test_an_intent_parsed_from_anything_but_the_users_words_is_denied_and_fixes_nothing",
    ),
    Fault(
        "the lineage of a summary is not compared",
        "turnkeeper.guardian.compaction._compared",
        always(CONTENT),
        "tests.unit.guardian.test_lineage:test_a_compaction_derives_from_exactly_what_it_replaced",
    ),
    Fault(
        "trust rises on the way",
        "turnkeeper.guardian.provenance.lowest",
        rising,
        "tests.unit.guardian.test_lineage:test_trust_never_rises_along_a_derivation",
    ),
    Fault(
        "modifications of two meanings are sent",
        "turnkeeper.acs.modifications._check_disjoint",
        always(None),
        _OURS + "test_modifications_of_a_wrapped_call_address_its_arguments",
    ),
    Fault(
        "the client takes answers that nobody signed",
        "turnkeeper.acs.observed.ObservedSession._check_signature",
        always(None),
        _CLIENT + "test_failures:test_a_wire_that_stays_broken_leaves_the_step_to_the_posture",
    ),
    Fault(
        "the client acts with the original",
        "turnkeeper.acs.obedience._unmodified",
        taken_as_it_is,
        _CLIENT + "test_verdicts:test_an_agent_that_cannot_modify_denies_and_says_so",
    ),
    Fault(
        "the platform acts with the original",
        "turnkeeper.turns.tool_step.arguments_after",
        as_it_was,
        _PLATFORM + "test_what_the_policy_changes_is_what_happens",
    ),
    Fault(
        "the platform's turn derives from less than it showed",
        "turnkeeper.turns.lineage.SessionLineages.union",
        short_by_one,
        _PLATFORM + "test_every_value_is_labeled_and_the_chain_says_what_was_seen",
    ),
    Fault(
        "the client records nothing",
        "turnkeeper.client.audit.Auditor.write",
        always(None),
        _CLIENT + "test_failures:test_a_session_may_start_without_its_guardian_and_every_step_of_it_is_recorded",
    ),
    Fault(
        "the client starts a refused session",
        "turnkeeper.client.asking.may_start_unguarded",
        always(value=True),
        _CLIENT + "test_failures:test_a_refused_session_never_starts",
    ),
    Fault(
        "the client believes saved terms",
        "turnkeeper.acs.observed.ObservedSession._check_signature",
        always(None),
        _CLIENT + "test_saved_terms:test_an_edited_posture_is_refused",
    ),
    Fault(
        "a grant is for any input",
        "turnkeeper.guardian.resubmissions.input_hash",
        any_input,
        _APPROVALS + "test_a_grant_is_for_the_input_that_the_approver_saw",
    ),
    Fault(
        "a grant is used again and again",
        "turnkeeper.guardian.questions.using",
        never_used,
        _APPROVALS + "test_a_granted_step_is_allowed_once_when_it_is_sent_again",
    ),
    Fault(
        "anybody answers for an approver",
        "turnkeeper.guardian.approvals._check_approver",
        always(None),
        _APPROVALS + "test_an_answer_that_nobody_may_give_is_refused",
    ),
    Fault(
        "a grant is wider than its question",
        "turnkeeper.guardian.approvals._check_scope",
        always(None),
        _APPROVALS + "test_a_grant_is_not_wider_than_the_question",
    ),
    Fault(
        "deferrals have no bound",
        "turnkeeper.guardian.dispositions._defer",
        unbounded,
        "tests.unit.guardian.test_dispositions:"
        "test_deferrals_of_a_session_are_bounded_whether_asked_for_or_substituted",
    ),
    Fault(
        "a MODIFY is sent to who cannot apply it",
        "turnkeeper.guardian.verdicts.give",
        as_the_policy_says,
        "tests.unit.guardian.test_dispositions:"
        "test_a_client_that_cannot_modify_is_denied_and_told_what_it_would_have_been",
    ),
)
