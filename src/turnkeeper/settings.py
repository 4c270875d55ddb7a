"""The settings tree: every name there is, its type, its default, what it means.

Frozen, checked as a whole, closed to names it does not know. Where values come from is `config`'s business. Keys do
not stand in the tree, only the names of the variables and files that hold them; what may hold a password
(`store.url`, `guardian.database_url`) has a type that prints as stars.
"""

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from turnkeeper.destinations import DestinationInvalid, parse_rule

PROVIDER_PLACEHOLDER: Final = "NAME"
NAMED_BRANCHES: Final = (("providers",), ("guardian", "clients"), ("guardian", "trust_overrides"), ("runners", "pools"))
"""Where branches stand under names of the operator's own."""
PATH_SETTINGS: Final = frozenset(
    {
        ("data_dir",),
        *(("guardian", name) for name in ("secret_file", "approver_key_file", "policy")),
        ("guardian", "retention", "archive_dir"),
        ("harness", "clients_dir"),
        ("providers", PROVIDER_PLACEHOLDER, "api_key_file"),
    }
)

Kibibyte: Final = 1024
Mebibyte: Final = 1024 * Kibibyte
Gibibyte: Final = 1024 * Mebibyte


def _refuse_switch(value: object) -> object:
    # TOML's `true` is an int to Python, and a port of 1 is not what somebody meant by it.
    if isinstance(value, bool):
        raise ValueError("is a switch, a number is wanted")  # noqa: TRY004 (pydantic reports only ValueError)
    return value


Count: TypeAlias = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=1)]
CountOrNone: TypeAlias = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=0)]
PauseExpiry: TypeAlias = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=1, le=7 * 24 * 3_600_000)]
ToolOutput: TypeAlias = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=1, le=128 * Kibibyte)]
Port: TypeAlias = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=0, le=65_535)]


class Branch(BaseModel):
    """A part of the tree: frozen, and closed to names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSettings(Branch):
    """The port that `serve` opens, for the turn API and for `/acs`."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: Port = Field(default=8080, description="Port to listen on; 0 takes a free one.")
    max_body_bytes: Count = Field(default=Mebibyte, description="Longest request body that is read.")
    max_connections: Count = Field(default=1000, description="Connections and requests at one time; above it 503.")
    max_streams: Count = Field(default=256, description="Event streams open at one time.")
    sse_heartbeat_ms: Count = Field(
        default=15_000, description="Silence on an event stream before a comment line is sent."
    )
    sse_max_age_ms: Count = Field(
        default=3_600_000, description="Age at which an event stream is closed with `max_age`."
    )
    drain_ms: Count = Field(default=10_000, description="How long a stopping server lets requests and turns finish.")


class StoreSettings(Branch):
    """Where turns and events are kept."""

    url: SecretStr | None = Field(
        default=None,
        description="SQLAlchemy URL: `sqlite:////path` or `postgresql+psycopg://...`. Unset: SQLite in the data dir.",
    )


class ClientSettings(Branch):
    """What a client of our Guardian can do. Where several entries fit one, it can do only what all of them say."""

    key_id: str | None = Field(default=None, min_length=1, max_length=128, description="Label of its key. Unset: any.")
    agent_id: str | None = Field(default=None, min_length=1, description="Its `agent_id`. Unset: any.")
    can_modify: bool = Field(default=True, description="Whether it applies MODIFY. If not, the step is denied.")
    can_ask: bool = Field(default=True, description="Whether it can wait for an approver.")
    approver_types: tuple[Literal["human", "agent", "service"], ...] = Field(
        default=("human", "agent", "service"), description="Kinds of approvers that it can wait for."
    )
    ask_fallback: Literal["defer", "deny"] = Field(
        default="defer", description="What it gets instead of a question that it cannot wait for."
    )

    @model_validator(mode="after")
    def _names_somebody(self) -> "ClientSettings":
        if self.key_id is None and self.agent_id is None:
            raise ValueError("a client is named by key_id, agent_id, or both")
        return self


ClientName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]


class TrustOverrideSettings(Branch):
    """What one source's data counts as instead of its origin's usual trust. Recorded as a finding where it is used."""

    origin: Literal["user_input", "system", "tool_output", "retrieved", "a2a_inbound", "external"] = Field(
        description="The `origin` that the data states."
    )
    source_id: str = Field(min_length=1, max_length=1024, description="The `source_id` that the data states.")
    trust: Literal["trusted", "unknown", "untrusted"] = Field(description="What the data counts as.")


OverrideName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]


class RetentionSettings(Branch):
    """What the Guardian's record loses with time. Hashes, entries, decisions and heads stay; unset, everything does."""

    erase_content_after_hours: Count | None = Field(
        default=None, description="Age at which the bodies of requests and answers are erased. Unset: never."
    )
    archive_after_hours: Count | None = Field(
        default=None,
        description="Time after the last record of a closed session at which it leaves for an archive. Unset: never.",
    )
    archive_dir: Path | None = Field(
        default=None, description="Folder of archives. Unset: `guardian/archives` in the data dir."
    )
    interval_ms: Count = Field(default=3_600_000, description="Time between two runs.")
    max_steps_per_run: Count = Field(default=10_000, description="Steps that one run may erase.")
    max_sessions_per_run: Count = Field(default=100, description="Sessions that one run may archive.")


class GuardianSettings(Branch):
    """The Guardian that is asked before every step: the one in this process, or another by URL."""

    url: str | None = Field(
        default=None, description="ACS endpoint of another Guardian. Unset: the one in this process."
    )
    secret_file: Path | None = Field(
        default=None, description="File with the key shared with the Guardian at `guardian.url`."
    )
    key_id: str = Field(default="default", min_length=1, max_length=128, description="Label of that key.")
    approvals_url: str | None = Field(
        default=None, description="Where the Guardian at `guardian.url` keeps its approvals, if it is a Turnkeeper one."
    )
    approver_key_file: Path | None = Field(
        default=None, description="File with an API key of that Guardian that may decide approvals."
    )
    policy: Path | None = Field(
        default=None, description="Rule file (YAML) of our own Guardian. Unset: the shipped rules."
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="Where our own Guardian keeps its record: `sqlite:////path` or `postgresql://...`."
        " Unset: SQLite in the data dir.",
    )
    decision_timeout_ms: Count = Field(default=5_000, description="How long one decision may take.")
    on_decision_failure: Literal["deny", "proceed"] = Field(
        default="deny",
        description="What happens to a step without a verdict. `proceed` is unsafe and recorded each time.",
    )
    skew_window_ms: Count = Field(default=300_000, description="How far a request's timestamp may lie from our clock.")
    max_deferrals: CountOrNone = Field(
        default=3, description="Deferrals that a session may have; the next is denied (`deferral_bound_exceeded`)."
    )
    max_batch_requests: Count = Field(default=64, description="Requests that one batch may hold.")
    retention: RetentionSettings = RetentionSettings()
    clients: dict[ClientName, ClientSettings] = Field(
        default_factory=dict[str, ClientSettings], description="Clients of our Guardian that cannot do everything."
    )
    policy_requires_provenance: bool = Field(
        default=False,
        description="Whether an agent that produces no provenance is refused at the handshake: for policies that"
        " decide by `provenance`.",
    )
    trust_overrides: dict[OverrideName, TrustOverrideSettings] = Field(
        default_factory=dict[str, TrustOverrideSettings],
        max_length=256,
        description="Sources whose data our Guardian trusts otherwise than by its origin.",
    )

    @model_validator(mode="after")
    def _one_guardian(self) -> "GuardianSettings":
        if self.url is not None and self.secret_file is None:
            raise ValueError("guardian.url needs guardian.secret_file: every envelope is signed")
        if (self.approvals_url is None) != (self.approver_key_file is None):
            raise ValueError("guardian.approvals_url and guardian.approver_key_file go together")
        if self.approvals_url is not None and self.url is None:
            raise ValueError("guardian.approvals_url needs guardian.url: the Guardian in this process needs neither")
        if self.url is not None and self.policy is not None:
            raise ValueError("guardian.policy has no effect with guardian.url: that Guardian has rules of its own")
        if self.url is not None and self.database_url is not None:
            raise ValueError("guardian.database_url has no effect with guardian.url: the record is that Guardian's")
        if self.url is not None and (self.policy_requires_provenance or self.trust_overrides):
            raise ValueError(
                "guardian.policy_requires_provenance and guardian.trust_overrides have no effect with guardian.url"
            )
        return self

    @model_validator(mode="after")
    def _one_trust_for_a_source(self) -> "GuardianSettings":
        sources = [(override.origin, override.source_id) for override in self.trust_overrides.values()]
        if len(set(sources)) != len(sources):
            raise ValueError("two of guardian.trust_overrides are about the same origin and source_id")
        return self


class WorkerSettings(Branch):
    """How turns are run."""

    slots: Count = Field(default=2, description="Turns running at one time in this process.")
    lease_ttl_ms: Count = Field(default=30_000, description="How long a turn stays ours after the last sign of life.")
    cancel_grace_ms: Count = Field(
        default=10_000, description="Time a graceful cancel leaves the agent to stop by itself."
    )
    budget_grace_ms: Count = Field(
        default=10_000, description="Time a turn at its budget has left to hand in its report."
    )
    pause_warm_ms: CountOrNone = Field(
        default=2_000, description="How long a turn that waits for an answer keeps its boxes and its slot."
    )
    poll_ms: Count = Field(default=1_000, description="Longest wait before the queue is looked at without being woken.")
    reap_ms: Count = Field(default=300, description="How often it is looked for turns that another worker has lost.")
    metrics_host: str = Field(default="127.0.0.1", description="Address that `metrics_port` is on.")
    metrics_port: Port | None = Field(
        default=None,
        description="Port on which `turnkeeper work` shows its figures to Prometheus, without a key. Unset: none.",
    )


class BoxLimitSettings(Branch):
    """What a box may use: some of it the whole box, some each process.

    Where the machine lends no control groups, what the whole box may use is held by weaker means, which `turnkeeper
    doctor` names.
    """

    box_memory_bytes: Count = Field(
        default=Gibibyte, description="Memory that the whole box may really use, its `/tmp` included."
    )
    cpu_millis: Count = Field(default=1_000, description="Processors of the whole box, in thousandths of one.")
    memory_bytes: Count = Field(default=Gibibyte, description="Address space of one process.")
    cpu_seconds: Count = Field(default=600, description="CPU time of one process.")
    processes: Count = Field(default=128, description="Processes and threads.")
    open_files: Count = Field(default=512, description="Open files of one process.")
    file_bytes: Count = Field(default=256 * Mebibyte, description="Longest file that may be written.")
    tmp_bytes: Count = Field(default=64 * Mebibyte, description="Size of the box's own `/tmp`.")


class ToolBoxLimitSettings(BoxLimitSettings):
    """The same for the box that tools run in. Runtimes such as Node reserve address space that they never use."""

    box_memory_bytes: Count = Field(
        default=2 * Gibibyte, description="Memory that the whole box may really use, its `/tmp` included."
    )
    memory_bytes: Count = Field(default=4 * Gibibyte, description="Address space of one process.")
    processes: Count = Field(default=256, description="Processes and threads.")
    open_files: Count = Field(default=1024, description="Open files of one process.")
    disk_bytes: Count = Field(default=2 * Gibibyte, description="Space that the workspace may take on the disk.")
    disk_files: Count = Field(default=200_000, description="Files and folders that the workspace may have.")


class LargestBoxSettings(Branch):
    """The most that an agent's `sandbox` may ask for; beyond it 422."""

    cpu_millis: Count = Field(default=2_000, description="Processors, in thousandths of one.")
    memory_mib: Count = Field(default=4_096, description="Memory of the whole box, in MiB.")
    disk_mib: Count = Field(default=8_192, description="Space of the workspace, in MiB.")


class EgressSettings(Branch):
    """What agents' tool boxes may reach at most, through the egress proxy. Without `allow` it is nothing."""

    allow: tuple[str, ...] = Field(
        default=(),
        description="Hosts (`host`, `*.host`, `*`, addresses, networks, each with or without `:port`) that agents may "
        "be given. Without a port: 80 and 443.",
    )
    networks: tuple[str, ...] = Field(
        default=(),
        description="Networks (`10.0.0.0/8`) that may be connected to although they are not public.",
    )
    destinations: Count = Field(default=64, description="Hosts and ports that one turn may ask for.")
    connections: Count = Field(default=32, description="Connections of one box at one time.")
    max_bytes: Count = Field(default=Gibibyte, description="Bytes that one box may move, both ways together.")
    head_timeout_ms: Count = Field(default=10_000, description="How long a request may take to arrive.")
    resolve_timeout_ms: Count = Field(default=5_000, description="How long a name may take to be resolved.")
    connect_timeout_ms: Count = Field(default=10_000, description="How long a connection may take.")
    idle_timeout_ms: Count = Field(default=60_000, description="Longest silence of a connection, both ways.")
    connection_ms: Count = Field(default=600_000, description="How long one connection may last.")

    @model_validator(mode="after")
    def _real(self) -> "EgressSettings":
        for text in self.networks:
            ip_network(text)
        for text in self.allow:
            try:
                parse_rule(text)
            except DestinationInvalid as error:
                raise ValueError(error.message) from error
        return self


class SandboxSettings(Branch):
    """The boxes that agents and their tools run in."""

    kind: Literal["bwrap", "none"] = Field(
        default="bwrap", description="`bwrap` (namespaces), or `none`: no wall at all, for development only, unsafe."
    )
    warm: CountOrNone = Field(default=2, description="Boxes kept started for the next turns. Each is used once.")
    loop_limits: BoxLimitSettings = BoxLimitSettings()
    tool_limits: ToolBoxLimitSettings = ToolBoxLimitSettings()
    largest: LargestBoxSettings = LargestBoxSettings()
    egress: EgressSettings = EgressSettings()
    cgroups: Literal["auto", "require", "off"] = Field(
        default="auto",
        description="Control groups for boxes: where the machine lends them, always (else no box starts), or never.",
    )


class HarnessSettings(Branch):
    """What may run an agent's loop beside the built-in one."""

    programs: tuple[str, ...] = Field(
        default=(), description="Programs (absolute paths) that an agent's `harness.command` may begin with."
    )
    read_only: tuple[str, ...] = Field(
        default=(), description="Further files and folders that such a program may read, at their own paths."
    )
    clients_dir: Path | None = Field(
        default=None,
        description="Folder into which npm installed Claude Code, Codex and opencode. Unset: no agent may use them.",
    )

    @model_validator(mode="after")
    def _absolute(self) -> "HarnessSettings":
        for path in (*self.programs, *self.read_only):
            if not path.startswith("/") or "\0" in path:
                raise ValueError(f"harness: {path!r} is not an absolute path")
        return self


class LimitSettings(Branch):
    """What an app may send."""

    queue_depth: Count = Field(
        default=100, description="Turns waiting in one session; the next is refused (`queue_full`)."
    )
    key_queue_depth: Count = Field(
        default=10_000, description="Turns waiting that one API key has posted; the next is refused (`queue_full`)."
    )
    text_bytes: Count = Field(default=256 * Kibibyte, description="Longest input of a turn.")
    metadata_bytes: Count = Field(default=16 * Kibibyte, description="Longest `metadata`.")
    output_schema_bytes: Count = Field(default=64 * Kibibyte, description="Longest `output_schema`.")
    result_bytes: Count = Field(default=256 * Kibibyte, description="Longest result an agent may submit.")
    inline_bytes: Count = Field(default=16 * Kibibyte, description="Longest tool output that is kept inside an event.")
    tool_output_bytes: ToolOutput = Field(
        default=64 * Kibibyte, description="Longest output of a tool that an agent gets; at most 131072."
    )
    pause_expiry_ms: PauseExpiry = Field(
        default=3_600_000, description="How long a turn may wait for an answer, unless its agent says otherwise."
    )


class FileSettings(Branch):
    """Files that apps upload and that turns leave."""

    max_bytes: Count = Field(default=64 * Mebibyte, description="Longest file that is taken, up- or downwards.")
    project_bytes: Count = Field(
        default=10 * Gibibyte, description="What the files and artifacts of one project may take (`storage_full`)."
    )
    upload_timeout_ms: Count = Field(default=600_000, description="How long one upload may take.")
    max_outputs: Count = Field(default=100, description="Files that one turn may leave.")
    max_outputs_bytes: Count = Field(default=256 * Mebibyte, description="Bytes of all the files that one turn leaves.")


class WebhookSettings(Branch):
    """How events reach the addresses that apps name."""

    allow_http: bool = Field(default=False, description="Whether an endpoint may be plain http.")
    networks: tuple[str, ...] = Field(
        default=(),
        description="Networks (`10.0.0.0/8`) that webhooks may be sent to although they are not public.",
    )
    concurrency: Count = Field(default=64, description="Deliveries tried at one time by this process.")
    poll_ms: Count = Field(default=1_000, description="Longest wait before deliveries that are due are looked for.")

    @model_validator(mode="after")
    def _real_networks(self) -> "WebhookSettings":
        for text in self.networks:
            ip_network(text)
        return self


class SessionRetentionSettings(Branch):
    """How long what was said is kept."""

    session_days: CountOrNone = Field(
        default=30,
        le=3_650,
        description="Days after its last activity that a new session is kept, unless it says otherwise; 0: for ever.",
    )
    sweep_ms: Count = Field(default=60_000, description="Longest wait before expired sessions are looked for again.")


class LogSettings(Branch):
    """What the process says on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is written."
    )
    format: Literal["auto", "console", "json"] = Field(
        default="auto", description="`auto`: for people on a terminal, one JSON object per line elsewhere."
    )


class ProviderSettings(Branch):
    """A place where models are called, under the name that agents use for it."""

    kind: Literal["openai", "anthropic", "local"] = Field(
        description="`openai`: Chat Completions and Responses. `anthropic`: Messages. `local`: the installed weights."
    )
    base_url: str | None = Field(
        default=None, description="Root of the API with its `/v1`, such as `http://127.0.0.1:9000/v1`."
    )
    api_key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Name of the variable that holds the provider's key.",
    )
    api_key_file: Path | None = Field(default=None, description="File that holds the provider's key.")
    protocol: Literal["chat_completions", "responses"] = Field(
        default="chat_completions", description="What the built-in agent speaks to a provider of kind `openai`."
    )
    tool_calling: Literal["native", "prompted"] | None = Field(
        default=None,
        description="How its models call tools. `prompted`: in what they write. Unset: so for `local`, else `native`.",
    )
    json_schema: bool | None = Field(
        default=None,
        description="Whether it forces answers into a JSON Schema on demand (Chat Completions). Unset: `local` alone.",
    )
    context_tokens: Count | None = Field(
        default=None,
        description="Window of its models. Near it the built-in agent compacts. Unset: never, but for `local` (8192).",
    )
    model_aliases: tuple[str, ...] = Field(
        default=(),
        description="Names by which a client in a box may call its agent's model, and no other; `*` ends a beginning.",
    )
    max_calls_at_once: Count | None = Field(default=None, description="Calls of all turns at one time. Unset: any.")
    max_calls_per_minute: Count | None = Field(default=None, description="Calls of all turns in a minute. Unset: any.")
    max_wait_ms: Count = Field(default=60_000, description="How long a call waits for these limits before it is 429.")
    connect_timeout_ms: Count = Field(default=10_000, description="How long a connection may take.")
    read_timeout_ms: Count = Field(default=300_000, description="Longest silence of the provider inside a call.")

    @model_validator(mode="after")
    def _complete(self) -> "ProviderSettings":
        keyed = self.api_key_env is not None or self.api_key_file is not None
        if self.kind != "local" and self.base_url is None:
            raise ValueError(f"kind {self.kind!r} needs base_url")
        if self.kind == "local" and (self.base_url is not None or keyed):
            raise ValueError("kind 'local' starts its own server and takes neither base_url nor a key")
        if self.json_schema and (self.kind == "anthropic" or self.protocol != "chat_completions"):
            raise ValueError("json_schema is for providers that are spoken to in Chat Completions")
        if self.kind == "local" and self.tool_calling == "native":
            raise ValueError("the local model has no tool calls of its own: tool_calling is 'prompted'")
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("the key stands in api_key_env or in api_key_file, not in both")
        return self


class PoolSettings(Branch):
    """One pool, under the name that agents use for it."""

    token_sha256: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], ...] = Field(
        default=(),
        description="SHA-256 of each token that a runner of the pool may show (`turnkeeper runners token`).",
    )


PoolName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]


class RunnerSettings(Branch):
    """Sandboxes that others run: runners elsewhere that come to this process for turns."""

    url: str | None = Field(
        default=None, description="Address under which runners reach this process. Unset: the one they asked at."
    )
    host: str = Field(default="127.0.0.1", description="Address that `port` is on.")
    port: Port | None = Field(
        default=None,
        description="Port on which `turnkeeper work` serves runners; `serve` has its own. Unset: none.",
    )
    pools: dict[PoolName, PoolSettings] = Field(
        default_factory=dict[str, PoolSettings], description="The pools whose turns runners may take."
    )


class GatewaySettings(Branch):
    """The model gateway: what one turn may ask of its model."""

    max_request_bytes: Count = Field(default=32 * Mebibyte, description="Longest request of an agent to its model.")
    max_response_bytes: Count = Field(default=4 * Mebibyte, description="Longest whole answer of a provider.")
    max_stream_bytes: Count = Field(default=256 * Mebibyte, description="Longest streamed answer, frames included.")
    call_timeout_ms: Count = Field(default=600_000, description="How long one call may take, repeats included.")
    max_calls_at_once: Count = Field(default=4, description="Calls of one turn at one time; a further one waits.")
    max_calls_per_minute: Count = Field(default=600, description="Calls of one turn in a minute; above it 429.")
    max_retries: CountOrNone = Field(default=2, description="Times a call that may succeed later is sent again.")


ProviderName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]


class Settings(Branch):
    """All settings."""

    data_dir: Path = Field(description="Folder of databases, keys and workspaces. Default: in the user's data folder.")
    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    guardian: GuardianSettings = GuardianSettings()
    worker: WorkerSettings = WorkerSettings()
    sandbox: SandboxSettings = SandboxSettings()
    harness: HarnessSettings = HarnessSettings()
    runners: RunnerSettings = RunnerSettings()
    gateway: GatewaySettings = GatewaySettings()
    limits: LimitSettings = LimitSettings()
    files: FileSettings = FileSettings()
    webhooks: WebhookSettings = WebhookSettings()
    retention: SessionRetentionSettings = SessionRetentionSettings()
    log: LogSettings = LogSettings()
    providers: dict[ProviderName, ProviderSettings] = Field(
        default_factory=lambda: {"local": ProviderSettings(kind="local")},
        description="Model providers by name. Unset: `local` alone.",
    )


_TRUSTED_ORIGINS: Final = frozenset({"user_input", "system"})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def unsafe_choices(settings: Settings) -> tuple[str, ...]:
    """A sentence for each setting that gives protection away, for the startup log."""
    choices: list[str] = []
    if settings.sandbox.kind == "none":
        choices.append("sandbox.kind is none: agents and tools run without any wall, with this user's rights")
    if settings.guardian.on_decision_failure == "proceed":
        choices.append("guardian.on_decision_failure is proceed: a step without a verdict is carried out")
    choices.extend(
        f"guardian.trust_overrides.{name}: {override.origin} from {override.source_id} counts as {override.trust}"
        for name, override in settings.guardian.trust_overrides.items()
        if override.origin not in _TRUSTED_ORIGINS and override.trust != "untrusted"
    )
    if settings.server.host not in _LOOPBACK:
        choices.append(f"server.host is {settings.server.host}: plain HTTP is open to other machines")
    if settings.runners.port is not None and settings.runners.host not in _LOOPBACK:
        choices.append(f"runners.host is {settings.runners.host}: plain HTTP is open to other machines")
    if settings.sandbox.egress.networks:
        choices.append(
            f"sandbox.egress.networks: agents' tools may reach {', '.join(settings.sandbox.egress.networks)}"
        )
    if settings.webhooks.networks:
        choices.append(f"webhooks.networks: webhooks may be sent into {', '.join(settings.webhooks.networks)}")
    if settings.webhooks.allow_http:
        choices.append("webhooks.allow_http: events may be sent over plain http, signed but readable")
    if settings.guardian.url is not None and settings.guardian.url.startswith("http://"):
        choices.append("guardian.url is plain http: steps are signed on the way, but can be read")
    return tuple(choices)
