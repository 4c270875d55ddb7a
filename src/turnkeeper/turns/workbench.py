"""What a worker works with: its parts, handed in, and the limits it keeps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from turnkeeper.clock import Clock
from turnkeeper.ids import IdSource
from turnkeeper.sandbox.protocol import ModelWire, OutputMode, ToolCalling, ToolSpec
from turnkeeper.turns.approval_desk import GuardianQuestions
from turnkeeper.turns.box_ports import Boxes, Gateway, NoRunners, Runners
from turnkeeper.turns.contents import ContentStore
from turnkeeper.turns.files import FileStore
from turnkeeper.turns.governor import Governor
from turnkeeper.turns.measures import NoMeasures, WorkerMeasures
from turnkeeper.turns.model import ModelChoice
from turnkeeper.turns.open_texts import OpenTexts
from turnkeeper.turns.pausing import DEFAULT_PAUSE_EXPIRY_MS
from turnkeeper.turns.ports import TurnStore, Wakeups
from turnkeeper.turns.schema_check import SchemaChecker
from turnkeeper.turns.secrets import Vault
from turnkeeper.turns.takeover import Liveness, NoLiveness
from turnkeeper.turns.timing import Waiter


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Limits of one worker. `slots` is how many turns run at a time.

    `unpaid_slots` are for heads of queues that need no sandbox because their budget is gone; they never wait for a
    runner (contract 7). `pause_warm_ms` is how long the boxes of a turn that waits are kept, `pause_expiry_ms` how long
    it may wait where its agent says nothing. `mcp_timeout_ms` is how long an MCP server may take to start and to answer
    what is no call of a tool. `tool_output_bytes` is what an agent gets of a tool's output and
    `full_text_bytes` what it may answer; over `inline_bytes` and `text_bytes` the whole is an artifact. The `output_`
    limits are for files that a turn leaves.
    """

    slots: int = 2
    unpaid_slots: int = 4
    lease_ttl_ms: int = 30_000
    poll_ms: int = 1_000
    reap_ms: int = 300
    drain_ms: int = 30_000
    cancel_grace_ms: int = 10_000
    budget_grace_ms: int = 10_000
    pause_warm_ms: int = 2_000
    pause_expiry_ms: int = DEFAULT_PAUSE_EXPIRY_MS
    start_timeout_ms: int = 60_000
    tool_timeout_ms: int = 120_000
    mcp_timeout_ms: int = 20_000
    max_model_calls: int = 50
    max_frames: int = 10_000
    max_destinations: int = 64
    argument_bytes: int = 262_144
    inline_bytes: int = 16_384
    text_bytes: int = 262_144
    result_bytes: int = 262_144
    tool_output_bytes: int = 65_536
    full_text_bytes: int = 524_288
    output_files: int = 100
    output_file_bytes: int = 64 * 1_048_576
    output_total_bytes: int = 256 * 1_048_576
    max_submissions: int = 50
    max_compactions: int = 50
    summary_bytes: int = 65_536
    history_events: int = 1_000
    history_bytes: int = 262_144
    outbox_sessions: int = 50
    outbox_first_delay_ms: int = 500
    outbox_max_delay_ms: int = 30_000


def chat_completions(model: ModelChoice) -> ModelWire:
    """Every model is spoken to in Chat Completions."""
    return "chat_completions"


def unknown_window(model: ModelChoice) -> int:
    """Nobody has said how much the model takes in."""
    return 0


def native_calls(model: ModelChoice) -> ToolCalling:
    """Every model has tool calls of its own."""
    return "native"


@dataclass(frozen=True, slots=True)
class Workbench:
    """The parts of a worker. `owner` names it in leases and is never used by two processes.

    `workspaces` holds one directory per session, `skill_folders` one per session with
    what its running turn has loaded. `output_mode_of` says how a model is asked for structured results;
    `tool_calling_of` how it calls tools, `window_of` how many tokens it takes in (0: unknown), `wire_of` in which
    protocol the built-in agent speaks to it.
    `liveness` tells of other workers' ends sooner than their leases. `questions` are those of our own Guardian, whose
    answers turns wait for. `vault` has the secrets that sessions name. `texts` is where what agents write is shown
    while they write it. `measures` hears how long things took. `runners` come from elsewhere for turns of their pools.
    """

    owner: str
    store: TurnStore
    governor: Governor
    boxes: Boxes
    gateway: Gateway
    checker: SchemaChecker
    files: FileStore
    contents: ContentStore
    wakeups: Wakeups
    clock: Clock
    waiter: Waiter
    ids: IdSource
    workspaces: Path
    skill_folders: Path
    tools: Mapping[str, ToolSpec]
    output_mode_of: Callable[[ModelChoice], OutputMode]
    settings: WorkerSettings
    liveness: Liveness = field(default_factory=NoLiveness)
    questions: GuardianQuestions | None = None
    texts: OpenTexts | None = None
    vault: Vault | None = None
    measures: WorkerMeasures = field(default_factory=NoMeasures)
    wire_of: Callable[[ModelChoice], ModelWire] = chat_completions
    tool_calling_of: Callable[[ModelChoice], ToolCalling] = native_calls
    window_of: Callable[[ModelChoice], int] = unknown_window
    runners: Runners = field(default_factory=NoRunners)
