"""What the Guardian keeps, and what it asks of whoever keeps it.

INVARIANT: what one step changes (its id and nonce, its entry, the counters, the signed answer) is one `StepRecord`
and becomes durable as a whole or not at all. All calls of a store block; the Guardian makes them off its loop.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.memory import NOTHING_REMEMBERED, Kept, SessionMemory
from turnkeeper.guardian.provenance import KnownDatum
from turnkeeper.guardian.windows import TurnWindow
from turnkeeper.records import record

DETERMINISTIC: Final = "deterministic"
PROVENANCE_PROFILE: Final = "acs-provenance"
MAX_TURN_SUMMARY_CHARACTERS: Final = 4_096
MAX_ARCHIVE_LINE_BYTES: Final = 32 * 1024 * 1024
"""Two bodies of a megabyte fit, however much of them has to be escaped."""


class StoreFailed(TurnkeeperError):
    """The store could not do what was asked; nothing of the batch may be taken as durable."""

    code = "store_failed"


class SessionArchived(TurnkeeperError):
    """The session has left for an archive: it can neither go on nor begin again."""

    code = "session_archived"

    def __init__(self, session_id: str, key_id: str, head: str | None) -> None:
        super().__init__(f"the session {session_id} is archived")
        self.key_id = key_id
        self.head = head


class StepKind(StrEnum):
    """What a recorded request was."""

    HELLO = "hello"
    STEP = "step"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """What the handshake fixed, for as long as the session lasts.

    `hello_hash` and `server_hello` (the unsigned result as JSON) let an identical hello have the same answer again.
    """

    session_id: str
    key_id: str
    agent_id: str
    acs_version: str
    skew_window_ms: int
    methods: frozenset[str]
    hello_hash: str
    server_hello: bytes
    created_at_ms: int
    provenance_producer: str = "none"
    profiles: frozenset[str] = frozenset()
    mcp_versions: frozenset[str] = frozenset()

    @property
    def strict_provenance(self) -> bool:
        """Whether every data-bearing field owes a provenance object (PROV-01)."""
        return self.provenance_producer == DETERMINISTIC and PROVENANCE_PROFILE in self.profiles


@record
class SessionProgress:
    """Where a session stands. `recorded` numbers everything recorded in it, `entries` the chain's part of that."""

    head: str | None = None
    recorded: int = 0
    entries: int = 0
    tool_calls: int = 0
    turns: int = 0
    closed: bool = False
    window: TurnWindow | None = None
    memory: SessionMemory = NOTHING_REMEMBERED


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as the store has it, with ids it used; `complete` says that these are all it ever used.

    `methods` has, for each request_id, the method whose entry it has, or nothing where it has none.
    """

    terms: SessionTerms
    progress: SessionProgress
    request_ids: tuple[str, ...]
    nonces: tuple[str, ...]
    complete: bool
    methods: tuple[str, ...] = ()
    lineage: tuple[KnownDatum, ...] = ()


@record
class RecordedAnswer:
    """What a request was answered with: a decision, or the code of a refusal."""

    decision: str | None
    chain_hash: str | None
    error_code: int | None


@dataclass(frozen=True, slots=True)
class UsedBefore:
    """Whether a request_id (and with which answer) and a nonce were used before in a session.

    `referenced_method` is the method of the entry that a reference names, None where the session has none.
    """

    request: RecordedAnswer | None
    nonce: bool
    referenced_method: str | None = None


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a step names outside itself, as far as this Guardian knows it.

    `subagent_head` is the published head of the session that a step names as a subagent's; `approval` is the question
    that the referenced step raised.
    """

    referenced_method: str | None = None
    subagent_head: str | None = None
    approval: Approval | None = None


NOT_LOOKED_UP: Final = Lookup()


@dataclass(frozen=True, slots=True)
class TurnClosed:
    """A window that a turnEnd closed, with the Guardian's own counts in it.

    `summary` is the text that the turnEnd gave, at most `MAX_TURN_SUMMARY_CHARACTERS` of it.
    """

    window: TurnWindow
    outcome: str
    summary: str | None = None


@record
class FindingRecord:
    """Something an auditor should see, at the record with this number in its session."""

    code: str
    message: str
    turn_id: str | None


@dataclass(frozen=True, slots=True)
class ExtensionRecord:
    """The chain's entry of an extended intent, which stands directly before the step that brings it into force."""

    recorded: int
    entry_id: str
    entry: bytes
    chain_hash: str


@record
class StepRecord:
    """Everything one answered request leaves behind. `kept` is None where what the session keeps has not changed.

    `question` is what the answer asks an approver; `used_approval` the question whose grant let the step through.
    """

    session_id: str
    recorded: int
    kind: StepKind
    method: str
    request_id: str
    nonce: str | None
    door: str
    request: bytes
    response: bytes
    received_at_ms: int
    progress: SessionProgress
    answer: RecordedAnswer
    entry: bytes | None = None
    turn_id: str | None = None
    new_session: SessionTerms | None = None
    opened: TurnWindow | None = None
    closed: TurnClosed | None = None
    findings: tuple[FindingRecord, ...] = ()
    lineage: tuple[KnownDatum, ...] = ()
    kept: Kept | None = None
    question: Approval | None = None
    used_approval: str | None = None
    extension: ExtensionRecord | None = None


@dataclass(frozen=True, slots=True)
class NonceRecord:
    """The nonce of a repeat that was told its earlier answer, so that a copy of the repeat is told nothing."""

    session_id: str
    nonce: str


Record = StepRecord | NonceRecord


class GuardianStore(Protocol):
    """Sessions, chain, replay memory and answers."""

    def open(self) -> None:
        """Makes the store usable, migrating it forward. Raises `StoreFailed`."""
        ...

    def close(self) -> None:
        """Gives everything back; idempotent."""
        ...

    def commit(self, batch: Sequence[Record]) -> None:
        """Makes the whole batch durable before it returns. Called from one thread only. Raises `StoreFailed`.

        A request_id or nonce that its session used before fails the batch, and so does a session that is not there.
        """
        ...

    def load_session(self, session_id: str, max_ids: int) -> StoredSession | None:
        """A session with at most `max_ids` of its newest ids of each kind. Raises `StoreFailed`, `SessionArchived`."""
        ...

    def find_used(
        self, session_id: str, request_id: str, nonce: str | None, reference: str | None = None
    ) -> UsedBefore:
        """Whether the ids were used, looking at everything ever recorded. Raises `StoreFailed`."""
        ...

    def find_approval(self, session_id: str, request_id: str) -> Approval | None:
        """The question that a step raised, as it stands now. Raises `StoreFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class ExportRow:
    """One recorded request as an auditor reads it. `request` and `response` are None once their content is erased.

    `decision_log` is then the signed record of what was answered (`guardian.decisions`).
    """

    recorded: int
    request: bytes | None
    response: bytes | None
    entry: bytes | None
    turn_id: str | None
    request_digest: bytes
    response_digest: bytes
    decision_log: bytes | None = None


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One recorded request with everything that is kept of it; an entry that is no request's has empty digests."""

    recorded: int
    kind: str
    method: str
    request_id: str
    door: str
    turn_id: str | None
    received_at_ms: int
    decision: str | None
    error_code: int | None
    chain_hash: str | None
    entry: bytes | None
    request: bytes | None
    response: bytes | None
    request_digest: bytes
    response_digest: bytes
    decision_log: bytes | None = None


@dataclass(frozen=True, slots=True)
class ArchivedSession:
    """What the store still says of a session whose record is in an archive file."""

    session_id: str
    agent_id: str
    key_id: str
    created_at_ms: int
    archived_at_ms: int
    head: str | None
    recorded: int
    entries: int
    tool_calls: int
    turns: int
    archive_file: str
    archive_sha256: str


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as a list shows it."""

    session_id: str
    agent_id: str
    key_id: str
    created_at_ms: int
    progress: SessionProgress


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """A turn's window with the Guardian's counts; `outcome` is None while it is open."""

    turn_id: str
    ordinal: int
    denied: bool
    outcome: str | None
    steps: int | None
    tool_calls: int | None
    triggered_by: str = ""
    parent_turn_id: str = ""
    taint_step: str = ""
    denials: int = 0
    deferrals: int = 0
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class WithContent:
    """A session of which something may be erased; `erased` numbers the last row that has been."""

    session_id: str
    key_id: str
    erased: int


@dataclass(frozen=True, slots=True)
class Archivable:
    """A closed session as it stands now."""

    terms: SessionTerms
    progress: SessionProgress


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """A finding with where and when it was made; `id` grows with time."""

    id: int
    session_id: str
    recorded: int
    at_ms: int
    finding: FindingRecord


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a chain with what was answered; `decision` is None for an entry that is no step's."""

    recorded: int
    request_id: str
    decision: str | None
    received_at_ms: int
    entry: bytes


class ChainReader(Protocol):
    """What may be read beside a running Guardian. Everything is read in pages or by iterator."""

    def sessions(self, *, after: str = "", limit: int) -> Sequence[SessionSummary]:
        """Sessions by id, a page at a time."""
        ...

    def rows(self, session_id: str) -> Iterator[ExportRow]:
        """What a session recorded, in order."""
        ...

    def archived(self, *, after: str = "", limit: int) -> Sequence[ArchivedSession]:
        """Sessions that have left for an archive, by id, a page at a time."""
        ...

    def archived_session(self, session_id: str) -> ArchivedSession | None:
        """One of those."""
        ...

    def turns(self, session_id: str) -> Iterator[TurnSummary]:
        """A session's turn windows, in order."""
        ...

    def findings(self, session_id: str | None = None, *, after: int = 0, limit: int) -> Sequence[StoredFinding]:
        """Findings in the order they were made, of one session or of all; `after` is the last `id` seen."""
        ...


PlatformCounts = Mapping[str, tuple[int | None, int | None]]
"""What the turn side says of each turn: step_count and tool_call_count by turn_id."""
