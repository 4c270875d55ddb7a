"""Retention (CORE-CH-09): content is erased, closed sessions leave for archives, and the head stays.

Answers for what is old enough, for a signed record of each decision before its answer is erased, and for an archive
that is whole on the disk before its session leaves the store. Must never be in the path of a decision: every
transaction is short and a run has limits. INVARIANT: hashes, entries and decisions outlast content, so that the chain
verifies on; an archived session leaves its id, head and the archive's digest behind.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import takewhile
from typing import Final, Protocol

from turnkeeper.acs import CanonicalizationRejected, Keyring, KeyUnknown, SessionKey
from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.archive import ArchiveMalformed, ArchiveParts, archive_lines
from turnkeeper.guardian.decisions import decision_record
from turnkeeper.guardian.ports import (
    Archivable,
    ArchivedSession,
    RecordedStep,
    StoredFinding,
    TurnSummary,
    WithContent,
)

STEPS_PER_TRANSACTION: Final = 32
ROWS_PER_TRANSACTION: Final = 64
SESSIONS_PER_PAGE: Final = 100
MAX_PROBLEMS: Final = 20
ARCHIVE_SUFFIX: Final = ".acs.jsonl"

_PLAIN = re.compile(r"[0-9A-Za-z-]{1,64}")


class RetentionStore(Protocol):
    """What retention reads and changes. Every call blocks, and each change is a short durable transaction of its own.

    All calls raise `StoreFailed`.
    """

    def with_content(self, before_ms: int, *, after: str, limit: int) -> Sequence[WithContent]:
        """Sessions older than this with rows that have not been erased, by id."""
        ...

    def steps(self, session_id: str, *, after: int, limit: int) -> Sequence[RecordedStep]:
        """What a session recorded, in order; `after` is the number of the last row seen."""
        ...

    def erase(self, session_id: str, records: Sequence[tuple[int, bytes | None]]) -> None:
        """Erases the content of these rows, given in order, and keeps the signed decision of each."""
        ...

    def closed_sessions(self, before_ms: int, *, after: str, limit: int) -> Sequence[Archivable]:
        """Closed sessions whose last row is older than this, by id."""
        ...

    def turns(self, session_id: str) -> Iterator[TurnSummary]:
        """A session's turn windows."""
        ...

    def session_findings(self, session_id: str) -> Iterator[StoredFinding]:
        """A session's findings."""
        ...

    def session_approvals(self, session_id: str) -> Iterator[Approval]:
        """A session's questions to approvers."""
        ...

    def bury(self, archived: ArchivedSession) -> bool:
        """Takes the session out of the store, leaving what `archived` says of it, where it is still as it was read."""
        ...

    def buried(self, limit: int) -> Sequence[str]:
        """Sessions that were taken out and still have rows."""
        ...

    def remove_rows(self, session_id: str, limit: int) -> bool:
        """Removes at most so many rows of each kind of a session that was taken out; whether any are left."""
        ...


class Archives(Protocol):
    """Where archives are kept."""

    def write(self, name: str, lines: Iterable[bytes]) -> str:
        """Writes an archive durably, whole or not at all; the SHA-256 of its bytes. Raises `StoreFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """When what goes, and how much of it in one run. None: never."""

    erase_content_after_ms: int | None = None
    archive_after_ms: int | None = None
    max_steps_per_run: int = 10_000
    max_sessions_per_run: int = 100


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What a run did. `more` says that a limit ended it; `problems` are sessions that had to be left as they are."""

    erased_steps: int = 0
    archived_sessions: tuple[str, ...] = ()
    more: bool = False
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Run:
    erased: int = 0
    archived: list[str] = field(default_factory=list[str])
    more: bool = False
    problems: list[str] = field(default_factory=list[str])

    def report(self) -> RetentionReport:
        return RetentionReport(self.erased, tuple(self.archived), self.more, tuple(self.problems[:MAX_PROBLEMS]))


class Retention:
    """Runs retention over a store. Blocks; call it off the event loop."""

    def __init__(
        self,
        store: RetentionStore,
        archives: Archives,
        keyring: Callable[[], Keyring],
        rules: RetentionRules,
        *,
        forget: Callable[[str], None] | None = None,
        is_stopping: Callable[[], bool] | None = None,
        pause: Callable[[], object] | None = None,
    ) -> None:
        """Takes what it works on.

        `keyring` has the keys that sessions were signed with, revoked ones too. `forget` tells a Guardian that runs
        over the same store to drop what it remembers of a session. `is_stopping` ends a run early; `pause` is called
        after each change, so that whoever waits for the store has it in between.
        """
        self._store = store
        self._archives = archives
        self._keyring = keyring
        self._rules = rules
        self._forget = forget or _nothing
        self._is_stopping = is_stopping or _never
        self._pause = pause or _at_once

    def erase(self, now_ms: int) -> RetentionReport:
        """Erases content that is old enough. Raises `StoreFailed`."""
        run = _Run()
        if self._rules.erase_content_after_ms is not None:
            keyring, before_ms = self._keyring(), now_ms - self._rules.erase_content_after_ms
            for session in self._with_content(before_ms):
                self._erase_session(run, session, keyring, before_ms)
                run.more = run.more or self._is_stopping()
                if run.more:
                    break
        return run.report()

    def archive(self, now_ms: int) -> RetentionReport:
        """Archives closed sessions that are old enough, and removes what an earlier run left. Raises `StoreFailed`."""
        run = _Run()
        for session_id in self._store.buried(SESSIONS_PER_PAGE):
            self._remove(session_id)
        if self._rules.archive_after_ms is not None:
            keyring, before_ms = self._keyring(), now_ms - self._rules.archive_after_ms
            for closed in self._closed_sessions(before_ms):
                if len(run.archived) >= self._rules.max_sessions_per_run or self._is_stopping():
                    run.more = True
                    break
                self._archive_session(run, closed, keyring, now_ms)
        return run.report()

    def _with_content(self, before_ms: int) -> Iterator[WithContent]:
        after = ""
        while page := self._store.with_content(before_ms, after=after, limit=SESSIONS_PER_PAGE):
            yield from page
            after = page[-1].session_id

    def _closed_sessions(self, before_ms: int) -> Iterator[Archivable]:
        after = ""
        while page := self._store.closed_sessions(before_ms, after=after, limit=SESSIONS_PER_PAGE):
            yield from page
            after = page[-1].terms.session_id

    def _erase_session(self, run: _Run, session: WithContent, keyring: Keyring, before_ms: int) -> None:
        session_id, after = session.session_id, session.erased
        try:
            key = keyring.session_key(session.key_id, session_id)
            while limit := min(STEPS_PER_TRANSACTION, self._rules.max_steps_per_run - run.erased):
                page = self._store.steps(session_id, after=after, limit=limit)
                old = list(takewhile(lambda step: step.received_at_ms < before_ms, page))
                if old:
                    self._store.erase(session_id, [(step.recorded, _record(step, key)) for step in old])
                    run.erased += len(old)
                    self._pause()
                    after = old[-1].recorded
                if len(old) < limit:
                    return
        except (KeyUnknown, CanonicalizationRejected) as error:
            run.problems.append(f"{session_id}: {error.message}")
        else:
            run.more = True

    def _archive_session(self, run: _Run, closed: Archivable, keyring: Keyring, now_ms: int) -> None:
        terms, session_id = closed.terms, closed.terms.session_id
        name = archive_name(session_id)
        parts = ArchiveParts(
            terms,
            closed.progress,
            steps_of(self._store, session_id, closed.progress.recorded),
            self._store.turns(session_id),
            self._store.session_findings(session_id),
            self._store.session_approvals(session_id),
        )
        try:
            key = keyring.session_key(terms.key_id, session_id)
            digest = self._archives.write(name, archive_lines(parts, key, archived_at_ms=now_ms))
        except (KeyUnknown, CanonicalizationRejected, ArchiveMalformed) as error:
            run.problems.append(f"{session_id}: {error.message}")
            return
        self._forget(session_id)
        if not self._store.bury(_archived(closed, name, digest, now_ms)):
            run.problems.append(f"{session_id}: changed while it was archived; the next run takes it")
            return
        self._forget(session_id)
        run.archived.append(session_id)
        self._remove(session_id)

    def _remove(self, session_id: str) -> None:
        while self._store.remove_rows(session_id, ROWS_PER_TRANSACTION):
            self._pause()
        self._pause()


def _nothing(_: str) -> None:
    return


def _at_once() -> None:
    return


def _never() -> bool:
    return False


def _record(step: RecordedStep, key: SessionKey) -> bytes | None:
    return decision_record(step, key) if step.request_digest else None


def _archived(closed: Archivable, name: str, digest: str, now_ms: int) -> ArchivedSession:
    terms, progress = closed.terms, closed.progress
    return ArchivedSession(
        session_id=terms.session_id,
        agent_id=terms.agent_id,
        key_id=terms.key_id,
        created_at_ms=terms.created_at_ms,
        archived_at_ms=now_ms,
        head=progress.head,
        recorded=progress.recorded,
        entries=progress.entries,
        tool_calls=progress.tool_calls,
        turns=progress.turns,
        archive_file=name,
        archive_sha256=digest,
    )


def steps_of(store: RetentionStore, session_id: str, recorded: int) -> Iterator[RecordedStep]:
    """What a session recorded up to that number, in order. Raises `StoreFailed`."""
    after = 0
    while after < recorded:
        page = store.steps(session_id, after=after, limit=min(STEPS_PER_TRANSACTION, recorded - after))
        if not page:
            return
        yield from page
        after = page[-1].recorded


def archive_name(session_id: str) -> str:
    """The name of a session's archive: its id, or a digest of an id that is no name for a file."""
    plain = session_id if _PLAIN.fullmatch(session_id) else sha256(session_id.encode("utf-8", "replace")).hexdigest()
    return plain + ARCHIVE_SUFFIX
