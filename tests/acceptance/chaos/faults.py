"""What is done to the platform: which faults there are, and a schedule of them that follows from the seed."""

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
from tests.acceptance.chaos.members import Member
from tests.acceptance.chaos.namespaces import Host
from tests.acceptance.chaos.topology import LEASE_MS, Platform

PAST_THE_LEASE_S: Final = LEASE_MS / 1000 + 2
SHORT_S: Final = (0.2, 2.5)
JUMPS_S: Final = (-3_600.0, -400.0, -20.0, 20.0, 200.0, 400.0, 86_400.0)
"""Some within the Guardian's skew window (300 s) and some far out of it."""
GAP_S: Final = (0.5, 3.0)
CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to one part."""

    kind: str
    target: str
    hold_s: float
    jump_s: float
    gap_s: float


@dataclass
class Faults:
    """The schedule and the hands that carry it out. `done` counts what happened, by kind and target."""

    platform: Platform
    seed: int
    done: Counter[str] = field(default_factory=Counter[str])
    complaints: list[str] = field(default_factory=list[str])
    twins_at_work: int = 0

    def kinds(self) -> list[tuple[str, str]]:
        """Every kind of fault with every part that it can happen to here."""
        names = list(self.platform.members)
        found = [(kind, name) for kind in ("kill", "stop", "clock") for name in names]
        if self.platform.database is not None:
            found += [("kill", "database"), ("kill", "database"), ("lose_news", "database"), ("twin", "two")]
        if self.platform.network.isolated:
            parts = [*names, *(["database"] if self.platform.database is not None else [])]
            found += [(kind, name) for kind in ("cut", "fill") for name in parts]
        return found

    def schedule(self, count: int) -> list[Fault]:
        """So many faults: every one once before any of them comes again."""
        chance = random.Random(f"{self.seed} faults")
        kinds: list[tuple[str, str]] = []
        while len(kinds) < count:
            round_of_all = self.kinds()
            chance.shuffle(round_of_all)
            kinds += round_of_all
        return [self._drawn(chance, kind, target) for kind, target in kinds[:count]]

    async def cause(self, faults: list[Fault]) -> None:
        """One after the other, in their order, each with its pause before."""
        deeds = self._deeds()
        for fault in faults:
            await asyncio.sleep(fault.gap_s)
            await deeds[fault.kind](fault)
            self.done[f"{fault.kind} {fault.target}"] += 1

    def _drawn(self, chance: random.Random, kind: str, target: str) -> Fault:
        # Half of the cuts and stops outlast a lease, half of them do not.
        long = chance.random() < 0.5 and kind not in ("kill", "lose_news")
        hold_s = PAST_THE_LEASE_S + chance.random() if long else chance.uniform(*SHORT_S)
        return Fault(kind, target, hold_s, chance.choice(JUMPS_S), chance.uniform(*GAP_S))

    def _deeds(self) -> dict[str, Callable[[Fault], Awaitable[None]]]:
        return {
            "kill": self._kill,
            "stop": self._stop,
            "clock": self._clock,
            "lose_news": self._lose_news,
            "twin": self._twin,
            "cut": self._cut,
            "fill": self._fill,
        }

    async def _kill(self, fault: Fault) -> None:
        """Power goes and comes back."""
        database = self.platform.database
        if fault.target == "database" and database is not None:
            await asyncio.to_thread(database.kill)
            await asyncio.sleep(fault.hold_s)
            await asyncio.to_thread(database.start)
            return
        member = self._member(fault)
        member.kill()
        await asyncio.sleep(fault.hold_s)
        await member.ready()

    async def _stop(self, fault: Fault) -> None:
        """A process that does nothing for a while, and does not know it."""
        member = self._member(fault)
        member.pause()
        await asyncio.sleep(fault.hold_s)
        member.resume()

    async def _clock(self, fault: Fault) -> None:
        """The wall clock of a host jumps, and later back."""
        member = self._member(fault)
        member.set_clock(fault.jump_s)
        await asyncio.sleep(fault.hold_s)
        member.set_clock(0)

    async def _lose_news(self, fault: Fault) -> None:
        """All who listen are cut off at once; what was told meanwhile nobody hears."""
        assert self.platform.database is not None
        with suppress(psycopg.OperationalError):
            await asyncio.to_thread(self.platform.database.end_listeners)

    async def _twin(self, fault: Fault) -> None:
        """Another worker of the same name: it is refused, unless it finds the name free because the first one's
        connection was lost. Then both work for a while, and the second one is killed.
        """
        process, log_file = self._member(fault).twin()
        try:
            while process.poll() is None and b"works as" not in log_file.read_bytes():
                await asyncio.sleep(0.1)
            if process.poll() is None:
                self.twins_at_work += 1
                await asyncio.sleep(fault.hold_s)
            elif b"another process works as" not in log_file.read_bytes():
                self.complaints.append(f"a second worker of the same name: {log_file.read_text()[-1_000:]}")
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)

    async def _cut(self, fault: Fault) -> None:
        """A host is off the network."""
        host = self._host(fault)
        self.platform.network.cut(host)
        await asyncio.sleep(fault.hold_s)
        self.platform.network.mend(host)

    async def _fill(self, fault: Fault) -> None:
        """A disk is full to the last byte, then has room again."""
        ballast = self.platform.data_dir(fault.target) / "ballast"
        await asyncio.to_thread(_fill_up, ballast)
        await asyncio.sleep(fault.hold_s)
        ballast.unlink()
        database = self.platform.database
        if fault.target == "database" and database is not None and database.died():
            await asyncio.to_thread(database.start)

    def _member(self, fault: Fault) -> Member:
        return self.platform.members[fault.target]

    def _host(self, fault: Fault) -> Host:
        database = self.platform.database
        if fault.target == "database" and database is not None:
            return database.host
        return self._member(fault).host


def _fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for size in (CHUNK_BYTES, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
