"""What the turn side of the platform talks about: agents, sessions, turns, steps, endings.

Values only. Texts that must come back token for token (`metadata`, `output_schema`, `result`) are kept as the JSON
text that was received, white space between tokens removed (contract, amendment 9); their names end in `_json`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from turnkeeper.acs import AcsErrorCode, Marks
from turnkeeper.turns.mcp_server import McpServer
from turnkeeper.turns.money import Money
from turnkeeper.turns.permissions import Permission
from turnkeeper.turns.turn_files import TurnFile

PROJECT_ID = "prj_00000000000000000000000000"
"""The project of whatever names none."""


class TurnStatus(StrEnum):
    """Where a turn is (contract 3). The last three are terminal."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """Whether nothing can happen to the turn any more."""
        return self in {TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELED}


class StopReason(StrEnum):
    """Why a turn ended (contract 5)."""

    END_TURN = "end_turn"
    BUDGET_REACHED = "budget_reached"
    AGENT_ERROR = "agent_error"
    MODEL_ERROR = "model_error"
    SANDBOX_LOST = "sandbox_lost"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    TIMEOUT = "timeout"
    PAUSE_EXPIRED = "pause_expired"
    QUEUE_EXPIRED = "queue_expired"
    DENIED_BEFORE_START = "denied_before_start"
    DENIED_AT_START = "denied_at_start"
    DENIED_INPUT = "denied_input"
    DENIED_OUTPUT = "denied_output"
    GUARDIAN_UNAVAILABLE = "guardian_unavailable"
    INTERNAL_ERROR = "internal_error"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"
    SESSION_CLOSED = "session_closed"
    OPERATOR = "operator"


Source: TypeAlias = Literal["sandbox", "platform"]
ResultError: TypeAlias = Literal["not_submitted", "invalid", "withheld"]
CancelMode: TypeAlias = Literal["graceful", "immediate"]
OnBusy: TypeAlias = Literal["enqueue", "reject", "interrupt"]
"""What a new turn does when another one is active in its session."""
TurnOutcome: TypeAlias = Literal["completed", "deferred", "error", "interrupted", "denied_at_start"]
SessionStatus: TypeAlias = Literal["open", "closing", "closed"]
SessionReason: TypeAlias = Literal["completed", "cancelled", "error", "timeout"]
AcsState: TypeAlias = Literal["new", "started", "refused", "ended"]
"""What the Guardian knows of a session: nothing, its sessionStart, that it refused it, its sessionEnd."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model an agent uses: a configured provider's name, the provider's model id, request parameters."""

    provider: str
    id: str
    params: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """Safety limits of an agent's turns."""

    timeout_ms: int = 3_600_000
    max_repair_attempts: int = 3
    max_attempts: int = 1
    pause_expiry_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be used (contract 8). `None` is no limit in that dimension."""

    max_model_calls: int | None = None
    max_total_tokens: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    max_active_ms: int | None = None
    max_cost: Money | None = None


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the app itself runs: the model is told about it, the turn waits for the app's answer."""

    name: str
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Subagent:
    """An agent that another one may hand a task to: a loop of its own in the same box, with some of its tools.

    It has no subagents, and waits for nobody.
    """

    name: str
    description: str
    instructions: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoxSize:
    """What an agent's tool box may use as a whole; `None` is what the operator has set."""

    cpu_millis: int | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None


USUAL_BOX_SIZE: Final = BoxSize()

REMOTE: Final = "remote"
"""The kind of sandbox that others run."""

HarnessKind: TypeAlias = Literal["builtin", "command", "claude-code", "codex", "opencode"]
HARNESS_KINDS: Final = ("builtin", "command", "claude-code", "codex", "opencode")


@dataclass(frozen=True, slots=True)
class HarnessChoice:
    """What runs an agent's loop: our own, a `command` that speaks the runner protocol, or a client as it is.

    A client brings its loop and its tools in one program, so that both share a box.
    """

    kind: HarnessKind = "builtin"
    command: tuple[str, ...] = ()

    @property
    def is_client(self) -> bool:
        """Whether it brings its own tools."""
        return self.kind not in {"builtin", "command"}


BUILTIN: Final = HarnessChoice()


@dataclass(frozen=True, slots=True)
class Network:
    """What a tool box may reach: the rules of an allow list (`destinations`). Without any it is nothing."""

    allow: tuple[str, ...] = ()


NO_NETWORK: Final = Network()


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A variable `name` in a session's tool boxes, and the secret of the project (`ref`) that it stands for."""

    name: str
    ref: str


@dataclass(frozen=True, slots=True)
class SkillRef:
    """A version of a skill as an agent version has it; `sha256` is its archive's."""

    id: str
    name: str
    version: int
    sha256: str
    description: str


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent version. Versions never change.

    `stream_before_decision` lets its text be followed while it is written, before the Guardian has decided on it. With
    a `pool` its turns are run by that pool's runners, elsewhere.
    """

    id: str
    version: int
    name: str
    model: ModelChoice
    instructions: str
    tools: tuple[str, ...]
    limits: AgentLimits
    metadata_json: str
    created_at: datetime
    permissions: Mapping[str, Permission] = field(default_factory=dict[str, Permission])
    client_tools: tuple[ClientTool, ...] = ()
    stream_before_decision: bool = False
    archived_at: datetime | None = None
    project_id: str = PROJECT_ID
    sandbox: BoxSize = USUAL_BOX_SIZE
    harness: HarnessChoice = BUILTIN
    network: Network = NO_NETWORK
    mcp_servers: tuple[McpServer, ...] = ()
    subagents: tuple[Subagent, ...] = ()
    skills: tuple[SkillRef, ...] = ()
    pool: str | None = None
    budget_id: str | None = None

    @property
    def brings_tools(self) -> bool:
        """Whether what runs its loop carries out its tool calls as well."""
        return self.harness.is_client or self.pool is not None

    def box_kind(self, usual: str) -> str:
        """What its loop runs in; `usual` is this server's own kind of box."""
        return usual if self.pool is None else REMOTE


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation with one agent version: a FIFO queue, a workspace, one sequence of events."""

    id: str
    agent_id: str
    agent_version: int
    status: SessionStatus
    title: str | None
    metadata_json: str
    budget: Budget | None
    acs_state: AcsState
    witnessed_head: str | None
    last_sequence: int
    active_turn_id: str | None
    queue_depth: int
    created_at: datetime
    last_active_at: datetime
    closed_at: datetime | None
    active_status: TurnStatus | None = None
    deferrals: int = 0
    project_id: str = PROJECT_ID
    retention_days: int | None = None
    budget_id: str | None = None
    ephemeral: bool = False
    oldest_sequence: int = 0
    network: Network | None = None
    secrets: tuple[SecretRef, ...] = ()


@dataclass(frozen=True, slots=True)
class CanceledBy:
    """Who asked for an end."""

    type: Literal["api_key", "user", "schedule", "system", "parent"]
    id: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TurnError:
    """Why a turn failed, for people (`message`) and programs (`code`)."""

    type: str
    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """One `by_model` entry of usage.json (contract 4). `cost` is `None` where a price is not known."""

    model: str
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    model_calls: int
    cost: Money | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a turn consumed, from the platform's own ledger (contract 4)."""

    by_model: tuple[ModelUsage, ...] = ()
    tool_calls: int = 0
    sandbox_ms: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn as its row says.

    `cancel_stop_reason` is what `stop_reason` will be if the cancel that was asked for ends the turn. `active_ms` is
    how long it had run when it was paused last, or lost an attempt; `active_since` is when it went on.
    """

    id: str
    session_id: str
    agent_id: str
    agent_version: int
    seq: int
    status: TurnStatus
    stop_reason: StopReason | None
    input_text: str
    input_json: str
    output_schema_json: str | None
    metadata_json: str
    idempotency_key: str | None
    budget: Budget | None
    max_repair_attempts: int
    attempt: int
    tries: int
    fence: int
    text: str | None
    result_json: str | None
    result_error: ResultError | None
    error: TurnError | None
    usage: Usage
    canceled_by: CanceledBy | None
    cancel_mode: CancelMode | None
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    duration_ms: int | None
    first_sequence: int
    last_sequence: int
    terminal_event_id: str | None
    terminal_data: str | None
    queue_position: int | None = None
    cancel_stop_reason: StopReason | None = None
    max_attempts: int = 1
    on_busy: OnBusy = "enqueue"
    start_by: datetime | None = None
    api_key_id: str | None = None
    active_ms: int = 0
    active_since: datetime | None = None
    retry_of: str | None = None
    input_files: tuple[TurnFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Fence:
    """What a worker must show with every write: the turn, the owner, and the number it was given at the claim."""

    turn_id: str
    session_id: str
    owner: str
    number: int


@dataclass(frozen=True, slots=True)
class BlockedBy:
    """What a waiting turn waits for: the turn at the front of its session, and whom that one waits for itself."""

    turn_id: str
    reason: Literal["queued", "starting", "running", "paused"]
    approval_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """A worker's hold on a turn, as others see it. `beats` moves each time the lease is renewed."""

    fence: Fence
    beats: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A turn at the front of its session's queue, now this owner's.

    `last_beat_at` is when the owner from whom it was taken over was last heard of.
    """

    fence: Fence
    turn: Turn
    session: Session
    agent: Agent
    last_beat_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ends, before usage and the fields the API fills are added.

    `happening` is the lifecycle row's; `turn_outcome` is what turnEnd will say, `None` where no turnStart was sent.
    """

    happening: str
    status: TurnStatus
    stop_reason: StopReason
    source: Source
    text: str
    result_json: str | None
    result_error: ResultError | None
    duration_ms: int
    turn_outcome: TurnOutcome | None
    error: TurnError | None = None
    canceled_by: CanceledBy | None = None


StepState: TypeAlias = Literal["pending", "answered", "refused", "dead"]
"""`pending`: persisted, its fate not known. `answered`: a decision is known or proven written.
`refused`: a permanent JSON-RPC error. `dead`: a refused turnEnd or sessionEnd, visible to operators."""


@dataclass(frozen=True, slots=True)
class NewStep:
    """An ACS step about to be sent. `payload_json` is null for a turnEnd, whose counts are taken when it is sent.

    `thread_id` is the subagent's in whose session of the Guardian it belongs; without one it is the turn's own.
    """

    request_id: str
    method: str
    payload_json: str | None
    in_window: bool
    turn_id: str | None
    outcome: TurnOutcome | None = None
    thread_id: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A step whose payload is written when its turn to be sent has come: only then is it known what it derives from.

    `write` makes the payload (JSON text) and takes the labels for its values from the marks it is given.
    """

    request_id: str
    method: str
    write: Callable[[Marks], str]
    in_window: bool
    turn_id: str | None
    thread_id: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """An ACS step as its row says; `ordinal` orders a session's sends."""

    session_id: str
    ordinal: int
    request_id: str
    method: str
    turn_id: str | None
    in_window: bool
    payload_json: str | None
    outcome: TurnOutcome | None
    state: StepState
    decision: str | None
    chain_hash: str | None
    reasoning: str | None
    reason_codes: tuple[str, ...]
    error_code: int | None
    attempts: int
    thread_id: str | None = None

    @property
    def has_entry(self) -> bool:
        """Whether the step is known to be in the Guardian's chain, whatever became of its answer (amendment 4)."""
        return self.state == "answered" and (
            self.chain_hash is not None or self.error_code == AcsErrorCode.REPLAY_DETECTED
        )


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """What became of a step.

    `details` is what a MODIFY, ASK or DEFER carried beside its word. The step's row does not keep it: whoever goes on
    with it keeps what came of it.
    """

    state: StepState
    decision: str | None = None
    chain_hash: str | None = None
    reasoning: str | None = None
    reason_codes: tuple[str, ...] = ()
    error_code: int | None = None
    details: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Counts of one window, for turnEnd. `None` where a step's fate stayed unknown (amendment 4)."""

    step_count: int | None
    tool_call_count: int | None


@dataclass(frozen=True, slots=True)
class Submission:
    """One value the agent submitted for the output schema. `published` once a response carrying it was allowed."""

    submission: int
    valid: bool
    value_json: str
    errors: tuple[Mapping[str, str], ...]
    published: bool = False


@dataclass(frozen=True, slots=True)
class CallGrant:
    """A reserved model call: its number in the turn and the output tokens it may use.

    `active_left_ms` is how long the turn may go on running, where a budget over it says so.
    """

    call: int
    max_output_tokens: int
    active_left_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CallRecord:
    """What a model call used, from the gateway. `cost` is the ledger's, `None` where a price is not known."""

    call: int
    provider: str
    model: str
    accepted: bool
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    estimated: bool
    latency_ms: int
    first_token_ms: int | None
    finish_reason: str | None
    retries: int
    cost: Money | None = None


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one API key may use at one time (contract 2.9). `None` is no limit of the key's own."""

    requests_per_minute: int | None = None
    concurrent_turns: int | None = None
    queued_turns: int | None = None
    streams: int | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """What may be seen: the things of one project, and of those the ones of some agents where any are named."""

    project_id: str
    agent_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as stored: a SHA-256 of its secret and never the secret. It belongs to one project."""

    id: str
    name: str
    secret_sha256: str
    created_at: datetime
    revoked_at: datetime | None
    project_id: str = PROJECT_ID
    scopes: tuple[str, ...] = ("*",)
    agent_ids: tuple[str, ...] = ()
    limits: KeyLimits = KeyLimits()
    expires_at: datetime | None = None
    last_used_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether the key still opens anything: neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)

    @property
    def reach(self) -> Reach:
        """What the key may see."""
        return Reach(self.project_id, self.agent_ids)
