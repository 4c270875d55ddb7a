"""Faults as data: what is replaced by what, and the test that finds it.

Each stands for a mistake that an implementation of the standard makes or could make. `target` is the dotted name under
which the code looks a function up; `make` gets what stands there and gives what stands there instead.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from turnkeeper.acs import Decision, Disposition, KeyMatch, canonicalize
from turnkeeper.client.outcomes import Allowed
from turnkeeper.client.posture import Judgement
from turnkeeper.guardian.checks import CONTENT
from turnkeeper.guardian.dispositions import Given
from turnkeeper.guardian.windows import Placement, TurnWindow

_ORDER: Final = "tests.unit.guardian.test_order_of_checks:"
_TURNS: Final = "tests.unit.guardian.test_turns_at_the_guardian:"
_FAULTS: Final = "tests.unit.guardian.test_faults:"
_OURS: Final = "tests.conformance.test_guardian_requirements:"
_CLIENT: Final = "tests.unit.client."
_APPROVALS: Final = "tests.unit.guardian.test_approvals:"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `killer` is a module and a test function; each of its cases is tried."""

    name: str
    target: str
    make: Callable[[Any], Any]
    killer: str


def _always(value: object) -> Callable[[Any], Any]:
    """A function that says the same whatever it is asked."""

    def answer(*_: object, **__: object) -> object:
        return value

    return lambda _: answer


def _skipped_signature(_: Any) -> Any:
    def verify(document: Any, keyring: Any) -> KeyMatch:
        key_id = str(document["params"].get("signature", {}).get("key_id", "default"))
        return KeyMatch(key_id, keyring.session_key(key_id, document["params"]["metadata"]["session_id"]))

    return verify


def _any_label(original: Any) -> Any:
    def session_key(self: Any, key_id: str, session_id: str) -> Any:
        return original(self, key_id if key_id in self.key_ids else min(self.key_ids), session_id)

    return session_key


def _linked_in_hex(_: Any) -> Any:
    def link(entry: Mapping[str, object], previous: str | None) -> dict[str, object]:
        digest = hashlib.sha256(canonicalize(entry) + (previous or "").encode()).hexdigest()
        return dict(entry) | {"previous_hash": previous, "entry_hash": digest}

    return link


def _linked_after_zeros(original: Any) -> Any:
    def link(entry: Mapping[str, object], previous: str | None) -> dict[str, object]:
        return original(entry, previous or "0" * 64) | {"previous_hash": previous}

    return link


def _without_head(original: Any) -> Any:
    def render(call: Any, decision: Decision, _: str | None) -> bytes:
        return original(call, decision, None)

    return render


def _unsigned(original: Any) -> Any:
    def render(error: Any, rpc_id: Any, _: object) -> bytes:
        return original(error, rpc_id, None)

    return render


def _answered_at_once(_: Any) -> Any:
    async def answer_call(self: Any, call: Any) -> bytes:
        live, used = await self._find(call)
        taken = self._desk.take(call, live, used, await self._look_up(call))
        self._commit_step(taken)
        return taken.record.response

    return answer_call


def _raised(_: Any) -> Any:
    def refused(_call: Any, _live: Any, error: Exception) -> None:
        raise error

    return refused


def _forgetting(original: Any) -> Any:
    def load(self: Any, session_id: str, max_ids: int) -> Any:
        stored = original(self, session_id, max_ids)
        return None if stored is None else replace(stored, request_ids=(), nonces=(), complete=True)

    return load


def _starting_anew(_: Any) -> Any:
    def start(_window: Any, turns: int, request: Any, _deferred: Any) -> Placement:
        turn_id = str(request.payload["turn_id"])
        return Placement(TurnWindow(turn_id, turns + 1), turn_id, opened=True)

    return start


def _closing_any(_: Any) -> Any:
    def end(window: TurnWindow | None, _: Any) -> Placement:
        return Placement(None, None if window is None else window.turn_id, closed=window)

    return end


def _uncounted(_: Any) -> Any:
    def counted(self: TurnWindow, **_: bool) -> TurnWindow:
        return self

    return counted


def _failing_open(original: Any) -> Any:
    def evaluate(engine: Any, facts: Any) -> Decision:
        decision = original(engine, facts)
        failed = "evaluation_failed" in decision.reason_codes
        return Decision(Disposition.ALLOW) if failed else decision

    return evaluate


def _telling(_: Any) -> Any:
    def evaluate(engine: Any, facts: Any) -> Decision:
        try:
            return engine.evaluate(facts)
        except Exception as error:  # noqa: BLE001  the fault is that a failure tells its detail
            return Decision(Disposition.DENY, str(error), ("evaluation_failed",), (engine.reference,))

    return evaluate


def _as_the_policy_says(_: Any) -> Any:
    def give(_spec: Any, decision: Decision, _payload: Any, _to: Any) -> Given:
        return Given(decision)

    return give


def _never_closed(original: Any) -> Any:
    def advanced(*given: Any, **more: Any) -> Any:
        return replace(original(*given, **more), closed=False)

    return advanced


def _found_anywhere(_: Any) -> Any:
    def with_reference(_call: Any, _live: Any, _used: Any, looked_up: Any) -> Any:
        return replace(looked_up, referenced_method="steps/toolCallRequest")

    return with_reference


def _rising(_: Any) -> Any:
    def lowest(_: str, second: str) -> str:
        return second

    return lowest


def _taken_as_it_is(_: Any) -> Any:
    def unmodified(question: Any, verdict: Any, _code: str, _why: str) -> Judgement:
        return Judgement(Allowed(question.request_id, question.payload, verdict))

    return unmodified


def _lenient(_: Any) -> Any:
    def parse(body: bytes, _: Any) -> Any:
        return orjson.loads(body)

    return parse


def _any_input(_: Any) -> Any:
    def digest(_: Any) -> str:
        return "0" * 64

    return digest


def _never_used(original: Any) -> Any:
    def using(memory: Any, resubmission: Any, grant: Any) -> Any:
        changed = original(memory, resubmission, grant)
        asked = {name: replace(one, used=False) for name, one in changed.kept.asked.items()}
        return changed.keeping(asked=asked)

    return using


def _unbounded(_: Any) -> Any:
    def defer(_spec: Any, decision: Decision, _to: Any) -> Given:
        return Given(decision)

    return defer


_HEADLESS = _OURS + "test_the_first_entry_of_a_session_hashes_nothing_before_it"

FAULTS: Final = (
    Fault(
        "signatures are not verified",
        "turnkeeper.guardian.calls.verify_request",
        _skipped_signature,
        _ORDER + "test_unsigned_forged_and_partly_signed_requests_are_refused_unsigned_and_burn_no_id",
    ),
    Fault(
        "an unknown label opens with another secret",
        "turnkeeper.acs.keys.Keyring.session_key",
        _any_label,
        "tests.unit.acs.test_keys:test_an_unknown_label_has_no_key_and_no_fallback",
    ),
    Fault(
        "duplicate members are taken",
        "turnkeeper.guardian.calls.parse_strict",
        _lenient,
        _ORDER + "test_a_body_that_is_no_request_gets_an_unsigned_error",
    ),
    Fault(
        "errors are not signed",
        "turnkeeper.guardian.pipeline.render_error",
        _unsigned,
        _ORDER + "test_a_broken_envelope_that_is_signed_gets_a_signed_error",
    ),
    Fault(
        "a replay is answered again",
        "turnkeeper.guardian.steps._check_replay",
        _always(None),
        _ORDER + "test_a_repeat_in_the_window_is_a_replay_whatever_the_first_was_answered",
    ),
    Fault(
        "nonces are not remembered",
        "turnkeeper.guardian.sessions.ReplayMemory.has_nonce",
        _always(value=False),
        _ORDER + "test_the_same_nonce_under_a_new_id_is_a_replay",
    ),
    Fault(
        "a refused request reserves nothing",
        "turnkeeper.guardian.steps._refused",
        _raised,
        _ORDER + "test_a_method_that_was_not_negotiated_is_refused_and_burns_its_id",
    ),
    Fault(
        "replay memory does not survive a restart",
        "turnkeeper.store.chain.SqliteGuardianStore.load_session",
        _forgetting,
        "tests.unit.guardian.test_restart:test_refused_requests_stay_used",
    ),
    Fault(
        "timestamps are not looked at",
        "turnkeeper.guardian.steps._check_time",
        _always(None),
        _ORDER + "test_a_timestamp_outside_the_window_is_refused_and_burns_no_id",
    ),
    Fault(
        "any method is negotiated",
        "turnkeeper.guardian.steps._check_negotiated",
        _always(None),
        _ORDER + "test_a_method_that_was_not_negotiated_is_refused_and_burns_its_id",
    ),
    Fault(
        "payloads are not looked at",
        "turnkeeper.guardian.steps._check_payload",
        _always(None),
        _ORDER + "test_a_payload_that_breaks_its_schema_is_refused_and_recorded",
    ),
    Fault(
        "whoever has a key speaks in any session",
        "turnkeeper.guardian.steps._check_binding",
        _always(None),
        _ORDER + "test_another_key_or_agent_is_denied_in_a_session_it_did_not_open",
    ),
    Fault(
        "a session never ends",
        "turnkeeper.guardian.steps._advanced",
        _never_closed,
        _ORDER + "test_after_session_end_a_step_is_denied_and_an_audit_hook_gets_an_error",
    ),
    Fault(
        "the client's head is not compared",
        "turnkeeper.guardian.verdicts._differs",
        _always(value=False),
        _ORDER + "test_another_chain_head_is_denied_with_an_entry",
    ),
    Fault(
        "the previous hash is appended as text",
        "turnkeeper.guardian.steps.link",
        _linked_in_hex,
        "tests.unit.guardian.test_verify:test_a_store_is_verified_beside_a_running_guardian",
    ),
    Fault("the first hash follows zeros", "turnkeeper.guardian.steps.link", _linked_after_zeros, _HEADLESS),
    Fault("the head is not published", "turnkeeper.guardian.steps.render_decision", _without_head, _HEADLESS),
    Fault(
        "an answer leaves before its commit",
        "turnkeeper.guardian.pipeline.Guardian._answer_call",
        _answered_at_once,
        _FAULTS + "test_a_step_that_cannot_be_recorded_is_denied_and_may_be_sent_again",
    ),
    Fault(
        "a turnEnd is denied",
        "turnkeeper.guardian.verdicts.give",
        _as_the_policy_says,
        _FAULTS + "test_a_rule_against_an_audit_hook_is_replaced_and_noted",
    ),
    Fault(
        "a compaction is denied",
        "turnkeeper.guardian.verdicts.give",
        _as_the_policy_says,
        _OURS + "test_a_compaction_is_never_denied",
    ),
    Fault(
        "a turnEnd closes whatever is open",
        "turnkeeper.guardian.windows._end",
        _closing_any,
        _TURNS + "test_wrong_turn_ends_are_allowed_noted_and_close_nothing",
    ),
    Fault(
        "a turnStart resets the count of an open turn",
        "turnkeeper.guardian.windows._start",
        _starting_anew,
        _TURNS + "test_neither_a_new_turn_start_nor_a_foreign_id_escapes_the_count",
    ),
    Fault(
        "steps are not counted",
        "turnkeeper.guardian.windows.TurnWindow.counted",
        _uncounted,
        _TURNS + "test_an_honest_turn_leaves_its_counts_and_no_finding",
    ),
    Fault(
        "what the client counts is not compared",
        "turnkeeper.guardian.windows._wrong_counts",
        _always(()),
        _TURNS + "test_wrong_turn_ends_are_allowed_noted_and_close_nothing",
    ),
    Fault(
        "an engine that fails allows",
        "turnkeeper.guardian.verdicts._evaluate",
        _failing_open,
        _FAULTS + "test_an_engine_that_fails_denies_and_tells_nothing",
    ),
    Fault(
        "an engine that fails tells why",
        "turnkeeper.guardian.verdicts._evaluate",
        _telling,
        _FAULTS + "test_an_engine_that_fails_denies_and_tells_nothing",
    ),
    Fault(
        "a reference is found in any session",
        "turnkeeper.guardian.steps._with_reference",
        _found_anywhere,
        "tests.unit.guardian.test_references:test_a_reference_to_a_refused_call_is_a_finding",
    ),
    Fault(
        "any skill loads",
        "turnkeeper.guardian.skills._path_checked",
        _always(CONTENT),
        "tests.unit.guardian.test_skills:test_a_skill_loads_another_only_where_it_is_composed_of_it",
    ),
    Fault(
        "an intent comes from anywhere",
        "turnkeeper.guardian.intent._origin_denied",
        _always(None),
        "tests.unit.guardian.test_intents:"
        "test_an_intent_parsed_from_anything_but_the_users_words_is_denied_and_fixes_nothing",
    ),
    Fault(
        "the lineage of a summary is not compared",
        "turnkeeper.guardian.compaction._compared",
        _always(CONTENT),
        "tests.unit.guardian.test_lineage:test_a_compaction_derives_from_exactly_what_it_replaced",
    ),
    Fault(
        "trust rises on the way",
        "turnkeeper.guardian.provenance.lowest",
        _rising,
        "tests.unit.guardian.test_lineage:test_trust_never_rises_along_a_derivation",
    ),
    Fault(
        "modifications of two meanings are sent",
        "turnkeeper.acs.modifications._check_disjoint",
        _always(None),
        _OURS + "test_modifications_of_a_wrapped_call_address_its_arguments",
    ),
    Fault(
        "the client takes answers that nobody signed",
        "turnkeeper.acs.observed.ObservedSession._check_signature",
        _always(None),
        _CLIENT + "test_failures:test_a_wire_that_stays_broken_leaves_the_step_to_the_posture",
    ),
    Fault(
        "the client acts with the original",
        "turnkeeper.client.verdicts._unmodified",
        _taken_as_it_is,
        _CLIENT + "test_verdicts:test_an_agent_that_cannot_modify_denies_and_says_so",
    ),
    Fault(
        "the client records nothing",
        "turnkeeper.client.audit.Auditor.write",
        _always(None),
        _CLIENT + "test_failures:test_a_session_may_start_without_its_guardian_and_every_step_of_it_is_recorded",
    ),
    Fault(
        "the client starts a refused session",
        "turnkeeper.client.asking.may_start_unguarded",
        _always(value=True),
        _CLIENT + "test_failures:test_a_refused_session_never_starts",
    ),
    Fault(
        "the client believes saved terms",
        "turnkeeper.acs.observed.ObservedSession._check_signature",
        _always(None),
        _CLIENT + "test_saved_terms:test_an_edited_posture_is_refused",
    ),
    Fault(
        "a grant is for any input",
        "turnkeeper.guardian.resubmissions.input_hash",
        _any_input,
        _APPROVALS + "test_a_grant_is_for_the_input_that_the_approver_saw",
    ),
    Fault(
        "a grant is used again and again",
        "turnkeeper.guardian.questions.using",
        _never_used,
        _APPROVALS + "test_a_granted_step_is_allowed_once_when_it_is_sent_again",
    ),
    Fault(
        "anybody answers for an approver",
        "turnkeeper.guardian.approvals._check_approver",
        _always(None),
        _APPROVALS + "test_an_answer_that_nobody_may_give_is_refused",
    ),
    Fault(
        "a grant is wider than its question",
        "turnkeeper.guardian.approvals._check_scope",
        _always(None),
        _APPROVALS + "test_a_grant_is_not_wider_than_the_question",
    ),
    Fault(
        "deferrals have no bound",
        "turnkeeper.guardian.dispositions._defer",
        _unbounded,
        "tests.unit.guardian.test_dispositions:"
        "test_deferrals_of_a_session_are_bounded_whether_asked_for_or_substituted",
    ),
    Fault(
        "a MODIFY is sent to who cannot apply it",
        "turnkeeper.guardian.verdicts.give",
        _as_the_policy_says,
        "tests.unit.guardian.test_dispositions:"
        "test_a_client_that_cannot_modify_is_denied_and_told_what_it_would_have_been",
    ),
)
