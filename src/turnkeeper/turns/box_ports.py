"""What a worker needs of boxes and of the model gateway, in the worker's own terms.

The drivers and the gateway live in `sandbox`, which knows nothing of turns; wiring joins the two. Any
`TurnkeeperError` that a box or a driver raises means that it cannot be used any more; its `error_code` is only logged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from turnkeeper.sandbox.protocol import FromHarness, ToHarness
from turnkeeper.turns.model import BoxSize, CallGrant, CallRecord, Fence, HarnessChoice, ModelChoice

ToolRunStatus: TypeAlias = Literal["ok", "error", "timeout"]
BoxEndReason: TypeAlias = Literal["oom", "quota"]
"""Its memory was used up, or its workspace was over its quota."""
LoopEndReason: TypeAlias = BoxEndReason | Literal["lease_expired"]
"""Also: the runner that has it did not say in time that it lives."""


@dataclass(frozen=True, slots=True)
class LoopOrder:
    """Whose loop a box is for. `workspace` and `size` count where the harness brings its tools along.

    With a `pool` one of its runners has the box, for the turn that `fence` stands for.
    """

    harness: HarnessChoice
    workspace: Path
    size: BoxSize
    model: ModelChoice
    pool: str | None = None
    fence: Fence | None = None


class LoopBox(Protocol):
    """The agent's loop, for one turn. Its harness has said that it is ready."""

    @property
    def sandbox_id(self) -> str: ...
    @property
    def socket_dir(self) -> Path:
        """Where the gateway puts its socket, on this side of the wall."""
        ...

    @property
    def gateway_socket(self) -> str:
        """Where the harness finds that socket."""
        ...

    @property
    def warm(self) -> bool: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def end_reason(self) -> LoopEndReason | None:
        """Why a box that was lost ended, where that is known."""
        ...

    @property
    def diagnostics(self) -> str:
        """The last bytes of the box's stderr, for the log."""
        ...

    async def send(self, frame: ToHarness) -> None:
        """Hands a frame to the harness; raises when the box is gone or does not read."""
        ...

    async def receive(self) -> FromHarness:
        """The next frame; raises at the end of the box and on a frame the protocol does not have."""
        ...

    async def kill(self) -> None:
        """Returns when every process of the box is gone. Idempotent."""
        ...


class ToolOutcome(Protocol):
    """What became of a tool call. `text` comes from an untrusted box."""

    @property
    def status(self) -> ToolRunStatus: ...
    @property
    def text(self) -> str: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def duration_ms(self) -> int: ...


class ToolBox(Protocol):
    """A session's workspace and the programs that may work on it."""

    @property
    def sandbox_id(self) -> str: ...
    @property
    def end_reason(self) -> BoxEndReason | None:
        """Why a box that was lost ended, where that is known."""
        ...

    async def call(
        self, tool: str, arguments: Mapping[str, object], *, timeout_ms: int, max_output_bytes: int
    ) -> ToolOutcome:
        """Runs one tool. A call that is given up on takes the box with it."""
        ...

    async def suspend(self) -> bool:
        """Stops every process inside until `resume`. False, and nothing stopped, where that cannot be done."""
        ...

    async def resume(self) -> None:
        """Sets going what `suspend` stopped."""
        ...

    async def kill(self) -> None:
        """Returns when every process of the box is gone. Idempotent."""
        ...


class EgressGate(Protocol):
    """Who decides about a destination that the lists allow, and hears of those that were refused."""

    async def ask(self, host: str, port: int, via: str) -> str | None:
        """Why not; `None` where the box may. `via` is `connect` or `http`."""
        ...

    async def refused(self, host: str, port: int) -> None:
        """The box wanted to reach a host that it may not."""
        ...


@dataclass(frozen=True, slots=True)
class NetworkSecret:
    """A `variable` in the box that holds a placeholder; outside, it becomes the value on the way to the hosts."""

    variable: str
    placeholder: str
    hosts: tuple[str, ...]
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NetworkOrder:
    """What a tool box may reach: what each of the lists allows, once the gate has said so too."""

    lists: tuple[tuple[str, ...], ...]
    gate: EgressGate
    secrets: tuple[NetworkSecret, ...] = ()


class WebAnswer(Protocol):
    """The answer to a request, whose head is there. What it says comes from outside."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """Their names in small letters."""
        ...

    async def part(self, *, timeout_ms: int) -> bytes | None:
        """The data of the next event of a stream, or a whole body; None at the end. Raises `TimeoutError`."""
        ...

    async def close(self) -> None:
        """Ends the connection. Idempotent."""
        ...


class Web(Protocol):
    """Requests on an agent's behalf, by the same rules as those of its box."""

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_ms: int, max_bytes: int
    ) -> WebAnswer:
        """The head of an answer. `max_bytes` is what one part of it may have."""
        ...

    async def close(self) -> None:
        """Ends every connection. Idempotent."""
        ...


class Boxes(Protocol):
    """Where boxes come from, and the way out of them."""

    @property
    def kind(self) -> str:
        """`bwrap` or `none`."""
        ...

    async def loop_box(self, order: LoopOrder) -> LoopBox: ...
    async def tool_box(
        self, workspace: Path, size: BoxSize, network: NetworkOrder | None = None, *, skills: Path | None = None
    ) -> ToolBox:
        """A box on a workspace, which can read `skills`: at `/skills`, or in its place where there is no box."""
        ...

    def web(self, network: NetworkOrder) -> Web | None:
        """The way out for the platform itself; None where the operator lends none."""
        ...


class Runners(Protocol):
    """The runners elsewhere that come to this process for turns."""

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools that are served here."""
        ...

    def free(self) -> tuple[str, ...]:
        """The pools of which a runner waits that no turn is on its way to."""
        ...

    def expect(self, turn_id: str, pool: str) -> None:
        """A turn is on its way to a runner of the pool."""
        ...

    def forget(self, turn_id: str) -> None:
        """It is so no more. Idempotent."""
        ...


class NoRunners:
    """`Runners` where every turn is run here."""

    pools: tuple[str, ...] = ()

    def free(self) -> tuple[str, ...]:
        """None."""
        return ()

    def expect(self, turn_id: str, pool: str) -> None:
        """Nothing to note."""

    def forget(self, turn_id: str) -> None:
        """Nothing was noted."""


class TurnMeter(Protocol):
    """The turn's ledger as the gateway uses it."""

    async def reserve(self, *, input_tokens: int, max_output_tokens: int) -> CallGrant:
        """A reservation, its output cap perhaps lowered. Raises `BudgetSpent`."""
        ...

    async def settle(self, record: CallRecord) -> None:
        """Ends a reservation."""
        ...

    async def retrying(self, model: ModelChoice, *, status: int | None, delay_ms: int, try_number: int) -> None:
        """A call is sent again after `delay_ms`; `status` is the provider's, where one came."""
        ...


class ModelFailure(Protocol):
    """Why a model call failed, in our own words."""

    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def retryable(self) -> bool: ...


class GatewayHandle(Protocol):
    """A turn's open model socket."""

    @property
    def budget_reached(self) -> bool:
        """Whether a call was refused because the ledger had too little left for it."""
        ...

    @property
    def last_error(self) -> ModelFailure | None:
        """Why the most recent model call failed; `None` when it succeeded, or none was made."""
        ...

    async def close(self) -> None:
        """Aborts a running call, settles it, closes the socket. Idempotent."""
        ...


class Gateway(Protocol):
    """Where model sockets come from."""

    async def open(self, socket_dir: Path, model: ModelChoice, meter: TurnMeter) -> GatewayHandle: ...
