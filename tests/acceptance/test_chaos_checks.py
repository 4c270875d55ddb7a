"""The laws that chaos runs are held to do see what breaks them."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from tests.acceptance.chaos import checks
from tests.acceptance.chaos.faults import Faults
from tests.acceptance.chaos.load import Room
from tests.acceptance.chaos.namespaces import Network
from tests.acceptance.chaos.topology import Platform
from tests.acceptance.server import Json

ENDED: Json = {
    "idempotency_key": None,
    "status": "completed",
    "stop_reason": "end_turn",
    "output": {"text": ""},
    "result": None,
    "result_error": None,
    "metadata": {},
}


def event(number: int, turn_id: str, kind: str, **data: object) -> Json:
    """An event of a session."""
    return {"id": f"evt_{number}", "sequence": number, "turn_id": turn_id, "type": kind, "data": data}


def whole() -> checks.Told:
    """Two turns, one after the other, as they should be; the first one left its mark."""
    events = [
        event(1, "a", "turn.queued", on_busy="enqueue"),
        event(2, "b", "turn.queued", on_busy="enqueue"),
        event(3, "a", "turn.starting"),
        event(4, "a", "turn.started"),
        event(5, "a", "tool.completed", status="ok"),
        event(6, "a", "turn.completed", **ENDED),
        event(7, "b", "turn.starting"),
        event(8, "b", "turn.started"),
        event(9, "b", "turn.completed", **ENDED),
    ]
    room = Room("once", "ses", [], 1, {"key-a": "a", "key-b": "b"}, [(one["sequence"], one["id"]) for one in events])
    turns = {turn_id: {"id": turn_id, "attempt": 1, **ENDED} for turn_id in ("a", "b")}
    return checks.Told(room, events, turns, [])


def laws(told: checks.Told) -> set[str]:
    """The names of the laws that say something is broken."""
    marks = {"key-a": 1}
    checked: dict[str, Iterable[str]] = {
        law.__name__: law(told)
        for law in (
            checks.one_terminal_event_per_turn,
            checks.every_acceptance_is_a_turn,
            checks.first_in_first_out,
            checks.one_active_turn,
            checks.sequences_without_gaps,
            checks.follower_saw_everything,
            checks.attempts_are_bounded,
        )
    }
    checked["side_effects_are_bounded"] = checks.side_effects_are_bounded(told, marks)
    return {name for name, said in checked.items() if list(said)}


def without(number: int) -> Callable[[list[Json]], list[Json]]:
    """The events, but not this one."""
    return lambda events: [one for one in events if one["sequence"] != number]


def retold(*order: int) -> Callable[[list[Json]], list[Json]]:
    """The events in another order, numbered anew."""
    return lambda events: [{**events[old - 1], "sequence": new} for new, old in enumerate(order, start=1)]


def test_a_session_as_it_should_be_breaks_no_law() -> None:
    assert laws(whole()) == set()


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (without(6), "one_terminal_event_per_turn"),
        (without(2), "every_acceptance_is_a_turn"),
        (without(4), "sequences_without_gaps"),
        (without(8), "follower_saw_everything"),
        (retold(1, 2, 7, 8, 9, 3, 4, 5, 6), "first_in_first_out"),
        (retold(1, 2, 3, 7, 4, 5, 6, 8, 9), "one_active_turn"),
        (retold(1, 2, 3, 4, 4, 5, 6, 7, 8, 9), "attempts_are_bounded"),
    ],
)
def test_a_spoiled_session_breaks_the_law_that_forbids_it(spoil: Callable[[list[Json]], list[Json]], law: str) -> None:
    told = whole()
    spoiled = checks.Told(told.room, spoil(list(copy.deepcopy(told.events))), told.turns, [])
    assert law in laws(spoiled)


@pytest.mark.parametrize("marks", [{}, {"key-a": 2}])
def test_a_tool_that_ran_twice_or_not_at_all_is_seen(marks: dict[str, int]) -> None:
    assert list(checks.side_effects_are_bounded(whole(), marks))


def delivered(*bodies: Json) -> Iterator[str]:
    """What is said where these bodies came for the first event of a session."""
    first = checks.Told(whole().room, [event(1, "a", "turn.queued")], {}, [])
    return checks.webhooks_arrived([first], {"evt_1": {json.dumps(body).encode() for body in bodies}}, ())


def test_a_webhook_that_never_came_or_came_as_another_is_seen() -> None:
    right = event(1, "a", "turn.queued")
    assert not list(delivered(right))
    assert list(delivered())
    assert list(delivered({**right, "turn_id": "b"}))
    assert list(delivered(right, {**right, "sequence": 2}))


@pytest.mark.parametrize(("used", "settled", "broken"), [(100, 60, False), (110, 60, False), (111, 60, True)])
def test_a_budget_may_be_overspent_by_the_error_of_the_input_count_and_no_further(
    used: int, settled: int, *, broken: bool
) -> None:
    limits = {"max_total_tokens": 100}
    budget: Json = {"id": "bud", "limits": limits, "used": {"max_total_tokens": used}}
    ledger: Json = {"calls": [{"reserved": {"input_tokens": 50}, "settled": {"input_tokens": settled}}]}
    whole_budget = {**budget, "reserved": {"max_total_tokens": 0}}
    assert bool(list(checks.budgets_hold([whole_budget], [ledger]))) is broken


def test_a_verifier_that_finds_something_is_heard() -> None:
    assert not list(checks.record_verifies('{"findings": []}', 0))
    assert list(checks.record_verifies('{"findings": [{"code": "entry_missing"}]}', 1))


def test_a_schedule_follows_from_its_seed_and_has_every_fault_before_one_comes_again(tmp_path: Path) -> None:
    platform = Platform("sqlite", tmp_path, Network(isolated=False))
    platform.members = dict.fromkeys(("guardian", "serve"))  # pyright: ignore[reportAttributeAccessIssue]
    kinds = Faults(platform, 1).kinds()
    schedule = Faults(platform, 1).schedule(len(kinds))
    assert sorted((fault.kind, fault.target) for fault in schedule) == sorted(kinds)
    assert schedule == Faults(platform, 1).schedule(len(kinds))
    assert schedule != Faults(platform, 2).schedule(len(kinds))
