"""Answers the public corpus `agent-evidence-vectors`, suite acs-core, with the parts that Turnkeeper ships.

`agent-evidence-heldout run --suite acs-core -- .venv/bin/python tests/conformance/heldout_adapter.py`. Each question is
recognised by the members it has, never by a name or an id, so that slices nobody has seen are answered alike. What no
part of ours can answer is said to be unmeasurable, also where the corpus has an answer: the claim page lists those.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance.corpus import decisions, evidence, keys, observed, traces
from tests.conformance.corpus.answers import Question, Said, unmeasurable

Kind = tuple[frozenset[str], Callable[[Question], Said]]


def _kind(members: str, answer: Callable[[Question], Said]) -> Kind:
    return frozenset(members.split()), answer


KINDS: Final[tuple[Kind, ...]] = (
    _kind("witnessed_heads context_entry", evidence.sealed),
    _kind("signature_covers guardian_response", evidence.covered),
    _kind("key_id_resolves_to signed_by", evidence.headed),
    _kind("context_entry profile", evidence.entered),
    _kind("observed_agent response response_signed_input", keys.answered),
    _kind("record.derived_from record.trust", evidence.trusted),
    _kind("record.deployment_key_config", keys.labelled),
    _kind("provenance_producer record", decisions.untrusted_producer),
    _kind("guardian_session_records guardian_audit_record", decisions.referred),
    _kind("verifier request", keys.sent),
    _kind("handshake_answer startup_posture", observed.started),
    _kind("applied deployment_audit_log response observed_agent", observed.modified),
    _kind("on_decision_failure audit_events", observed.undecided),
    _kind("guardian_response.malformed", observed.no_answer),
    _kind("action hooks_fired", observed.acted),
    _kind("trace_sink guardian_decision", observed.traced),
    _kind("record.decision_failure record.deployment_audit_log", observed.failed),
    _kind("record.guardian_error record.event", observed.detailed),
    _kind("record.observed_agent_validation response", observed.validated),
    _kind("guardian_trace_events guardian_response", decisions.replayed),
    _kind("approval request", decisions.approved),
    _kind("approver_response request", decisions.asked_back),
    _kind("record.otel_span", traces.spanned),
    _kind("record.ocsf", traces.exported),
    _kind("record.trace", traces.read),
    _kind("steps", decisions.decided),
    _kind("request", decisions.decided),
)
"""What a question needs to have, most telling first; a dotted name is a member of a member."""


def answer(question: Question) -> Said:
    """The answer to one question."""
    for members, kind in KINDS:
        if all(_has(question, member) for member in members):
            return kind(question)
    return unmeasurable("no part of ours is asked here")


def _has(question: Question, member: str) -> bool:
    node: Any = question
    for name in member.split("."):
        if not isinstance(node, dict) or name not in node:
            return False
        node = cast("dict[str, Any]", node)[name]
    return True


def main() -> None:
    """One JSON object per line, in and out. Whatever else is printed, logs too, goes to standard error."""
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            said = answer(json.loads(line)["question"])
        except Exception as error:  # noqa: BLE001  one question must not end the others
            said = unmeasurable(f"{type(error).__name__}: {error}")
        out.write(json.dumps(said.to_document()) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
