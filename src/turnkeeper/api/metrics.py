"""The figures of this process and its database in the text format of Prometheus (contract 2.12 and 17).

Pure. Renders the gauges, each true at the moment it is asked for; what is counted as it happens is handed in.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol

from turnkeeper.clock import epoch_ms
from turnkeeper.turns.operations import Backlog, QueueState

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class ApiMeasures(Protocol):
    """Where the API says what it saw, and what was counted of it."""

    def streamed(self, committed_at: datetime) -> None:
        """An event went to a stream that was open when it was committed."""
        ...

    def render(self) -> str:
        """Everything that was counted, in the text format."""
        ...


class NoMeasures:
    """Nobody counts."""

    def streamed(self, committed_at: datetime) -> None:
        """Drops it."""

    def render(self) -> str:
        """Nothing."""
        return ""


def oldest_queued_ms(state: QueueState, now: datetime) -> int:
    """How long the oldest waiting turn has waited; 0 where none waits."""
    return _age_ms(state.oldest_queued_at, now)


def render_metrics(
    state: QueueState, backlog: Backlog, now: datetime, *, open_streams: int, counters: Mapping[str, int]
) -> str:
    """The gauges; `counters` are those of `/readyz`."""
    turns = {"queued": state.queued, "starting": state.starting, "running": state.running, "paused": state.paused}
    depths = {"guardian": backlog.pending_steps, "webhooks": backlog.pending_deliveries}
    ages = {
        "guardian": _age_ms(backlog.oldest_step_at, now),
        "webhooks": _age_ms(backlog.oldest_delivery_at, now),
    }
    lines = [
        *_by("turnkeeper_turns", "Turns that are not over, by status, in all projects.", "status", turns),
        *_one(
            "turnkeeper_oldest_queued_ms", "How long the oldest waiting turn has waited.", oldest_queued_ms(state, now)
        ),
        *_one("turnkeeper_busy_runners", "Workers that hold a turn.", state.busy_runners),
        *_one("turnkeeper_stuck_turns", "Turns that run without a sign of life.", backlog.stuck_turns),
        *_by("turnkeeper_outbox_depth", "What waits to be told, by whom.", "to", depths),
        *_by("turnkeeper_outbox_age_ms", "How long the oldest of it has waited.", "to", ages),
        *_one("turnkeeper_open_streams", "Event streams open in this process.", open_streams),
        *(
            line
            for name, count in counters.items()
            for line in _one(f"turnkeeper_{name}", f"{name} of /readyz.", count)
        ),
    ]
    return "\n".join(lines) + "\n"


def _age_ms(since: datetime | None, now: datetime) -> int:
    return 0 if since is None else max(0, epoch_ms(now) - epoch_ms(since))


def _by(name: str, help_text: str, label: str, values: Mapping[str, int]) -> list[str]:
    return [*_family(name, help_text), *(f'{name}{{{label}="{word}"}} {value}' for word, value in values.items())]


def _one(name: str, help_text: str, value: int) -> list[str]:
    return [*_family(name, help_text), f"{name} {value}"]


def _family(name: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
