"""Figures of `/metrics`: from events to samples, and from samples to the text format."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.events.envelope import Event
from turnkeeper.trace.exposition import Series, render_counted, render_gauge
from turnkeeper.trace.figures import COUNTED, GAUGES, Figure, Sample, samples_of

TIMES = Figure("x_ms", "histogram", "worker", "How long.", ("warm",), (1, 10))


def event(event_type: str, **data: object) -> Event:
    """An event with this data."""
    at = datetime(2026, 12, 1, tzinfo=UTC)
    return Event("evt_1", event_type, at, "platform", "prj_1", "ses_1", "trn_1", 1, 1, json.dumps(data))


@pytest.mark.parametrize(
    ("happened", "samples"),
    [
        (event("turn.starting", queue_ms=7), [Sample("turnkeeper_queue_ms", 7)]),
        (event("turn.started", start_ms=5, warm=True), [Sample("turnkeeper_start_ms", 5, {"warm": "true"})]),
        (
            event("turn.failed", status="failed", stop_reason="timeout"),
            [Sample("turnkeeper_turns_ended_total", 1, {"status": "failed", "stop_reason": "timeout"})],
        ),
        (event("message.completed", text="a secret"), []),
    ],
)
def test_an_event_is_the_samples_that_it_says(happened: Event, samples: list[Sample]) -> None:
    assert list(samples_of(happened)) == samples


def test_a_histogram_counts_each_value_in_its_bucket_and_those_above() -> None:
    series = Series(len(TIMES.buckets))
    for value in (1, 2, 11):
        series.take(value, TIMES.buckets)
    assert render_counted(TIMES, {("true",): series}).splitlines() == [
        "# HELP x_ms How long.",
        "# TYPE x_ms histogram",
        'x_ms_bucket{warm="true",le="1"} 1',
        'x_ms_bucket{warm="true",le="10"} 2',
        'x_ms_bucket{warm="true",le="+Inf"} 3',
        'x_ms_sum{warm="true"} 14',
        'x_ms_count{warm="true"} 3',
    ]


@given(st.lists(st.floats(min_value=0, max_value=1e6)))
def test_buckets_only_grow_and_the_last_is_the_count(values: list[float]) -> None:
    plain = Figure("x", "histogram", "api", "X.", (), (0.5, 10, 1_000))
    series = Series(3)
    for value in values:
        series.take(value, plain.buckets)
    lines = [line for line in render_counted(plain, {(): series}).splitlines() if line.startswith("x_bucket")]
    counts = [int(line.rpartition(" ")[2]) for line in lines]
    assert counts == sorted(counts)
    assert counts[-1] == len(values)
    assert counts[1] == sum(value <= 10 for value in values)


def test_a_family_without_labels_is_there_before_anything_was_counted() -> None:
    assert "y_total 0" in render_counted(Figure("y_total", "counter", "api", "Y."), {})
    assert render_gauge(Figure("z", "gauge", "api", "Z."), 0.5).endswith("z 0.5\n")
    assert render_counted(TIMES, {}).count("\n") == 2


def test_names_say_their_kind_and_unit() -> None:
    for figure in (*COUNTED, *GAUGES):
        assert figure.name.startswith("turnkeeper_")
        assert figure.name.endswith("_total") == (figure.kind == "counter")
        assert bool(figure.buckets) == (figure.kind == "histogram")
