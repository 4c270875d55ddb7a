"""The escape suite: every attempt of the tables, in real boxes, and without a box where that is harmless."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.escape.attempt import BOTH, Attempt, Place
from tests.escape.rig import GROUPS, lacks, results_of
from tests.escape.scenarios import SCENARIOS, Scenario

from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.unsafe_none import UnsafeNoneDriver

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]

ATTEMPTS = [attempt for group in GROUPS for attempt in group.attempts]
SHARED = [attempt for attempt in ATTEMPTS if attempt.limits is None]
ALONE = [attempt for attempt in ATTEMPTS if attempt.limits is not None]
OUTSIDE = [attempt for attempt in ATTEMPTS if attempt.works_outside]

Results = Callable[[Place], Mapping[str, str]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What came of all attempts that can share a box, by their texts; each kind of box is started once."""
    known: dict[Place, Mapping[str, str]] = {}

    def of(place: Place) -> Mapping[str, str]:
        if place not in known:
            can = [attempt for attempt in SHARED if place in attempt.places and not lacks(attempt.needs)]
            found = results_of(place, BwrapDriver, tmp_path_factory.mktemp(place), can)
            known[place] = {attempt.tries: result for attempt, result in zip(can, found, strict=True)}
        return known[place]

    return of


def pairs(attempts: list[Attempt]) -> pytest.MarkDecorator:
    """One test for each attempt in each kind of box that it is about."""
    chosen = [(place, attempt) for attempt in attempts for place in BOTH if place in attempt.places]
    return pytest.mark.parametrize(
        ("place", "attempt"), chosen, ids=[f"{place}-{attempt.tries}" for place, attempt in chosen]
    )


@pairs(SHARED)
def test_an_attempt_ends_as_the_page_says(results: Results, place: Place, attempt: Attempt) -> None:
    if lacks(attempt.needs):
        pytest.skip(lacks(attempt.needs))
    assert results(place)[attempt.tries] in attempt.outcomes


@pairs(ALONE)
def test_an_attempt_to_use_the_machine_up_ends_as_the_page_says(tmp_path: Path, place: Place, attempt: Attempt) -> None:
    if lacks(attempt.needs):
        pytest.skip(lacks(attempt.needs))
    (result,) = results_of(place, BwrapDriver, tmp_path, [attempt])
    assert result in attempt.outcomes


def test_without_a_box_the_same_attempts_work(tmp_path: Path) -> None:
    found = results_of("loop", UnsafeNoneDriver, tmp_path, OUTSIDE)
    failed = [
        (attempt.tries, result) for attempt, result in zip(OUTSIDE, found, strict=True) if result in attempt.outcomes
    ]
    assert failed == []


def test_no_two_attempts_say_the_same() -> None:
    texts = [attempt.tries for attempt in ATTEMPTS]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.tries)
def test_what_is_seen_from_the_host_comes_to_nothing(tmp_path: Path, scenario: Scenario) -> None:
    async def within() -> bool:
        return await asyncio.wait_for(scenario.held(tmp_path), 240)

    assert asyncio.run(within())
