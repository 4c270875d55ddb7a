"""Verify an archive: every line against the seal, every record as `verify` reads a session in the store.

Answers for a file of which any changed, missing or added byte is found. Must never go on as if a seal held that does
not, nor read more than one session out of one file. Pure.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, cast

import orjson

from turnkeeper.acs import Keyring, SignatureRejected
from turnkeeper.guardian.archive import (
    COUNTED,
    HEADER,
    RECORD,
    SCHEMA_VERSION,
    SEAL,
    ArchiveMalformed,
    parse_archive_line,
    parse_record,
)
from turnkeeper.guardian.auditing import AuditFinding, SessionAudit, SessionAuditor, Severity
from turnkeeper.guardian.decisions import check_sealed
from turnkeeper.guardian.ports import ArchivedSession, PlatformCounts
from turnkeeper.guardian.verify import ArchivedAudit, Findings, VerifyReport, compare_counts

NO_COUNTS: Final[PlatformCounts] = {}


def is_archive(first_line: bytes) -> bool:
    """Whether a file that begins with this line means to be an archive."""
    try:
        return parse_archive_line(first_line).get("object") == HEADER
    except ArchiveMalformed:
        return False


def verify_archive(
    lines: Iterable[bytes],
    keyring: Keyring,
    *,
    archived: ArchivedSession | None = None,
    witnessed_heads: frozenset[str] = frozenset(),
    platform_counts: PlatformCounts = NO_COUNTS,
) -> VerifyReport:
    """The audit of an archive's lines. `archived` is what the Guardian's store still says of the session."""
    auditor = _ArchiveAuditor(keyring, archived, witnessed_heads)
    for line in lines:
        auditor.take(line)
    return auditor.close(platform_counts)


class _ArchiveAuditor:
    """Takes an archive's lines in order."""

    def __init__(self, keyring: Keyring, archived: ArchivedSession | None, witnessed_heads: frozenset[str]) -> None:
        self._keyring = keyring
        self._archived = archived
        self._witnessed = witnessed_heads
        self._findings = Findings()
        self._auditor: SessionAuditor | None = None
        self._session_id: str | None = None
        self._key_id: str | None = None
        self._closed: dict[str, object] | None = None
        self._counts = dict.fromkeys(COUNTED.values(), 0)
        self._lines = 0
        self._covered = hashlib.sha256()
        self._whole = hashlib.sha256()

    def take(self, line: bytes) -> None:
        """Audits the next line."""
        self._lines += 1
        self._whole.update(line)
        if self._closed is not None:
            self._break("archive_changed", "the archive goes on after its seal")
            return
        try:
            document = parse_archive_line(line)
            if document["object"] == SEAL:
                self._take_seal(document, line)
                return
            self._covered.update(line)
            self._take_document(document)
        except ArchiveMalformed as malformed:
            self._covered.update(line)
            self._break(malformed.error_code, malformed.message)

    def close(self, platform_counts: PlatformCounts) -> VerifyReport:
        """The report after the last line."""
        if self._closed is None:
            self._break("archive_incomplete", "the archive has no seal: its end is missing")
        session = None if self._auditor is None else self._auditor.close()
        if session is not None:
            # An erased sessionEnd does not show; that only closed sessions are archived does.
            session = replace(session, closed=True)
            self._compare(session)
            compare_counts(session, platform_counts, self._findings)
        whole = self._whole.hexdigest()
        self._compare_store(whole)
        told = ArchivedAudit(
            self._session_id or "",
            None if session is None else session.head,
            0 if session is None else session.entries,
            "" if self._archived is None else self._archived.archive_file,
            whole,
            verified=True,
        )
        sessions = () if session is None else (session,)
        return VerifyReport(tuple(self._findings.kept), sessions, self._findings.omitted, (told,))

    def _take_document(self, document: dict[str, object]) -> None:
        kind = cast("str", document["object"])
        if (self._lines == 1) != (kind == HEADER):
            raise ArchiveMalformed("an archive has one header, its first line")
        if kind == HEADER:
            self._take_header(document)
        elif kind not in COUNTED:
            raise ArchiveMalformed("a line is none that an archive has")
        else:
            self._counts[COUNTED[kind]] += 1
        if kind == RECORD and self._auditor is not None:
            self._auditor.take(parse_record(document))

    def _take_header(self, document: dict[str, object]) -> None:
        if document.get("schema_version") != SCHEMA_VERSION:
            self._break("archive_version_unknown", f"this program knows archives of version {SCHEMA_VERSION}")
        session_id, key_id = document.get("session_id"), document.get("key_id")
        if not isinstance(session_id, str) or not isinstance(key_id, str):
            raise ArchiveMalformed("the archive names no session, or no key")
        self._session_id, self._key_id = session_id, key_id
        self._auditor = SessionAuditor(session_id, self._keyring, self._findings.report, self._witnessed)

    def _take_seal(self, seal: dict[str, object], line: bytes) -> None:
        self._closed = seal
        # The signature covers the values; the bytes that spell them are covered by there being one spelling.
        if orjson.dumps(seal, option=orjson.OPT_APPEND_NEWLINE) != line:
            self._break("archive_changed", "the seal is not spelled as it was written")
        if seal.get("sha256") != self._covered.hexdigest():
            self._break("archive_changed", "the lines are not those that were sealed")
        try:
            check_sealed(seal, self._keyring, self._session_id or "", key_id=self._key_id)
        except SignatureRejected as rejected:
            self._break("archive_seal_invalid", f"the seal is not the Guardian's: {rejected.message}")

    def _compare(self, session: SessionAudit) -> None:
        seal = self._closed
        if seal is None:
            return
        counts: dict[str, object] = {**self._counts, "session_id": self._session_id, "entries": session.entries}
        for name, value in counts.items():
            if seal.get(name) != value:
                self._break("archive_counts_differ", f"{name} of the seal is not what the archive holds")
        if seal.get("head") != session.head:
            self._break("archive_head_differs", "the seal names another head than the chain in the archive")

    def _compare_store(self, sha256: str) -> None:
        archived = self._archived
        if archived is None:
            return
        if archived.archive_sha256 != sha256 or archived.session_id != self._session_id:
            self._break("archive_not_as_recorded", "the file is not the archive that the Guardian's store names")
        if self._closed is not None and self._closed.get("head") != archived.head:
            self._break("archive_head_differs", "the Guardian's store names another head than the archive")

    def _break(self, code: str, message: str) -> None:
        self._findings.report(AuditFinding(code, Severity.BREAK, self._session_id, self._lines, message))
