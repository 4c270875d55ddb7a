"""One process's figures: counted where they happen, by the processes that have them."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from starlette.responses import Response
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from turnkeeper.events.webhooks.ports import Answer
from turnkeeper.ids import RandomIds
from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.turns.measures import NoMeasures, WorkerMeasures
from turnkeeper.wiring.metrics import MeasuredSender, Metrics, measured, page_of


def test_a_decision_is_counted_by_hook_and_disposition() -> None:
    metrics = Metrics(FakeClock(), process="both")
    metrics.decided("steps/toolCallRequest", "deny")
    metrics.undecided("steps/turnStart")
    page = metrics.render()
    assert 'turnkeeper_guardian_decisions_total{hook="toolCallRequest",disposition="deny"} 1' in page
    assert 'turnkeeper_guardian_decisions_total{hook="turnStart",disposition="none"} 1' in page


def test_a_refused_call_of_a_runner_is_counted_by_its_code() -> None:
    metrics = Metrics(FakeClock(), process="worker")
    metrics.refused_runner("stale_attempt")
    assert 'turnkeeper_runner_refusals_total{code="stale_attempt"} 1' in metrics.render()


def test_a_process_has_its_own_figures_and_no_others() -> None:
    clock = FakeClock()
    api, worker = Metrics(clock, process="api").render(), Metrics(clock, process="worker").render()
    assert "turnkeeper_accept_ms" in api
    assert "turnkeeper_accept_ms" not in worker
    assert "turnkeeper_queue_ms" in worker
    assert "turnkeeper_queue_ms" not in api


def test_the_time_to_a_stream_is_counted_from_the_commit() -> None:
    clock = FakeClock()
    metrics = Metrics(clock, process="api")
    metrics.streamed(clock.now() - timedelta(milliseconds=30))
    assert 'turnkeeper_event_commit_to_stream_ms_bucket{le="25"} 0' in metrics.render()
    assert 'turnkeeper_event_commit_to_stream_ms_bucket{le="50"} 1' in metrics.render()


class Receiver:
    """Takes everything that is posted."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """204."""
        return Answer(204, None, None, None)


def test_only_the_first_try_of_a_delivery_is_counted() -> None:
    clock = FakeClock()
    metrics, event_id = Metrics(clock, process="worker"), RandomIds(clock).new("evt")
    clock.advance(40)

    async def main() -> None:
        sender = MeasuredSender(Receiver(), metrics)
        for attempt in ("1", "2"):
            await sender.post("https://x", {"webhook-id": event_id, "webhook-attempt": attempt}, b"")

    asyncio.run(main())
    assert "turnkeeper_event_commit_to_webhook_ms_sum 40" in metrics.render()
    assert "turnkeeper_event_commit_to_webhook_ms_count 1" in metrics.render()


def test_only_turns_that_were_accepted_count_as_accepted() -> None:
    metrics = Metrics(FakeClock(), process="api")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status = 202 if scope["path"].startswith("/v1/sessions") else 409
        await Response(status_code=status)(scope, receive, send)

    client = TestClient(measured(app, metrics, FakeClock()))
    for path in ("/v1/sessions/ses_1/turns", "/v1/turns", "/v1/sessions/ses_1/close"):
        client.post(path)
    assert "turnkeeper_accept_ms_count 1" in metrics.render()


def test_the_page_of_a_worker_is_at_one_path_and_reads_its_gauges_then() -> None:
    metrics, turns = Metrics(FakeClock(), process="worker"), [1]
    metrics.watch({"turnkeeper_worker_turns": lambda: turns[0]})
    client = TestClient(page_of(metrics))
    turns[0] = 3
    assert "turnkeeper_worker_turns 3\n" in client.get("/metrics").text
    assert client.get("/").status_code == client.post("/metrics").status_code == 404


def test_whoever_counts_nothing_may_stand_where_figures_are_wanted() -> None:
    nobody: WorkerMeasures = NoMeasures()
    nobody.decided("steps/turnStart", "allow")
    nobody.undecided("steps/turnStart")
    nobody.stopped(1)
    nobody.recovered(1)
    nobody.overshot(0)
