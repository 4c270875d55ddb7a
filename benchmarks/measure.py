"""What every benchmark says: percentiles, the machine, and what the disk's own flush costs in the same run."""

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FLUSHES = 200
ENTRY_BYTES = 900


@dataclass(frozen=True)
class Row:
    """One measured thing in milliseconds."""

    name: str
    samples_ms: tuple[float, ...]
    aim: str = ""

    def quantile(self, share: float) -> float:
        """The value below which this share of the samples lies."""
        return quantile(self.samples_ms, share)


def quantile(samples: Sequence[float], share: float) -> float:
    """The value below which this share of the samples lies."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def machine() -> str:
    """The machine in one line."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    system = f"Python {platform.python_version()}, Linux {platform.release()}"
    return f"{os.cpu_count()} cores, {model}, {system}, load {os.getloadavg()[0]:.1f}"


def flush_cost(folder: Path, *, count: int = FLUSHES) -> Row:
    """Append an entry's worth of bytes and `fdatasync`, the floor under every durable answer."""
    samples: list[float] = []
    target = folder / "flush-probe"
    with target.open("ab", buffering=0) as file:
        for _ in range(count):
            begin = time.perf_counter()
            file.write(b"x" * ENTRY_BYTES)
            os.fdatasync(file.fileno())
            samples.append((time.perf_counter() - begin) * 1000)
    target.unlink()
    return Row("append 900 bytes + fdatasync (the disk)", tuple(samples))


def render(rows: Sequence[Row], baseline: Row) -> str:
    """A Markdown table; the last columns are the p50 against the baseline's and whether the aim was met."""
    lines = [
        f"Machine: {machine()}",
        "",
        "| what | n | p50 ms | p95 ms | p99 ms | p50 / baseline | aim |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in (baseline, *rows):
        if not row.samples_ms:
            lines.append(f"| {row.name} | 0 | not measured | | | | {row.aim} |")
            continue
        p50, p95, p99 = (row.quantile(share) for share in (0.5, 0.95, 0.99))
        ratio = p50 / baseline.quantile(0.5)
        lines.append(
            f"| {row.name} | {len(row.samples_ms)} | {p50:.2f} | {p95:.2f} | {p99:.2f} | {ratio:.1f} | {row.aim} |"
        )
    return "\n".join(lines)
