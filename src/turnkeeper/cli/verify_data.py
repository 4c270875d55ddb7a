"""`verify` of a data dir: every chain in the Guardian's store, every archive, against what the turn side saw.

Reads alone: no store is migrated, none is changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from turnkeeper.acs.keys import Keyring
from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.export import acs_session_id
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir
from turnkeeper.guardian.archive_audit import verify_archive
from turnkeeper.guardian.auditing import AuditFinding, Severity
from turnkeeper.guardian.ports import ArchivedSession, PlatformCounts, SessionSummary
from turnkeeper.guardian.verify import ArchivedAudit, VerifyReport, verify_stored
from turnkeeper.settings import GuardianSettings
from turnkeeper.store.archives import FolderArchives
from turnkeeper.store.chain_reads import ChainReads
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.platform import open_store
from turnkeeper.wiring.record import require_record
from turnkeeper.wiring.retention import archives_of, recorded_keys
from turnkeeper.wiring.witness import Witness, witnesses

PAGE_SESSIONS: Final = 100


@dataclass(frozen=True, slots=True)
class _Record:
    """What a data dir's sessions are verified with."""

    reader: ChainReads
    archives: FolderArchives
    keyring: Keyring


async def verify_data_dir(configuration: Configuration, session: str | None) -> VerifyReport:
    """The audit of every session of a data dir, or of one. Raises `UsageRefused`, `DataDirUnusable`."""
    folder, chosen = DataDir(configuration.settings.data_dir), configuration.settings.guardian
    record = require_record(configuration.settings, folder)
    seen = await _witnesses(configuration, folder)
    reports: list[VerifyReport] = []
    if record.is_there():
        with record.reader() as reader:
            wanted = None if session is None else acs_session_id(session)
            here = _Record(reader, archives_of(chosen, folder), keys_of(chosen, folder))
            reports = list(_reports(here, seen, wanted))
    if session is not None and not reports:
        raise UsageRefused(f"the Guardian knows no session {session}")
    lost = () if session is not None or chosen.url else _lost(seen)
    return _merged(reports, lost)


def keys_of(settings: GuardianSettings, folder: DataDir) -> Keyring:
    """Every key that sessions on a data dir may have been signed with. Raises `UsageRefused`."""
    try:
        return recorded_keys(settings, folder)
    except OSError as error:
        raise UsageRefused(f"{error.filename} cannot be read: {error.strerror}") from error


async def _witnesses(configuration: Configuration, folder: DataDir) -> dict[str, Witness]:
    if configuration.settings.store.url is None and not folder.turn_database.is_file():
        return {}
    async with open_store(Base(configuration, folder), read_only=True) as store:
        return {witness.acs_session_id: witness async for witness in witnesses(store)}


def _reports(here: _Record, seen: dict[str, Witness], wanted: str | None) -> Iterator[VerifyReport]:
    """What each session gives; takes those it finds out of `seen`.

    The archived ones come last, for a session may leave for its archive while this reads.
    """
    for summary in _sessions(here.reader):
        if wanted in (None, summary.session_id):
            report = _verify_one(here, summary, seen.get(summary.session_id))
            # One that left meanwhile has lost the rows that were about to be read.
            if here.reader.archived_session(summary.session_id) is None:
                seen.pop(summary.session_id, None)
                yield report
    for archived in _archived(here.reader):
        if wanted in (None, archived.session_id):
            yield _verify_archived(here, archived, seen.pop(archived.session_id, None))


def _verify_one(here: _Record, summary: SessionSummary, witness: Witness | None) -> VerifyReport:
    return verify_stored(
        here.reader, summary, here.keyring, witnessed_heads=_heads(witness), platform_counts=_counts(witness)
    )


def _verify_archived(here: _Record, archived: ArchivedSession, witness: Witness | None) -> VerifyReport:
    lines = here.archives.lines(archived.archive_file)
    if lines is not None:
        return verify_archive(
            lines,
            here.keyring,
            archived=archived,
            witnessed_heads=_heads(witness),
            platform_counts=_counts(witness),
        )
    message = f"the archive {archived.archive_file} is not in the folder of archives; only its digest and head are here"
    found = [AuditFinding("archive_elsewhere", Severity.NOTICE, archived.session_id, 0, message)]
    if not _heads(witness) <= {archived.head}:
        found.append(_broken("witnessed_head_missing", archived.session_id, "the platform saw another last head"))
    told = ArchivedAudit(
        archived.session_id,
        archived.head,
        archived.entries,
        archived.archive_file,
        archived.archive_sha256,
        verified=False,
    )
    return VerifyReport(tuple(found), (), archived=(told,))


def _heads(witness: Witness | None) -> frozenset[str]:
    return frozenset() if witness is None or witness.head is None else frozenset({witness.head})


def _counts(witness: Witness | None) -> PlatformCounts:
    return {} if witness is None else witness.counts


def _sessions(reader: ChainReads) -> Iterator[SessionSummary]:
    after = ""
    while page := reader.sessions(after=after, limit=PAGE_SESSIONS):
        yield from page
        after = page[-1].session_id


def _archived(reader: ChainReads) -> Iterator[ArchivedSession]:
    after = ""
    while page := reader.archived(after=after, limit=PAGE_SESSIONS):
        yield from page
        after = page[-1].session_id


def _lost(unseen: Mapping[str, Witness]) -> tuple[AuditFinding, ...]:
    return tuple(
        _broken("session_missing", session_id, "the platform was shown a chain that is not there")
        for session_id, witness in sorted(unseen.items())
        if witness.head is not None
    )


def _broken(code: str, session_id: str, message: str) -> AuditFinding:
    return AuditFinding(code, Severity.BREAK, session_id, 0, message)


def _merged(reports: Sequence[VerifyReport], lost: tuple[AuditFinding, ...]) -> VerifyReport:
    whole = VerifyReport(lost, ())
    for report in reports:
        whole = replace(
            whole,
            findings=whole.findings + report.findings,
            sessions=whole.sessions + report.sessions,
            omitted=whole.omitted + report.omitted,
            archived=whole.archived + report.archived,
        )
    return whole
