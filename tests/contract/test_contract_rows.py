"""The tables of the turn contract (2.6, 5, 6, 8, 9 and 10): each row is shown by tests, or says why it is not."""

from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.citations import Entry, missing_tests, read_entries
from tests.integration.api_door import Api, serve
from tests.integration.test_api_openapi import operations
from tests.unit.turns.test_lifecycle import CONTRACT

from turnkeeper.events.catalogue import EPHEMERAL_TYPES, EVENT_TYPES
from turnkeeper.turns.lifecycle import TRANSITIONS
from turnkeeper.turns.model import StopReason

TABLES: Final = yaml.safe_load(Path(__file__).with_name("contract_rows.yaml").read_text())
NAMES: Final = ("lifecycle", "endings", "idempotency", "budgets", "files", "events")
FAMILIES: Final = ("session.", "message.", "reasoning.", "artifact.", "file.", "skill.")
"""Events that the table of events has, all of them; those of turns are in the table of the lifecycle."""
ENDED: Final = "29"
"""The row about what has ended: it is no row of the table, because nothing happens there."""


def entries(table: str) -> tuple[Entry, ...]:
    return read_entries(TABLES[table], "text")


@pytest.mark.parametrize("table", NAMES)
def test_every_row_names_tests_that_exist_or_says_why_there_are_none(table: str) -> None:
    assert entries(table)
    assert not missing_tests(entries(table))


def test_every_row_of_the_lifecycle_table_is_shown() -> None:
    rows = {entry.id for entry in entries("lifecycle")}
    assert rows == {row.row for row in TRANSITIONS.values()} | {ENDED}
    assert rows == {line[0] for line in CONTRACT} | {ENDED}


def test_every_reason_to_stop_is_shown() -> None:
    answered = {StopReason.END_TURN, StopReason.BUDGET_REACHED}
    shown = {entry.id.partition("-")[2] for entry in entries("endings")} - {""}
    assert shown == {str(reason) for reason in StopReason} - {str(reason) for reason in answered}


def test_every_case_of_an_answer_is_shown() -> None:
    assert {f"C{number}" for number in range(1, 11)} <= {entry.id for entry in entries("endings")}


def test_every_event_of_its_families_is_shown() -> None:
    types = {each for each in (*EVENT_TYPES, *EPHEMERAL_TYPES) if each.startswith(FAMILIES)}
    assert {entry.id for entry in entries("events")} == types


def test_every_operation_on_files_and_artifacts_is_shown(tmp_path: Path) -> None:
    found: set[str] = set()

    async def work(api: Api) -> None:
        for path, method, _ in operations(await api.seen("/openapi.json")):
            if {"files", "artifacts"} & set(path.split("/")):
                found.add(f"{method.upper()} {path}")

    serve(tmp_path, work)
    assert {entry.id for entry in entries("files")} == found


@pytest.mark.parametrize(
    "row",
    [
        {"id": "X", "text": "t"},
        {"id": "X", "tests": ["a"]},
        {"id": "X", "text": "t", "tests": []},
        {"id": "X", "text": "t", "tests": ["a"], "test": ["b"]},
    ],
)
def test_a_row_that_says_nothing_or_too_much_is_refused(row: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="X"):
        read_entries([row], "text")


def test_a_test_that_is_not_there_is_found_out() -> None:
    found = read_entries([{"id": "X", "text": "t", "tests": ["tests/no.py::test_nothing"]}], "text")
    assert missing_tests(found) == {"tests/no.py::test_nothing": "X"}
