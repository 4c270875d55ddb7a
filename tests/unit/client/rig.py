"""An agent and a scripted Guardian at the two ends of a wire that a test can break, on a clock that jumps."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from turnkeeper.acs import METHODS, Keyring
from turnkeeper.client import (
    AuditRecord,
    AuditSink,
    ClientSettings,
    GuardianClient,
    Identity,
    InProcessTransport,
    MemoryTerms,
    TermsStore,
)
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.testing.scripted_guardian import ScriptedGuardian

Result = TypeVar("Result")

SECRET = b"s" * 32
KEYRING = Keyring({"default": SECRET})
SESSION = "3b241101-e2bb-4255-8caf-4136c566a962"


@dataclass
class Rig:
    """Everything one test needs. `records` is the deployment's audit log."""

    settings: ClientSettings = field(default_factory=ClientSettings)
    terms: TermsStore = field(default_factory=MemoryTerms)
    records: list[AuditRecord] = field(default_factory=list[AuditRecord])
    clock: FakeClock = field(default_factory=lambda: FakeClock(autojump=True))
    scripted: ScriptedGuardian = field(default_factory=lambda: ScriptedGuardian(KEYRING))
    answer: Callable[[bytes], Awaitable[bytes]] | None = None
    sink: AuditSink | None = None

    def __post_init__(self) -> None:
        self.scripted.methods = frozenset(METHODS)

    async def wire(self, body: bytes) -> bytes:
        """What the agent's transport calls."""
        if self.answer is not None:
            return await self.answer(body)
        return await self.scripted.exchange(body, timeout_ms=0)

    def client(self) -> GuardianClient:
        """A client of this rig; several share its Guardian and its saved terms."""
        return GuardianClient(
            InProcessTransport(self.wire),
            Identity.from_secret("agent", SECRET),
            settings=self.settings,
            audit=self.sink or self.records.append,
            terms=self.terms,
            time=self.clock,
        )

    def run(self, work: Callable[[GuardianClient], Awaitable[Result]]) -> Result:
        """Runs some work with a client."""

        async def main() -> Result:
            async with self.client() as guardian:
                return await work(guardian)

        return asyncio.run(main())

    def sent(self) -> list[str]:
        """The methods that reached the Guardian, in order, short."""
        return [envelope.method.removeprefix("steps/") for envelope in self.scripted.received]

    def audited(self) -> list[tuple[str, str]]:
        """What the audit log says: event and outcome of each record."""
        return [(record.event, record.outcome) for record in self.records]
