"""What the turn side needs from outside: a store, a Guardian at the end of some wire, wake-ups.

Every write of a worker takes a `Fence`; a store raises `StaleFence` when the turn is no longer that owner's, and
then nothing was written (house rule 2). A state and its events are one transaction (house rule 1): methods that
change a state take the events that go with it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from turnkeeper.errors import TurnkeeperError
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.turns.approvals import Approval, ApprovalAnswer, ApprovalRule, ApprovalStatus
from turnkeeper.turns.mcp_server import McpServer
from turnkeeper.turns.metadata import MetadataFilter
from turnkeeper.turns.model import (
    BUILTIN,
    NO_NETWORK,
    PROJECT_ID,
    USUAL_BOX_SIZE,
    Agent,
    AgentLimits,
    ApiKey,
    BlockedBy,
    BoxSize,
    Budget,
    CallGrant,
    CallRecord,
    CanceledBy,
    CancelMode,
    Claim,
    ClientTool,
    Ending,
    Fence,
    HarnessChoice,
    Hold,
    ModelChoice,
    Network,
    NewStep,
    OnBusy,
    Reach,
    SecretRef,
    Session,
    SessionReason,
    SkillRef,
    Step,
    StepAnswer,
    StepCounts,
    StopReason,
    Subagent,
    Submission,
    Turn,
    TurnStatus,
    Usage,
)
from turnkeeper.turns.pause_ports import PauseStore
from turnkeeper.turns.pausing import NewPause, Pause, ToolAnswer
from turnkeeper.turns.permissions import Permission

SessionView: TypeAlias = Literal["idle", "busy", "paused", "closing", "closed"]
"""Where a session is, as an app sees it."""

T = TypeVar("T")


class StaleFence(TurnkeeperError):
    """The turn is no longer this owner's, or has ended. Nothing was written."""

    code = "stale_attempt"


class BudgetSpent(TurnkeeperError):
    """What is left cannot pay for the smallest model call (contract 8, amendment 8)."""

    code = "budget_reached"


class NotFound(TurnkeeperError):
    """There is no such thing in this project."""

    code = "not_found"


class VersionConflict(TurnkeeperError):
    """The agent has another version than the one that was to be changed; `detail` has its `version`."""

    code = "version_conflict"


class AgentArchived(TurnkeeperError):
    """The agent takes no more sessions and gets no more versions."""

    code = "agent_archived"


class SessionClosed(TurnkeeperError):
    """The session takes no more turns."""

    code = "session_closed"


class QueueFull(TurnkeeperError):
    """The session's queue has reached its depth limit."""

    code = "queue_full"


class StoreUnavailable(TurnkeeperError):
    """The database cannot be reached, is locked by somebody else, or has no room."""

    code = "database_unavailable"


class GuardianUnreachable(TurnkeeperError):
    """No answer came back: nobody there, a cut connection, or silence until the deadline."""

    code = "guardian_unreachable"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which part of a list: `after` is the last id of the page before."""

    limit: int = 20
    after: str | None = None
    order: Literal["asc", "desc"] = "desc"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list and whether there is more."""

    items: tuple[T, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions a list shows; `status` is the one an app sees. `None` narrows nothing."""

    reach: Reach | None = None
    status: SessionView | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    metadata: MetadataFilter = ()


@dataclass(frozen=True, slots=True)
class TurnFilter:
    """Which turns a list shows. `None` narrows nothing."""

    reach: Reach | None = None
    status: TurnStatus | None = None
    stop_reason: StopReason | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    metadata: MetadataFilter = ()


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to be created, already checked."""

    name: str
    model: ModelChoice
    instructions: str
    tools: tuple[str, ...]
    limits: AgentLimits
    metadata_json: str
    permissions: Mapping[str, Permission] = field(default_factory=dict[str, Permission])
    client_tools: tuple[ClientTool, ...] = ()
    stream_before_decision: bool = False
    project_id: str = PROJECT_ID
    sandbox: BoxSize = USUAL_BOX_SIZE
    harness: HarnessChoice = BUILTIN
    network: Network = NO_NETWORK
    mcp_servers: tuple[McpServer, ...] = ()
    subagents: tuple[Subagent, ...] = ()
    skills: tuple[SkillRef, ...] = ()
    pool: str | None = None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to be opened, already checked."""

    agent_id: str
    title: str | None
    metadata_json: str
    budget: Budget | None
    ephemeral: bool = False
    project_id: str = PROJECT_ID
    retention_days: int | None = None
    agent_version: int | None = None
    network: Network | None = None
    secrets: tuple[SecretRef, ...] = ()


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn to be accepted, already checked. `fingerprint` is of method, path and canonical body."""

    session_id: str
    input_text: str
    input_json: str
    output_schema_json: str | None
    metadata_json: str
    budget: Budget | None
    max_repair_attempts: int
    idempotency_key: str | None
    fingerprint: str | None
    max_attempts: int = 1
    on_busy: OnBusy = "enqueue"
    start_by: datetime | None = None
    api_key_id: str | None = None
    retry_of: str | None = None
    file_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The turn behind a POST. `replayed` when the key was used before for the same request.

    `events_after` is the sequence just before `turn.queued`.
    """

    turn: Turn
    replayed: bool
    events_after: int


CancelEffect: TypeAlias = Literal["ended", "requested", "unchanged"]


class TurnReads(Protocol):
    """What the API, the console and the command line read."""

    async def agent(self, agent_id: str, version: int | None = None) -> Agent:
        """A version of an agent, the newest where none is named. Raises `NotFound`."""
        ...

    async def agent_versions(self, agent_id: str, page: PageRequest) -> Page[Agent]:
        """Versions in the order of their numbers; `page.after` is a number."""
        ...

    async def agents(self, page: PageRequest, *, reach: Reach | None = None) -> Page[Agent]: ...
    async def session(self, session_id: str) -> Session: ...
    async def sessions(
        self, page: PageRequest, *, agent_id: str | None = None, wanted: SessionFilter | None = None
    ) -> Page[Session]: ...
    async def turn(self, turn_id: str) -> Turn: ...
    async def turns(
        self, page: PageRequest, *, session_id: str | None = None, wanted: TurnFilter | None = None
    ) -> Page[Turn]: ...
    async def blocker(self, session_id: str) -> BlockedBy | None:
        """What the turns behind a session's front wait for; None where there is no front."""
        ...

    async def open_pause(self, turn_id: str) -> Pause | None:
        """The pause that a turn is in, or has not gone on from yet."""
        ...

    async def approval_rules(self, session_id: str) -> tuple[ApprovalRule, ...]: ...
    async def submissions(self, turn_id: str) -> tuple[Submission, ...]: ...
    async def event(self, event_id: str) -> Event: ...

    async def events(
        self, session_id: str, *, after: int, limit: int, types: Sequence[str] = (), turn_id: str | None = None
    ) -> tuple[Event, ...]:
        """Stored events with `sequence > after`, ascending, at most `limit`."""
        ...

    async def steps(
        self,
        session_id: str,
        *,
        turn_id: str | None = None,
        before: int | None = None,
        limit: int | None = None,
        thread_id: str | None = None,
    ) -> tuple[Step, ...]:
        """The newest steps of a session or a turn, of those below the ordinal `before`; oldest first.

        Those of the one chain: the session's own, or that of a subagent.
        """
        ...

    async def thread_steps(self, session_id: str, *, turn_id: str | None = None) -> tuple[Step, ...]:
        """The newest steps of the chains of all subagents of a session or a turn, oldest first."""
        ...

    async def thread_usage(self, turn_id: str, thread_id: str, *, tool_calls: int, sandbox_ms: int) -> Usage:
        """What a subagent's model calls have used by the turn's ledger, with the other figures beside it."""
        ...

    async def dead_letters(self, limit: int) -> tuple[Step, ...]: ...
    async def ping(self) -> None:
        """Raises if the store cannot answer."""
        ...


class TurnCommands(Protocol):
    """What the API and the command line change."""

    async def create_agent(self, new: NewAgent) -> Agent: ...
    async def change_agent(self, agent_id: str, new: NewAgent, *, expected_version: int) -> Agent:
        """The next version. Raises `NotFound`, `VersionConflict`, `AgentArchived`."""
        ...

    async def archive_agent(self, agent_id: str) -> Agent:
        """The agent, for no more sessions. Raises `NotFound`."""
        ...

    async def create_session(self, new: NewSession) -> Session:
        """The session with its `session.created` event. Raises `NotFound` for the agent."""
        ...

    async def close_session(self, session_id: str, *, mode: Literal["drain", "cancel"], by: CanceledBy) -> Session:
        """No more turns from now on. `cancel` ends queued turns and asks the active one to stop."""
        ...

    async def accept_turn(self, new: NewTurn) -> Accepted:
        """The turn, its key and its `turn.queued` in one transaction.

        Raises `NotFound`, `SessionClosed`, `SessionBusy`, `QueueFull`, `IdempotencyKeyReused`. A replay is answered
        before limits.
        """
        ...

    async def cancel_turn(self, turn_id: str, *, mode: CancelMode, by: CanceledBy) -> tuple[Turn, CancelEffect]:
        """A queued turn that nobody has claimed ends at once; a claimed one is asked to stop."""
        ...

    async def create_key(self, *, name: str, secret_sha256: str) -> ApiKey: ...
    async def key_by_secret(self, secret_sha256: str) -> ApiKey | None: ...
    async def keys(self) -> tuple[ApiKey, ...]: ...
    async def revoke_key(self, key_id: str) -> ApiKey: ...


class WorkerStore(Protocol):
    """What a worker changes. Times come from the store's clock; every method is one transaction."""

    async def claim(self, owner: str, *, slot: bool, pool: str | None = None) -> Claim | None:
        """The next front that nobody holds, fence raised, owner set: a turn that waits, or one that goes on.

        It is one of the `pool`, or without one a turn that is run here. Without a `slot` only a head whose budget is
        gone is given out, whosever it is, since it will need none (contract 7).
        A waiting turn's status stays `queued` until `starting`.
        """
        ...

    async def expire_starts(self, limit: int) -> int:
        """Row 3: ends waiting turns whose `start_by` has passed and that nobody holds; how many there were."""
        ...

    async def held_by_others(self, owner: str, pools: Collection[str] = ()) -> tuple[Hold, ...]:
        """The turns that somebody else holds; at most 1,000.

        One that would have to be started belongs to this server's boxes or to one of the `pools`.
        """
        ...

    async def held_by(self, owner: str) -> tuple[Hold, ...]:
        """The turns that `owner` holds; at most 1,000."""
        ...

    async def take_over(self, owner: str, holds: Sequence[Hold]) -> tuple[Claim, ...]:
        """Those of the turns that are still held as they were seen, now `owner`'s with a new fence."""
        ...

    async def renew(self, fence: Fence) -> Turn:
        """Moves the lease; the turn as it is now shows a cancel request."""
        ...

    async def release(self, fence: Fence) -> None:
        """Gives a queued claim back unchanged (a worker that drains)."""
        ...

    async def starting(self, fence: Fence, events: Sequence[NewEvent]) -> Turn:
        """`starting`; the turn unchanged, and no event, where somebody has asked it to stop."""
        ...

    async def started(self, fence: Fence, events: Sequence[NewEvent], *, resumed: bool = False) -> Turn:
        """`running`, attempt + 1; a turn that was `resumed` goes on in the attempt it was paused in."""
        ...

    async def retry_start(self, fence: Fence) -> Turn:
        """Row 10: tries + 1, a new fence number; the returned turn has it."""
        ...

    async def retry(
        self,
        fence: Fence,
        *,
        delay_ms: int,
        active_ms: int,
        events: Sequence[NewEvent],
        steps: Sequence[NewStep] = (),
    ) -> Turn:
        """Row 21: the attempt is lost, its turnEnd is due; nobody holds the turn, and nobody may for `delay_ms`.

        `active_ms` is how long the turn has run so far. `steps` are sent before the turnEnd.
        """
        ...

    async def record(self, fence: Fence, events: Sequence[NewEvent]) -> tuple[Event, ...]: ...

    async def submit(self, fence: Fence, submission: Submission, events: Sequence[NewEvent]) -> None: ...

    async def end(
        self, fence: Fence, ending: Ending, *, before: Sequence[NewEvent] = (), steps: Sequence[NewStep] = ()
    ) -> Event:
        """The one terminal event, with usage from the ledger, and the turnEnd step when `turn_outcome` is set.

        `before` are events that close what is open (a tool call as `unknown`), `steps` are sent before the turnEnd.
        Raises `IllegalEnding` for a
        combination the contract does not know, `StaleFence` when somebody else ended it.
        """
        ...

    async def reserve(
        self,
        fence: Fence,
        *,
        input_tokens: int,
        max_output_tokens: int,
        active_ms: int = 0,
        thread_id: str | None = None,
    ) -> CallGrant:
        """Reserves on every budget over the turn, lowering the output cap if need be. Raises `BudgetSpent`.

        `active_ms` is how long the turn has run; what is new of it is charged.
        `thread_id` is the subagent's that calls.
        """
        ...

    async def settle(self, fence: Fence, record: CallRecord) -> bool:
        """Returns the difference and writes `model.called`; whether the agent is to finish now.

        Works for a fence that is no longer current too.
        """
        ...

    async def budget_left(self, turn_id: str) -> bool:
        """Whether the smallest model call can still be paid."""
        ...

    async def tool_ran(self, fence: Fence) -> None:
        """Counts one tool call in the ledger before it runs. Raises `BudgetSpent`; then nothing was counted."""
        ...

    async def tool_allowed(self, fence: Fence) -> None:
        """Raises `BudgetSpent` where no tool call is left."""
        ...

    async def tool_answered(self, fence: Fence) -> None:
        """Counts a tool call that the app has run."""
        ...

    async def time_over(self, fence: Fence, active_ms: int) -> bool:
        """Charges the running time; whether a budget has come to its end with it, which is announced then."""
        ...

    async def ask_step(self, session_id: str, step: NewStep, fence: Fence | None, events: Sequence[NewEvent]) -> Step:
        """Persists a step as `pending` before it is sent (amendment 4)."""
        ...

    async def owe_steps(self, fence: Fence, steps: Sequence[NewStep], events: Sequence[NewEvent]) -> None:
        """Persists steps as `pending` in their order; they are sent before the next one, or by the outbox."""
        ...

    async def answer_step(
        self,
        session_id: str,
        request_id: str,
        answer: StepAnswer,
        fence: Fence | None,
        events: Sequence[NewEvent],
        *,
        pause: NewPause | None = None,
    ) -> None:
        """What became of it; a `chain_hash` is also the session's last witnessed head (house rule 11).

        With `pause` the turn begins to wait in the same transaction (rows 15 and 16).
        """
        ...

    async def attempt_step(self, session_id: str, request_id: str, *, payload_json: str | None) -> Step:
        """Counts a send; freezes the payload of a turnEnd at its first."""
        ...

    async def pending_steps(self, session_id: str) -> tuple[Step, ...]:
        """Steps not yet settled, in the order they must be sent."""
        ...

    async def sessions_with_pending_steps(self, limit: int) -> tuple[str, ...]: ...
    async def step_counts(self, session_id: str, turn_id: str, *, thread_id: str | None = None) -> StepCounts: ...

    async def set_acs_state(self, session_id: str, state: Literal["started", "refused"]) -> None: ...

    async def sessions_to_end(self, limit: int) -> tuple[str, ...]:
        """Closing sessions with nothing queued, active or unsent: their sessionEnd is due."""
        ...

    async def close_ended(self, session_id: str, reason: SessionReason, end_step: NewStep | None) -> None:
        """`session.closed`, with the sessionEnd step when the Guardian knows the session."""
        ...

    async def history(self, session_id: str, *, without: str | None, limit: int) -> tuple[Event, ...]:
        """Events the agent's memory is rebuilt from: allowed messages and finished tool calls, oldest first.

        Those of the turn `without` are left out.
        """
        ...


class ApprovalStore(Protocol):
    """What the API, the command line and the bridge to a Guardian need."""

    async def approval(self, approval_id: str) -> Approval: ...

    async def approvals(
        self,
        page: PageRequest,
        *,
        status: ApprovalStatus | None = None,
        session_id: str | None = None,
        reach: Reach | None = None,
    ) -> Page[Approval]: ...

    async def decide_approval(self, approval_id: str, answer: ApprovalAnswer) -> Approval:
        """The approval once its answer is committed. Raises `NotFound`, `ApprovalDecided`, `ApprovalInputChanged`."""
        ...

    async def answer_tool(self, turn_id: str, tool_call_id: str, answer: ToolAnswer) -> Turn:
        """The turn once a client-side tool's answer is committed. Raises `NotFound`, `ToolResultConflict`."""
        ...

    async def remove_approval_rule(self, session_id: str, approval_id: str) -> None:
        """Raises `NotFound`."""
        ...


class TurnStore(TurnReads, TurnCommands, WorkerStore, PauseStore, ApprovalStore, Protocol):
    """All of it: what an implementation provides and the contract suite tests."""


def deletion_topic(session_id: str) -> str:
    """What is told when a session is deleted."""
    return f"deleted:{session_id}"


class Wakeups(Protocol):
    """In-process news, so that nobody polls: lost news costs at most the poll interval, never a turn."""

    def notify(self, topic: str) -> None:
        """Something about `topic` (a session id, or `queue`) was committed."""
        ...

    async def wait(self, topic: str, *, timeout_ms: int) -> None:
        """Until the topic is notified or the time is up."""
        ...


class GuardianLink(Protocol):
    """A wire to a Guardian: signed bytes out, bytes back. What they mean is not its business."""

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        """One request and its answer. Raises `GuardianUnreachable`."""
        ...
