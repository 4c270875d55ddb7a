"""The figures of `/metrics` (contract 17): their names, labels and buckets, and which of them an event is.

Pure. Answers for a bounded set of labels: every value is a word of the contract. Never has an id in a label.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from turnkeeper.events.catalogue import TERMINAL_TYPES
from turnkeeper.events.envelope import Event

Kind: TypeAlias = Literal["histogram", "counter", "gauge"]
Process: TypeAlias = Literal["api", "worker", "both"]

FAST_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
SLOW_MS: Final = (10, 25, 50, 100, 150, 250, 500, 1_000, 2_000, 5_000, 10_000, 40_000, 120_000, 600_000)
RATIOS: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Figure:
    """One family. `where` is the process that has it; `serve` is both."""

    name: str
    kind: Kind
    where: Process
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def is_in(self, process: Process) -> bool:
        """Whether a process has it."""
        return process == "both" or self.where in {process, "both"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One observation of a histogram, or one more of a counter."""

    name: str
    value: float = 1
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


ACCEPT: Final = "turnkeeper_accept_ms"
QUEUE: Final = "turnkeeper_queue_ms"
START: Final = "turnkeeper_start_ms"
TO_STREAM: Final = "turnkeeper_event_commit_to_stream_ms"
TO_WEBHOOK: Final = "turnkeeper_event_commit_to_webhook_ms"
CANCEL: Final = "turnkeeper_cancel_to_dead_ms"
RECOVERY: Final = "turnkeeper_recovery_ms"
OVERSHOOT: Final = "turnkeeper_budget_overshoot_ratio"
ENDED: Final = "turnkeeper_turns_ended_total"
DECISIONS: Final = "turnkeeper_guardian_decisions_total"
RUNNER_REFUSALS: Final = "turnkeeper_runner_refusals_total"

COUNTED: Final = (
    Figure(ACCEPT, "histogram", "api", "From the request for a turn to its 202.", buckets=FAST_MS),
    Figure(QUEUE, "histogram", "worker", "From a turn's 202 to its leaving the queue.", buckets=SLOW_MS),
    Figure(START, "histogram", "worker", "How long a turn's sandbox took to be ready.", ("warm",), SLOW_MS),
    Figure(TO_STREAM, "histogram", "api", "From an event's commit to an open stream.", buckets=FAST_MS),
    Figure(TO_WEBHOOK, "histogram", "worker", "From an event's commit to the answer of the receiver.", (), SLOW_MS),
    Figure(CANCEL, "histogram", "worker", "From the wish to stop a turn to the end of its boxes.", buckets=SLOW_MS),
    Figure(RECOVERY, "histogram", "worker", "From the loss of a worker being noticed to its turn's end.", (), SLOW_MS),
    Figure(OVERSHOOT, "histogram", "worker", "Share of a turn's own budget that it was over by.", buckets=RATIOS),
    Figure(ENDED, "counter", "both", "Turns that ended.", ("status", "stop_reason")),
    Figure(DECISIONS, "counter", "worker", "Steps that the Guardian answered.", ("hook", "disposition")),
    Figure(RUNNER_REFUSALS, "counter", "worker", "Calls of runners elsewhere that were refused.", ("code",)),
)
"""What is counted as it happens, each process for itself and since its start."""

GAUGES: Final = (
    Figure("turnkeeper_turns", "gauge", "api", "Turns that are not over, in all projects.", ("status",)),
    Figure("turnkeeper_oldest_queued_ms", "gauge", "api", "How long the oldest waiting turn has waited."),
    Figure("turnkeeper_busy_runners", "gauge", "api", "Workers that hold a turn."),
    Figure("turnkeeper_open_streams", "gauge", "api", "Event streams open in this process."),
    Figure("turnkeeper_dead_letters", "gauge", "api", "Steps that the Guardian has refused for good, up to 100."),
    Figure("turnkeeper_stuck_turns", "gauge", "api", "Turns that run without a sign of life; has to be 0."),
    Figure("turnkeeper_outbox_depth", "gauge", "api", "What waits to be told.", ("to",)),
    Figure("turnkeeper_outbox_age_ms", "gauge", "api", "How long the oldest of it has waited.", ("to",)),
    Figure("turnkeeper_worker_turns", "gauge", "worker", "Turns that this process holds."),
    Figure("turnkeeper_orphan_sandboxes", "gauge", "worker", "Boxes that a crash left on this host; has to be 0."),
)
"""What is true at the moment of asking. Those of the api are of the whole database, so one process tells them all."""

_KINDS_BEFORE_END: Final = frozenset({"turn.starting", "turn.started"})


def samples_of(event: Event) -> Iterator[Sample]:
    """What an event says that was just committed."""
    if event.type not in TERMINAL_TYPES and event.type not in _KINDS_BEFORE_END:
        return
    data: Mapping[str, Any] = json.loads(event.data)
    if event.type == "turn.starting":
        yield Sample(QUEUE, data["queue_ms"])
    elif event.type == "turn.started":
        yield Sample(START, data["start_ms"], {"warm": "true" if data["warm"] else "false"})
    else:
        yield Sample(ENDED, labels={"status": data["status"], "stop_reason": data["stop_reason"]})
