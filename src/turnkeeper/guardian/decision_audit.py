"""Verify a decision log: signed decisions beside the entries of their chain, without any content.

Answers for every decision being signed, in its place and of its entry, and for entries that follow from one another.
Cannot show whether a decision was right, nor a tail that was cut: compare the head. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import cast

from turnkeeper.acs import ChainBroken, JsonRejected, Keyring, parse_object, verify_chain
from turnkeeper.acs.strictjson import is_object, member_slices
from turnkeeper.guardian.auditing import AuditFinding, SessionAudit, Severity
from turnkeeper.guardian.decisions import LOG_MEMBERS, DecisionAbout, check_record, is_log_line
from turnkeeper.guardian.export import LINE_LIMITS
from turnkeeper.guardian.verify import UNNAMED, Findings, VerifyReport


def verify_decision_log(lines: Iterable[bytes], keyring: Keyring) -> VerifyReport:
    """The audit of one session's decision log."""
    auditor = _LogAuditor(keyring)
    for line in lines:
        auditor.take(line)
    return auditor.close()


class _LogAuditor:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._findings = Findings()
        self._lines = 0
        self._session_id: str | None = None
        self._key_id: str | None = None
        self._head: str | None = None
        self._entries = 0
        self._closed = False

    def take(self, line: bytes) -> None:
        """Audits the next line."""
        self._lines += 1
        try:
            slices = member_slices(line, LINE_LIMITS)
            document = parse_object(line, LINE_LIMITS)
        except JsonRejected as rejected:
            self._break("line_unreadable", f"a line is not usable JSON: {rejected.message}")
            return
        if not is_log_line(slices):
            self._break("line_unreadable", f"a line has other members than {', '.join(LOG_MEMBERS)}")
            return
        decision, entry = document["decision"], document["entry"]
        if is_object(entry):
            self._link(entry)
        if is_object(decision):
            self._check(decision, slices["decision"].encode(), entry if is_object(entry) else None)
        elif not is_object(entry):
            self._break("line_unreadable", "a line has neither a decision nor an entry")

    def close(self) -> VerifyReport:
        """The report after the last line."""
        session_id = self._session_id or UNNAMED
        session = SessionAudit(session_id, self._lines, self._entries, self._head, self._closed, ())
        return VerifyReport(tuple(self._findings.kept), (session,), self._findings.omitted)

    def _check(self, decision: Mapping[str, object], record: bytes, entry: Mapping[str, object] | None) -> None:
        if self._session_id is None:
            self._session_id = cast("str", decision.get("session_id"))
            signature = decision.get("signature")
            label = signature.get("key_id") if is_object(signature) else None
            self._key_id = label if isinstance(label, str) else None
        about = DecisionAbout(str(self._session_id), self._key_id, self._lines, entry, None, None)
        for code, message in check_record(record, about, self._keyring):
            self._break(code, message)
        self._closed = self._closed or decision.get("method") == "steps/sessionEnd"

    def _link(self, entry: Mapping[str, object]) -> None:
        try:
            self._head = verify_chain([entry], previous=self._head)
        except ChainBroken as broken:
            self._break("chain_broken", broken.message.replace("entry 0", "the entry"))
            self._head = cast("str | None", entry.get("entry_hash"))
        self._entries += 1

    def _break(self, code: str, message: str) -> None:
        self._findings.report(AuditFinding(code, Severity.BREAK, self._session_id, self._lines, message))
