"""The figures of one process, counted where they happen and shown to Prometheus (contract 17).

Answers for one registry per process and for joining it to the store, the worker, the webhooks and the API, none of
which knows of it. Names and labels are those of `trace.figures`.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnkeeper.acs import hook_name
from turnkeeper.api.metrics import MEDIA_TYPE
from turnkeeper.clock import Clock, epoch_ms
from turnkeeper.events.envelope import Event
from turnkeeper.events.webhooks.ports import Answer, Sender
from turnkeeper.ids import made_at_ms
from turnkeeper.trace import figures
from turnkeeper.trace.exposition import Series, render_counted, render_gauge
from turnkeeper.trace.figures import COUNTED, GAUGES, Process, Sample, samples_of

ACCEPTED: Final = 202


class Metrics:
    """What one process has counted. Safe from any thread."""

    def __init__(self, clock: Clock, *, process: Process) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._here = {figure.name: figure for figure in COUNTED if figure.is_in(process)}
        self._counted = {name: dict[tuple[str, ...], Series]() for name in self._here}
        self._gauges: dict[str, Callable[[], float]] = {}

    def committed(self, events: Iterable[Event]) -> None:
        """Events that this process has just committed."""
        for event in events:
            for sample in samples_of(event):
                self._take(sample)

    def accepted(self, accept_ms: float) -> None:
        """A turn was accepted."""
        self._take(Sample(figures.ACCEPT, accept_ms))

    def streamed(self, committed_at: datetime) -> None:
        """An event went to a stream that was open when it was committed."""
        self._take(Sample(figures.TO_STREAM, self._since(epoch_ms(committed_at))))

    def delivered(self, event_id: str) -> None:
        """A receiver has answered to the first try of an event."""
        self._take(Sample(figures.TO_WEBHOOK, self._since(made_at_ms(event_id))))

    def decided(self, method: str, decision: str) -> None:
        """A step was answered."""
        self._take(Sample(figures.DECISIONS, labels={"hook": hook_name(method), "disposition": decision}))

    def undecided(self, method: str) -> None:
        """No answer came for a step in its time."""
        self.decided(method, "none")

    def refused_runner(self, code: str) -> None:
        """A call of a runner elsewhere was refused."""
        self._take(Sample(figures.RUNNER_REFUSALS, labels={"code": code}))

    def stopped(self, cancel_to_dead_ms: int) -> None:
        """A turn that had been asked to stop is over, and its boxes are gone."""
        self._take(Sample(figures.CANCEL, cancel_to_dead_ms))

    def recovered(self, recovery_ms: int) -> None:
        """A turn whose worker was lost has its ending, or waits for its next attempt."""
        self._take(Sample(figures.RECOVERY, recovery_ms))

    def overshot(self, ratio: float) -> None:
        """A turn ended at its own budget."""
        self._take(Sample(figures.OVERSHOOT, ratio))

    def watch(self, gauges: Mapping[str, Callable[[], float]]) -> None:
        """Gauges that are read whenever the page is, by their names."""
        self._gauges.update(gauges)

    def render(self) -> str:
        """Everything counted and watched, in the text format of Prometheus."""
        watched = [
            render_gauge(figure, self._gauges[figure.name]()) for figure in GAUGES if figure.name in self._gauges
        ]
        with self._lock:
            counted = [render_counted(self._here[name], series) for name, series in self._counted.items()]
        return "".join([*watched, *counted])

    def _since(self, at_ms: int) -> int:
        return max(0, epoch_ms(self._clock.now()) - at_ms)

    def _take(self, sample: Sample) -> None:
        figure = self._here.get(sample.name)
        if figure is None:
            return
        labels = tuple(sample.labels[name] for name in figure.labels)
        with self._lock:
            series = self._counted[sample.name].setdefault(labels, Series(len(figure.buckets)))
            series.take(sample.value, figure.buckets)


class MeasuredSender:
    """A sender of webhooks that says how long the first try of an event took from its commit."""

    def __init__(self, sender: Sender, metrics: Metrics) -> None:
        self._sender = sender
        self._metrics = metrics

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer, whatever it is."""
        answer = await self._sender.post(url, headers, body)
        if answer.status is not None and headers.get("webhook-attempt") == "1":
            self._metrics.delivered(headers["webhook-id"])
        return answer


def measured(app: ASGIApp, metrics: Metrics, clock: Clock) -> ASGIApp:
    """The application; how long a turn took to be accepted is counted."""

    async def measure(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not _is_post(scope["path"]):
            await app(scope, receive, send)
            return
        began_ms = clock.monotonic_ms()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == ACCEPTED:
                metrics.accepted(clock.monotonic_ms() - began_ms)
            await send(message)

        await app(scope, receive, watched)

    return measure


def page_of(metrics: Metrics) -> ASGIApp:
    """The page of a process without an API, at `/metrics` and nowhere else."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        known = scope["path"] == "/metrics" and scope["method"] == "GET"
        response = Response(metrics.render(), media_type=MEDIA_TYPE) if known else PlainTextResponse("", 404)
        await response(scope, receive, send)

    return answer


def _is_post(path: str) -> bool:
    return path == "/v1/turns" or (path.startswith("/v1/sessions/") and path.endswith("/turns")) or _is_retry(path)


def _is_retry(path: str) -> bool:
    return path.startswith("/v1/turns/") and path.endswith("/retry")
