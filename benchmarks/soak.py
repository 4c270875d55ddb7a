"""The Guardian's memory over many steps of many sessions: it has to stay where it is.

`python -m benchmarks.soak [--steps N] [--sessions N]`. Sessions open, take their steps and are left, as agents do that
are killed; each has turns, provenance and findings of its own, so that whatever is kept by a caller's ids would grow.
The measure is what the process holds once its caches are full (a quarter of the way) against the end.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.guardian_load import KEYRING, Script, check

from turnkeeper.cli.listening import spare_collector
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.shipped import default_rules
from turnkeeper.store.chain import SqliteGuardianStore

AT_ONCE = 64
READINGS = 20
WARM_AFTER = READINGS // 4
ALLOWED_GROWTH_MB = 24.0


@dataclass(frozen=True)
class Reading:
    """What the process held after so many steps."""

    sessions: int
    steps: int
    resident_mb: float


def main() -> int:
    """Prints a reading at each twentieth; 1 where memory grew by more than the allowance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--sessions", type=int, default=20_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        readings = asyncio.run(soak(Path(name), chosen.steps, chosen.sessions))
    growth = readings[-1].resident_mb - readings[WARM_AFTER - 1].resident_mb
    print(f"\nFrom {readings[WARM_AFTER - 1].steps:,} steps to the end: {growth:+.1f} MB", flush=True)
    return 0 if growth <= ALLOWED_GROWTH_MB else 1


async def soak(folder: Path, steps: int, sessions: int) -> list[Reading]:
    """Takes all steps, `AT_ONCE` sessions at a time, each session's one after the other."""
    guardian = Guardian(
        store=SqliteGuardianStore(folder / "guardian.db"), engine=CelEngine(default_rules()), clock=SystemClock()
    )
    await guardian.start()
    spare_collector()
    print("| sessions | steps | steps/s | resident MB |\n| ---: | ---: | ---: | ---: |", flush=True)
    readings: list[Reading] = []
    try:
        for number in range(1, READINGS + 1):
            begin = time.perf_counter()
            opened = iter(range(sessions // READINGS))
            await asyncio.gather(*(_agents(guardian, opened, steps // sessions) for _ in range(AT_ONCE)))
            elapsed = time.perf_counter() - begin
            readings.append(Reading(number * sessions // READINGS, number * steps // READINGS, resident_mb()))
            print(f"| {_row(readings[-1], steps / READINGS / elapsed)} |", flush=True)
        return readings
    finally:
        await guardian.stop()


async def _agents(guardian: Guardian, opened: Iterator[int], steps: int) -> None:
    """Agents one after the other, until all of this round's sessions are taken."""
    door = Door("http", KEYRING)
    for _ in opened:
        script = Script(steps)
        await guardian.answer(script.hello, door)
        for body in script.steps:
            check(await guardian.answer(body, door))


def resident_mb() -> float:
    """Memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def _row(reading: Reading, per_second: float) -> str:
    return f"{reading.sessions:,} | {reading.steps:,} | {per_second:,.0f} | {reading.resident_mb:.1f}"


if __name__ == "__main__":
    sys.exit(main())
