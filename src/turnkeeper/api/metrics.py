"""The figures of this process and its database in the text format of Prometheus (contract 2.12 and 17).

Pure. Gauges alone: each is true at the moment it is asked for.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from turnkeeper.clock import epoch_ms
from turnkeeper.turns.operations import QueueState

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def oldest_queued_ms(state: QueueState, now: datetime) -> int:
    """How long the oldest waiting turn has waited; 0 where none waits."""
    return 0 if state.oldest_queued_at is None else max(0, epoch_ms(now) - epoch_ms(state.oldest_queued_at))


def render_metrics(state: QueueState, now: datetime, *, open_streams: int, counters: Mapping[str, int]) -> str:
    """The page; `counters` are those of `/readyz`."""
    turns = {"queued": state.queued, "starting": state.starting, "running": state.running, "paused": state.paused}
    lines = [
        *_family("turnkeeper_turns", "Turns that are not over, by status, in all projects."),
        *(f'turnkeeper_turns{{status="{status}"}} {count}' for status, count in turns.items()),
        *_one(
            "turnkeeper_oldest_queued_ms", "How long the oldest waiting turn has waited.", oldest_queued_ms(state, now)
        ),
        *_one("turnkeeper_busy_runners", "Workers that hold a turn.", state.busy_runners),
        *_one("turnkeeper_open_streams", "Event streams open in this process.", open_streams),
        *(
            line
            for name, count in counters.items()
            for line in _one(f"turnkeeper_{name}", f"{name} of /readyz.", count)
        ),
    ]
    return "\n".join(lines) + "\n"


def _one(name: str, help_text: str, value: int) -> list[str]:
    return [*_family(name, help_text), f"{name} {value}"]


def _family(name: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
