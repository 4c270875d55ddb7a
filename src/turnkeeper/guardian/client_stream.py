"""Verify what an agent did against what its Guardian decided: both streams joined by session and request_id (AUD-05).

Answers for steps that one side has and the other has not, for decisions and heads that differ, and for an agent that
acted without a decision or against one. Takes the agent's own audit log (`turnkeeper.client.audit`, with
`audit_decisions`), which nobody has signed: whoever can write that file can make it agree. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from turnkeeper.acs import JsonRejected, hook_spec, parse_object
from turnkeeper.guardian.auditing import AuditFinding, Severity
from turnkeeper.guardian.known_steps import KnownStep, KnownSteps
from turnkeeper.guardian.verify import Findings, VerifyReport

DECISION: Final = "decision"
MAX_RECORDS: Final = 1_000_000

_UNDECIDED: Final = frozenset({"decision_failure", "unguarded_start"})
_LETS_THROUGH: Final = frozenset({"allow", "modify"})
_MANDATORY: Final = frozenset({"seq", "event", "session_id", "outcome"})


def is_client_record(document: Mapping[str, object]) -> bool:
    """Whether a line is a record of an agent's audit log."""
    return document.keys() >= _MANDATORY


def verify_client_stream(lines: Iterable[bytes], known: KnownSteps) -> VerifyReport:
    """The agent's audit log held against the Guardian's record of the same sessions."""
    auditor = _ClientAuditor(known)
    for line in lines:
        auditor.take(line)
    return auditor.close()


class _ClientAuditor:
    def __init__(self, known: KnownSteps) -> None:
        self._known = known
        self._findings = Findings()
        self._lines = 0
        self._asked: dict[str, set[str]] = {}
        self._told: set[str] = set()
        self._session_id: str | None = None

    def take(self, line: bytes) -> None:
        """Joins the next record."""
        self._lines += 1
        self._session_id = None
        try:
            record = parse_object(line)
        except JsonRejected as rejected:
            self._break("line_unreadable", f"a record is not usable JSON: {rejected.message}")
            return
        session_id, request_id = record.get("session_id"), record.get("request_id")
        if not is_client_record(record) or not isinstance(session_id, str):
            self._break("line_unreadable", "a line is no record of an agent's audit log")
            return
        if self._lines > MAX_RECORDS:
            self._break("too_many_records", f"more than {MAX_RECORDS:,} records cannot be joined")
            return
        self._session_id = session_id
        step = self._known.find(session_id, request_id) if isinstance(request_id, str) else None
        if isinstance(request_id, str):
            self._asked.setdefault(session_id, set()).add(request_id)
        self._join(record, step)

    def close(self) -> VerifyReport:
        """The report after the last record: what the Guardian has and the agent does not say."""
        for session_id in sorted(self._told):
            asked = self._asked.get(session_id, set[str]())
            for step in self._known.of_session(session_id):
                if step.chain_hash is not None and step.decision is not None and step.request_id not in asked:
                    message = f"the Guardian decided {step.request_id}, which the agent does not say it asked"
                    self._found("client_step_missing", message, session_id, 0)
        return VerifyReport(tuple(self._findings.kept), (), self._findings.omitted, compared=self._lines)

    def _join(self, record: Mapping[str, object], step: KnownStep | None) -> None:
        event = record["event"]
        if event == DECISION:
            self._told.add(str(record["session_id"]))
            self._join_decision(record, step)
        elif event in _UNDECIDED and record["outcome"] == "proceeded":
            self._join_undecided(step)
        elif event == "head_mismatch":
            self._break("agent_saw_head_mismatch", "the agent was shown a head that does not go on from the one before")

    def _join_decision(self, record: Mapping[str, object], step: KnownStep | None) -> None:
        head = record.get("chain_hash")
        if step is None:
            if head is not None:
                self._break("guardian_step_missing", "the agent was given a decision that the Guardian has not")
            return
        if head is not None and head != step.chain_hash:
            self._break("head_differs", "the agent was shown another head than the entry has")
        if step.decision is not None and record.get("received") != step.decision:
            self._break("decision_differs", "the agent received another decision than the Guardian recorded")
        if record["outcome"] == "proceeded":
            self._check_obeyed(step)

    def _join_undecided(self, step: KnownStep | None) -> None:
        self._break("acted_without_decision", "the agent went on without a decision")
        if step is not None:
            self._check_obeyed(step)

    def _check_obeyed(self, step: KnownStep) -> None:
        spec = hook_spec(step.method or "")
        # What has happened already could not have been held back.
        reports = spec is not None and spec.audit_only
        if step.decision is not None and step.decision not in _LETS_THROUGH and not reports:
            self._break("acted_against_decision", f"the agent went on, and the Guardian's decision is {step.decision}")

    def _break(self, code: str, message: str) -> None:
        self._found(code, message, self._session_id, self._lines)

    def _found(self, code: str, message: str, session_id: str | None, row: int) -> None:
        self._findings.report(AuditFinding(code, Severity.BREAK, session_id, row, message))
