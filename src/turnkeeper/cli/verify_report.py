"""What `verify` found, for a person and for a program."""

from collections.abc import Iterator
from dataclasses import asdict

import orjson

from turnkeeper.guardian.auditing import AuditFinding, SessionAudit
from turnkeeper.guardian.verify import ArchivedAudit, VerifyReport


def render_lines(report: VerifyReport) -> Iterator[str]:
    """The report for a person."""
    yield from map(_finding, report.findings)
    if report.omitted:
        yield f"... and {report.omitted} more findings"
    archived = {one.session_id: one for one in report.archived}
    for session in report.sessions:
        yield from _session(session, archived.pop(session.session_id, None))
    for one in archived.values():
        yield f"session {one.session_id}: archived, {one.entries} entries, head {one.head or 'none'}, not verified here"
    yield _verdict(report)


def render_json(report: VerifyReport) -> str:
    """The report for a program."""
    document = {
        "intact": report.intact,
        "findings": [asdict(found) for found in report.findings],
        "omitted": report.omitted,
        "sessions": [asdict(session) for session in report.sessions],
        "archived": [asdict(one) for one in report.archived],
        "compared": report.compared,
    }
    return orjson.dumps(document).decode()


def _finding(found: AuditFinding) -> str:
    where = f"{found.session_id or 'file'} row {found.row}" if found.row else found.session_id or "file"
    return f"{found.severity.value}: {where}: {found.message} [{found.code}]"


def _session(session: SessionAudit, archived: ArchivedAudit | None) -> Iterator[str]:
    state = "archived" if archived is not None else "closed" if session.closed else "open"
    erased = f", {session.erased} rows erased" if session.erased else ""
    name = session.session_id or "without a name"
    yield f"session {name}: {session.entries} entries, {state}{erased}, head {session.head or 'none'}"
    for turn in session.turns:
        ended = turn.outcome or "no turnEnd yet"
        yield f"  turn {turn.turn_id}: {ended}, {turn.steps} steps, {turn.tool_calls} tool calls"


def _verdict(report: VerifyReport) -> str:
    verdict = "intact" if report.intact else "BROKEN"
    entries = sum(session.entries for session in report.sessions)
    compared = f"{report.compared} lines held against the Guardian's record, " if report.compared else ""
    return (
        f"{verdict}: {compared}{len(report.sessions)} sessions, {entries} entries, every hash and signature recomputed"
    )
