"""What paused turns hold of a server: nothing but rows.

`python -m benchmarks.parked [--turns 1000]` starts `turnkeeper serve` on an empty data dir and again with so many
paused turns in it, lets it rest, and prints its processes, threads, descriptors, memory and processor time both times.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.crowd import Crowd, fill
from benchmarks.measure import machine
from benchmarks.turn_times import processor_ms
from tests.acceptance.server import NO_WARM_BOXES, Server

TURNS = 1_000
REST_S = 20.0
"""Long enough for every chore to have come around a few times."""


def main() -> int:
    """Measures both and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS, help="how many turns are paused")
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as name:
        # The turns are of the platform's store alone, so the model that they would ask is never asked.
        server = Server(Path(name), NO_WARM_BOXES)
        with server:
            empty = dict(held_by(server))
        fill(f"sqlite:///{server.data_dir}/turnkeeper.db", Crowd(0, 0, turns))
        with server:
            paused = server.get("/v1/admin/queue")["paused"]
            full = dict(held_by(server))
    rows = [f"| {what} | {empty[what]} | {full[what]} |" for what in empty]
    head = (
        f"Machine: {machine()}\n\n| of `turnkeeper serve` | no turn | {paused:,} paused turns |\n| --- | ---: | ---: |"
    )
    print("\n".join([head, *rows]))
    return 0


def held_by(server: Server) -> Iterator[tuple[str, str]]:
    """What the server's process holds after it has rested, by name."""
    begin = processor_ms(server.pid)
    time.sleep(REST_S)
    spent = processor_ms(server.pid) - begin
    place = Path(f"/proc/{server.pid}")
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    yield "processes below it", str(len(server.descendants()))
    yield "threads", status["Threads"].strip()
    yield "open descriptors", str(len(list((place / "fd").iterdir())))
    yield "resident MB", f"{int(status['VmRSS'].split()[0]) / 1024:.0f}"
    yield "processor time, ms a second", f"{spent / REST_S:.1f}"


if __name__ == "__main__":
    sys.exit(main())
