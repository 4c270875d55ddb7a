"""The client and a real Guardian, over each wire there is."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.integration.guardian_process import guardian_process
from tests.integration.guardian_server import SECRET
from tests.unit.guardian.kit import ALLOW_ALL, engine

from turnkeeper.acs import Keyring
from turnkeeper.client import (
    AuditRecord,
    ClientSettings,
    GuardianClient,
    HttpTransport,
    Identity,
    InProcessTransport,
    MemoryTerms,
    StdioTransport,
    Transport,
)
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.store.chain_reader import SqliteChainReader

Result = TypeVar("Result")
Work = Callable[[GuardianClient], Awaitable[Result]]

ROOT = Path(__file__).parents[2]
WIRES = ("in_process", "http", "stdio")


@dataclass
class Ends:
    """Both ends of a wire. `records` is the agent's audit log, the folder holds the Guardian's store."""

    folder: Path
    wire: str
    url: str = ""
    settings: ClientSettings = field(default_factory=ClientSettings)
    records: list[AuditRecord] = field(default_factory=list[AuditRecord])
    terms: MemoryTerms = field(default_factory=MemoryTerms)
    secret: bytes = SECRET

    def run(self, work: Work[Result]) -> Result:
        """Runs some work with a client at this end."""
        return asyncio.run(self._in_process(work) if self.wire == "in_process" else self._over(self.transport(), work))

    def transport(self) -> Transport:
        """The wire to a Guardian in a process of its own."""
        if self.wire == "http":
            return HttpTransport(self.url)
        program = ROOT / "tests" / "contract" / "stdio_guardian.py"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return StdioTransport([sys.executable, str(program), str(self.folder)], environment=environment)

    def findings(self) -> list[str]:
        """What the Guardian noted against the agent."""
        with SqliteChainReader(self.folder / "guardian.db") as reader:
            return [found.finding.code for found in reader.findings(limit=99)]

    async def _in_process(self, work: Work[Result]) -> Result:
        store = SqliteGuardianStore(self.folder / "guardian.db")
        guardian = Guardian(store=store, engine=engine(), clock=SystemClock())
        await guardian.start()
        door = Door("in_process", Keyring({"default": SECRET}))

        async def answer(body: bytes) -> bytes:
            return await guardian.answer(body, door)

        try:
            return await self._over(InProcessTransport(answer), work)
        finally:
            await guardian.stop()

    async def _over(self, transport: Transport, work: Work[Result]) -> Result:
        identity = Identity.from_secret("agent", self.secret)
        client = GuardianClient(
            transport, identity, settings=self.settings, audit=self.records.append, terms=self.terms
        )
        async with client as guardian:
            return await work(guardian)


@contextmanager
def ends(folder: Path, wire: str) -> Generator[Ends, None, None]:
    """Both ends of one wire, with a policy that allows everything."""
    (folder / "policy.yaml").write_bytes(ALLOW_ALL)
    if wire != "http":
        yield Ends(folder, wire)
        return
    with guardian_process(folder) as process:
        yield Ends(folder, wire, process.url)
