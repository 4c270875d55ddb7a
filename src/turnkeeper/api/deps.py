"""What the turn API is given: a store, news, clocks, limits, names. It makes none of these itself."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, Protocol, cast

from fastapi import Depends, Request

from turnkeeper.api.agent_harness import BUILTIN_ALONE, HarnessOffer
from turnkeeper.api.event_reads import EventReads
from turnkeeper.api.in_flight import KeysInFlight
from turnkeeper.api.metrics import ApiMeasures, NoMeasures
from turnkeeper.api.rates import RequestRates
from turnkeeper.api.session_feeds import SessionFeeds
from turnkeeper.api.stream_registry import StreamRegistry
from turnkeeper.api.stream_wards import StreamWards
from turnkeeper.clock import Clock, SystemClock
from turnkeeper.destinations import HostRule
from turnkeeper.events.webhooks.addresses import Network
from turnkeeper.events.webhooks.ports import WebhookStore
from turnkeeper.ids import IdSource
from turnkeeper.turns.access import AccessStore
from turnkeeper.turns.approval_desk import GuardianQuestions
from turnkeeper.turns.budget_ports import BudgetStore
from turnkeeper.turns.contents import ContentStore
from turnkeeper.turns.creations import Creations
from turnkeeper.turns.files import FileStore
from turnkeeper.turns.model import USUAL_BOX_SIZE, BoxSize
from turnkeeper.turns.open_texts import OpenTexts
from turnkeeper.turns.operations import OperatorStore
from turnkeeper.turns.ports import ApprovalStore, TurnCommands, TurnReads
from turnkeeper.turns.posting import TurnPosts
from turnkeeper.turns.retention import RetentionStore
from turnkeeper.turns.schema_check import SchemaChecker
from turnkeeper.turns.secrets import SecretStore
from turnkeeper.turns.skills import SkillStore
from turnkeeper.turns.snapshots import SnapshotReads
from turnkeeper.turns.wakeups import LocalWakeups, Watch


class ApiStore(TurnReads, SnapshotReads, TurnCommands, TurnPosts, ApprovalStore, Protocol):
    """What the API reads and changes."""


class News(Protocol):
    """Where a request learns that something was committed."""

    def watch(self, topic: str) -> AbstractContextManager[Watch]:
        """A watch on the topic: begin it, then read, then wait."""
        ...

    def also(self, topic: str, watch: Watch) -> AbstractContextManager[None]:
        """Has a watch rung for another topic as well."""
        ...


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The limits of the API. Each one is named in the answer that refuses a request for it."""

    max_body_bytes: int = 1_048_576
    metadata_bytes: int = 16_384
    text_bytes: int = 262_144
    inline_bytes: int = 16_384
    file_bytes: int = 64 * 1_048_576
    upload_timeout_ms: int = 600_000
    sse_heartbeat_ms: int = 15_000
    sse_max_age_ms: int = 3_600_000
    poll_ms: int = 1_000
    webhooks_allow_http: bool = False
    webhook_networks: tuple[Network, ...] = ()
    largest_box: BoxSize = USUAL_BOX_SIZE
    harnesses: HarnessOffer = BUILTIN_ALONE
    egress: tuple[HostRule, ...] = ()
    pools: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests can be served, by parts that answer yes or no, with counters. Holds nothing secret.

    `drained` is an operator's word: requests are served, and no turn is accepted.
    """

    ready: bool
    checks: Mapping[str, bool] = field(default_factory=dict[str, bool])
    counters: Mapping[str, int] = field(default_factory=dict[str, int])
    drained: bool = False


@dataclass(frozen=True, slots=True)
class ApiDeps:
    """Everything the routes work with.

    `providers` and `tool_names` are what an agent may name; `model_params` too, where it is not `None`. `questions` are
    those of the Guardian, where it is ours and can be answered from here.
    """

    store: ApiStore
    news: News
    schema_checker: SchemaChecker
    clock: Clock
    ids: IdSource
    cursor_secret: bytes = field(repr=False)
    readiness: Callable[[], Awaitable[Readiness]]
    webhooks: WebhookStore
    budgets: BudgetStore
    creations: Creations
    access: AccessStore
    retention: RetentionStore
    operations: OperatorStore
    files: FileStore
    contents: ContentStore
    secrets: SecretStore
    skills: SkillStore
    providers: frozenset[str]
    tool_names: frozenset[str]
    model_params: frozenset[str] | None = None
    settings: ApiSettings = ApiSettings()
    streams: StreamRegistry = field(default_factory=StreamRegistry)
    event_reads: EventReads = field(default_factory=EventReads)
    feeds: SessionFeeds = field(default_factory=SessionFeeds)
    wards: StreamWards = field(default_factory=StreamWards)
    rates: RequestRates = field(default_factory=lambda: RequestRates(SystemClock()))
    in_flight: KeysInFlight = field(default_factory=KeysInFlight)
    questions: GuardianQuestions | None = None
    texts: OpenTexts = field(default_factory=lambda: OpenTexts(LocalWakeups()))
    measures: ApiMeasures = field(default_factory=NoMeasures)


async def deps_of(request: Request) -> ApiDeps:
    """The dependencies of the application that serves this request."""
    # A coroutine for one reason: FastAPI sends a plain function to a thread, several times a request.
    return cast("ApiDeps", request.app.state.deps)


Deps = Annotated[ApiDeps, Depends(deps_of)]
