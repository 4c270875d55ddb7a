"""What must hold once everything is quiet again: each law a function that returns what breaks it.

Read from outside alone: the API's answers and stream, the receiver's inbox, workspaces, processes, the export and the
public verifier.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import psutil
from tests.acceptance.chaos.load import Room
from tests.acceptance.invariants import TERMINAL_EVENTS, check_export
from tests.acceptance.server import Json

WEBHOOK_TYPES: Final = "turn."
SEED_KEYS: Final = (
    "turn_id",
    "idempotency_key",
    "status",
    "stop_reason",
    "output",
    "result",
    "result_error",
    "metadata",
)


@dataclass(frozen=True, slots=True)
class Told:
    """A session's events and turns as the API tells them afterwards."""

    room: Room
    events: Sequence[Json]
    turns: Mapping[str, Json]
    approvals: Sequence[Json]

    def of_type(self, *types: str) -> list[Json]:
        """Its events of these types, in order."""
        return [event for event in self.events if event["type"] in types]


def one_terminal_event_per_turn(told: Told) -> Iterator[str]:
    """Exactly one terminal event per accepted turn, and the turn says the same."""
    ended = Counter(event["turn_id"] for event in told.of_type(*TERMINAL_EVENTS))
    for turn_id in told.room.accepted.values():
        if ended[turn_id] != 1:
            yield f"{turn_id} has {ended[turn_id]} terminal events"
    for event in told.of_type(*TERMINAL_EVENTS):
        turn = told.turns.get(event["turn_id"], {})
        said = {key: event["data"][key] for key in SEED_KEYS if key != "turn_id"}
        if {key: turn.get(key) for key in said} != said:
            yield f"{event['turn_id']} says something else than its {event['type']}"


def every_acceptance_is_a_turn(told: Told) -> Iterator[str]:
    """Every 202 has its turn, no key made two, and there is no turn that nobody was told of."""
    queued = [event["turn_id"] for event in told.of_type("turn.queued")]
    accepted = list(told.room.accepted.values())
    if queued != accepted:
        yield f"accepted {accepted}, queued {queued}"
    if set(told.turns) != set(accepted):
        yield f"the session lists {sorted(told.turns)}, accepted were {sorted(accepted)}"


def first_in_first_out(told: Told) -> Iterator[str]:
    """Turns reach the front in the order of acceptance; one that interrupts goes before all that wait."""
    waiting: list[str] = []
    for event in told.events:
        turn_id = event["turn_id"]
        if event["type"] == "turn.queued":
            waiting.insert(0 if event["data"]["on_busy"] == "interrupt" else len(waiting), turn_id)
        elif event["type"] == "turn.starting" and turn_id in waiting:
            if waiting[0] != turn_id:
                yield f"{turn_id} started before {waiting[0]}"
            waiting.remove(turn_id)
        elif event["type"] in TERMINAL_EVENTS and turn_id in waiting:
            waiting.remove(turn_id)


def one_active_turn(told: Told) -> Iterator[str]:
    """Between a turn's start and its end nothing of another turn starts."""
    active: str | None = None
    for event in told.events:
        if event["type"] in ("turn.starting", "turn.started", "turn.resumed", "turn.retrying"):
            if active not in (None, event["turn_id"]):
                yield f"{event['turn_id']} had {event['type']} while {active} was active"
            active = event["turn_id"]
        elif event["type"] in TERMINAL_EVENTS and event["turn_id"] == active:
            active = None
    if active is not None:
        yield f"{active} is active for ever"


def sequences_without_gaps(told: Told) -> Iterator[str]:
    """1, 2, 3 and so on."""
    numbers = [event["sequence"] for event in told.events]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"sequences are {numbers}"


def follower_saw_everything(told: Told) -> Iterator[str]:
    """Who followed the stream got every stored event once, in order, over all its reconnects."""
    stored = [(event["sequence"], event["id"]) for event in told.events]
    if told.room.seen != stored:
        lost = set(stored) - set(told.room.seen)
        yield f"the reader got {len(told.room.seen)} events of {len(stored)}, lost {sorted(lost)[:5]}"


def attempts_are_bounded(told: Told) -> Iterator[str]:
    """No turn has more attempts than it may, and none starts anew without saying so."""
    for turn_id, turn in told.turns.items():
        starts = sum(event["turn_id"] == turn_id for event in told.of_type("turn.started"))
        retries = sum(event["turn_id"] == turn_id for event in told.of_type("turn.retrying"))
        resumes = sum(event["turn_id"] == turn_id for event in told.of_type("turn.resumed"))
        if turn["attempt"] > told.room.max_attempts or starts > 1 + retries + resumes:
            yield f"{turn_id}: attempt {turn['attempt']}, {starts} starts, {retries} retries, {resumes} resumes"


def side_effects_are_bounded(told: Told, marks: Mapping[str, int]) -> Iterator[str]:
    """A tool ran at most once an attempt, an approved call at most once, and one that was reported done has run."""
    done = {event["turn_id"]: event for event in told.of_type("tool.completed") if event["data"]["status"] == "ok"}
    approved = Counter(one["turn_id"] for one in told.approvals if one["status"] == "approved")
    for key, turn_id in told.room.accepted.items():
        most = approved[turn_id] if told.room.kind == "asks" else told.turns[turn_id]["attempt"]
        if marks.get(key, 0) > most:
            yield f"{turn_id} left {marks[key]} marks, at most {most} are allowed"
        if turn_id in done and not marks.get(key):
            yield f"{turn_id} ({key}) says that its tool ran, and it left no mark: {done[turn_id]}"


def webhooks_arrived(told: Sequence[Told], taken: Mapping[str, set[bytes]], dead: Iterable[str]) -> Iterator[str]:
    """Every event that was subscribed to came at least once, always with the same bytes, or is a dead letter."""
    given_up = set(dead)
    for event in (event for one in told for event in one.events if event["type"].startswith(WEBHOOK_TYPES)):
        bodies = taken.get(event["id"], set())
        if not bodies and event["id"] not in given_up:
            yield f"{event['type']} {event['id']} never came"
        if len(bodies) > 1:
            yield f"{event['id']} came with {len(bodies)} different bodies"
        if any(json.loads(body) != event for body in bodies):
            yield f"{event['id']} came as something else than the API tells"


def budgets_hold(budgets: Sequence[Json], ledgers: Sequence[Json]) -> Iterator[str]:
    """Nothing is used beyond a limit, save by the error of the input count of single calls; none is left reserved."""
    over = sum(_beyond_reservation(call) for ledger in ledgers for call in ledger["calls"])
    for budget in budgets:
        for dimension, limit in budget["limits"].items():
            used, bound = budget["used"][dimension], over if "tokens" in dimension else 0
            if limit is not None and used > limit + bound:
                yield f"{budget['id']}: {used} of {limit} {dimension} used, the bound is {bound} more"
            if budget["reserved"][dimension]:
                yield f"{budget['id']}: {budget['reserved'][dimension]} {dimension} are reserved for nobody"


def _beyond_reservation(call: Json) -> int:
    if call["settled"] is None:
        return 0
    return max(0, call["settled"]["input_tokens"] - call["reserved"]["input_tokens"])


def record_verifies(said: str, code: int) -> Iterator[str]:
    """`turnkeeper verify` finds nothing, and the turn side was shown no head that the record lacks."""
    if not said.startswith("{"):
        yield f"verify ended with {code}: {said[:500]}"
        return
    for finding in cast("list[Json]", json.loads(said)["findings"]):
        yield f"verify: {finding}"


def windows_balance(session_id: str, exported: str) -> Iterator[str]:
    """Each answered turnStart has one turnEnd, before the next one; nothing comes after sessionEnd."""
    try:
        check_export([json.loads(line) for line in exported.splitlines()])
    except AssertionError as broken:
        yield f"{session_id}: {broken}"


def no_process_is_left(left: Iterable[psutil.Process]) -> Iterator[str]:
    """Nothing that a part started outlives it."""
    for process in left:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                yield f"process {process.pid} is left: {process.name()} {' '.join(process.cmdline())[:200]}"
        except psutil.NoSuchProcess:
            continue


def count_marks(data_dirs: Iterable[Path], session_id: str) -> Counter[str]:
    """How often each key was written into the session's workspaces, on whatever disk."""
    found: Counter[str] = Counter()
    for folder in data_dirs:
        file = folder / "workspaces" / session_id / "marks"
        if file.is_file():
            found.update(file.read_text().split())
    return found
