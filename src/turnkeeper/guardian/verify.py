"""Verify (ledger section 12): a record is recomputed offline, from the store or from an export, with the key alone.

Answers for findings as data: a record without a `break` is intact as far as its key can prove. Must never trust a
line it cannot read, nor keep more findings than a person could want. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from turnkeeper.acs import JsonRejected, Keyring, parse_object
from turnkeeper.guardian.auditing import AuditFinding, SessionAudit, SessionAuditor, Severity
from turnkeeper.guardian.export import LINE_LIMITS, AuditRow, ExportMalformed, parse_line, stored_rows
from turnkeeper.guardian.ports import ChainReader, PlatformCounts, SessionSummary

MAX_FINDINGS: Final = 1_000
MAX_SESSIONS_IN_FILE: Final = 10_000
UNNAMED: Final = ""
"""The session of an export in which every request was erased: its chain can be checked, and its keys not known."""


@dataclass(frozen=True, slots=True)
class ArchivedAudit:
    """A session that left for an archive. `verified` says that the archive was there to be read."""

    session_id: str
    head: str | None
    entries: int
    archive_file: str
    archive_sha256: str
    verified: bool


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was found. `omitted` counts what came above `MAX_FINDINGS` breaks and as many notices.

    `compared` counts the lines of another stream that were held against the Guardian's record.
    """

    findings: tuple[AuditFinding, ...]
    sessions: tuple[SessionAudit, ...]
    omitted: int = 0
    archived: tuple[ArchivedAudit, ...] = ()
    compared: int = 0

    @property
    def intact(self) -> bool:
        """Whether nothing was found that breaks the record; notices do not."""
        return all(found.severity is not Severity.BREAK for found in self.findings)

    @property
    def heads(self) -> Mapping[str, str | None]:
        """Each session's last hash."""
        return {session.session_id: session.head for session in self.sessions}


class Findings:
    """A bounded list of findings; notices never push a break out."""

    def __init__(self) -> None:
        self.kept: list[AuditFinding] = []
        self.omitted = 0
        self._room = {Severity.BREAK: MAX_FINDINGS, Severity.NOTICE: MAX_FINDINGS}

    def report(self, found: AuditFinding) -> None:
        """Keeps a finding, or counts it."""
        if self._room[found.severity] == 0:
            self.omitted += 1
            return
        self._room[found.severity] -= 1
        self.kept.append(found)


def verify_rows(
    rows: Iterable[AuditRow],
    keyring: Keyring,
    *,
    session_id: str,
    witnessed_heads: frozenset[str] = frozenset(),
    platform_counts: PlatformCounts | None = None,
) -> VerifyReport:
    """The audit of one session's rows.

    `witnessed_heads` are heads that somebody else saw: each must occur, so that a cut tail shows. `platform_counts`
    are what the turn side states of each turn, compared with the last window of that turn.
    """
    findings = Findings()
    auditor = SessionAuditor(session_id, keyring, findings.report, witnessed_heads)
    for row in rows:
        auditor.take(row)
    session = auditor.close()
    compare_counts(session, platform_counts or {}, findings)
    return VerifyReport(tuple(findings.kept), (session,), findings.omitted)


def verify_stored(
    reader: ChainReader,
    summary: SessionSummary,
    keyring: Keyring,
    *,
    witnessed_heads: frozenset[str] = frozenset(),
    platform_counts: PlatformCounts | None = None,
) -> VerifyReport:
    """The audit of a session in the store: the head that the session's own row states must occur as well.

    A running Guardian may add rows meanwhile; `summary` was read before them, which is no finding.
    """
    head = summary.progress.head
    return verify_rows(
        stored_rows(reader, summary.session_id),
        keyring,
        session_id=summary.session_id,
        witnessed_heads=witnessed_heads if head is None else witnessed_heads | {head},
        platform_counts=platform_counts,
    )


def verify_export(
    lines: Iterable[bytes], keyring: Keyring, *, witnessed_heads: Mapping[str, frozenset[str]] | None = None
) -> VerifyReport:
    """The audit of an export's lines; several sessions may stand in one file, each in its own order.

    `witnessed_heads` are by session id; a session that is named there and missing from the file is a finding.
    """
    findings = Findings()
    witnessed = witnessed_heads or {}
    auditors: dict[str, SessionAuditor] = {}
    last: str | None = None
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_line(line)
        except ExportMalformed as malformed:
            findings.report(AuditFinding("line_unreadable", Severity.BREAK, None, number, malformed.message))
            continue
        # A row whose request cannot be read stays with the session before it.
        named = _session_of(row)
        if named is not None and last == UNNAMED and named not in auditors:
            # Erased rows name no session; they belong to the one whose rows follow them.
            auditors[named] = auditors.pop(UNNAMED)
            auditors[named].name(named, witnessed.get(named, frozenset()))
        last = named or last or (UNNAMED if row.request is None else None)
        if last is None or (last not in auditors and len(auditors) >= MAX_SESSIONS_IN_FILE):
            findings.report(AuditFinding("session_unknown", Severity.BREAK, None, number, "the row names no session"))
            continue
        if last not in auditors:
            heads = frozenset[str]().union(*witnessed.values()) if last == UNNAMED else witnessed.get(last, frozenset())
            auditors[last] = SessionAuditor(last, keyring, findings.report, heads)
        auditors[last].take(row)
    if UNNAMED in auditors:
        auditors[UNNAMED].name(UNNAMED, frozenset())
    for session_id in sorted(witnessed.keys() - auditors.keys()):
        findings.report(AuditFinding("session_missing", Severity.BREAK, session_id, 0, "the session is missing"))
    sessions = tuple(auditor.close() for auditor in auditors.values())
    return VerifyReport(tuple(findings.kept), sessions, findings.omitted)


def _session_of(row: AuditRow) -> str | None:
    try:
        params = parse_object(row.request or b"", LINE_LIMITS).get("params")
    except JsonRejected:
        return None
    metadata = params.get("metadata") if isinstance(params, dict) else None
    session_id = metadata.get("session_id") if isinstance(metadata, dict) else None
    return session_id if isinstance(session_id, str) else None


def compare_counts(session: SessionAudit, stated: PlatformCounts, findings: Findings) -> None:
    """Compares what the turn side states of each turn with the chain; not where requests were erased."""
    if session.erased:
        return
    last = {turn.turn_id: turn for turn in session.turns if turn.outcome is not None}
    for turn_id, (steps, tool_calls) in stated.items():
        turn = last.get(turn_id)
        if turn is None:
            message = f"the platform ended the turn {turn_id}, and the chain has no turnEnd of it"
        elif steps not in (None, turn.steps) or tool_calls not in (None, turn.tool_calls):
            message = (
                f"the platform counts {steps} steps and {tool_calls} tool calls in the turn {turn_id},"
                f" the chain {turn.steps} and {turn.tool_calls}"
            )
        else:
            continue
        findings.report(AuditFinding("platform_counts_differ", Severity.BREAK, session.session_id, 0, message))
