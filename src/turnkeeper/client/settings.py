"""The client's settings: what a deployment chooses, each with the standard's default or the safe one.

Answers for refusing a combination that cannot work when it is made. Nothing here is read from the environment.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from turnkeeper.acs import METHODS
from turnkeeper.client.posture import PostureRules
from turnkeeper.client.verdicts import Abilities
from turnkeeper.errors import TurnkeeperError

Producer: TypeAlias = Literal["none", "deterministic"]
PendingRule: TypeAlias = Literal["wait", "raise"]

PROVENANCE_PROFILE: Final = "acs-provenance"


class SettingRefused(TurnkeeperError):
    """A setting of the client that cannot work."""

    code = "setting_refused"


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things take at most, in milliseconds.

    A decision is waited for as long as was negotiated, but not longer than `max_decision_ms`; within that a step is
    sent `max_attempts` times at most. An answer that comes within `late_ms` after its time is recorded, not obeyed.
    """

    handshake_ms: int = 5_000
    max_decision_ms: int = 60_000
    max_attempts: int = 3
    first_backoff_ms: int = 50
    late_ms: int = 30_000
    first_poll_ms: int = 500
    max_poll_ms: int = 10_000

    def __post_init__(self) -> None:
        positive = (self.handshake_ms, self.max_decision_ms, self.max_attempts, self.first_poll_ms, self.max_poll_ms)
        if min(positive) < 1 or min(self.first_backoff_ms, self.late_ms) < 0:
            raise SettingRefused("a time limit of the client is below its minimum")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How the client behaves.

    `provenance="deterministic"` labels every value this library sends and claims `acs-provenance`. `pending` says
    whether a typed step waits for an ASK or DEFER to be resolved or raises `StepPending`. `witness_head` sends the
    last seen chain head with each step, so that a Guardian that lost entries denies it. `audit_decisions` writes each
    decision and its chain head to the audit sink, for `turnkeeper verify --against`. `max_payload_bytes` keeps a
    step below what Guardians read. `mcp_version` and `mcp_methods` declare wrapped MCP (ledger section 16).
    """

    posture: PostureRules = field(default_factory=PostureRules)
    abilities: Abilities = field(default_factory=Abilities)
    timing: Timing = field(default_factory=Timing)
    provenance: Producer = "none"
    pending: PendingRule = "wait"
    witness_head: bool = False
    audit_decisions: bool = False
    max_payload_bytes: int = 900_000
    methods: tuple[str, ...] = tuple(METHODS)
    profiles: tuple[str, ...] = ("acs-core", "acs-audit")
    mcp_version: str | None = None
    mcp_methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_payload_bytes < 1:
            raise SettingRefused("max_payload_bytes is below one")
        if self.mcp_methods and self.mcp_version is None:
            raise SettingRefused("mcp_methods are declared, mcp_version is not")

    @property
    def methods_implemented(self) -> tuple[str, ...]:
        """Every method the hello names."""
        return tuple(dict.fromkeys((*self.methods, *self.mcp_methods)))

    @property
    def profiles_supported(self) -> tuple[str, ...]:
        """Every profile the hello names."""
        labelled = (PROVENANCE_PROFILE,) if self.provenance == "deterministic" else ()
        return tuple(dict.fromkeys((*self.profiles, *labelled)))
