"""Lists of what must hold and the tests that show it, read strictly.

Answers for entries that say something: each names tests that exist, or the reason why there are none.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its id, what it says besides, its tests by node id, and why there are none."""

    id: str
    texts: dict[str, str]
    tests: tuple[str, ...]
    why: str


def read_entries(rows: list[dict[str, Any]], *texts: str) -> tuple[Entry, ...]:
    """The entries of a list, which have exactly these texts.

    Raises `ValueError` for one that lacks a text, has members that mean nothing, has neither tests nor a reason, or
    has the id of another.
    """
    entries = tuple(_entry(row, texts) for row in rows)
    if len({entry.id for entry in entries}) != len(entries):
        raise ValueError("two entries have one id")
    return entries


def missing_tests(entries: tuple[Entry, ...]) -> dict[str, str]:
    """Tests that entries name and that are not there, with the id of one that names it."""
    return {test: entry.id for entry in entries for test in entry.tests if test not in known_tests()}


@cache
def known_tests() -> frozenset[str]:
    """Every test function of the suite, by node id without parameters."""
    return frozenset(
        f"{path.relative_to(ROOT).as_posix()}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_bytes()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def _entry(row: dict[str, Any], texts: tuple[str, ...]) -> Entry:
    name = str(row.get("id"))
    if row.keys() - {"tests", "why"} != {"id", *texts}:
        raise ValueError(f"{name} does not say exactly {sorted(texts)}")
    tests, why = tuple(row.get("tests", ())), str(row.get("why", ""))
    if not tests and not why:
        raise ValueError(f"{name} has neither tests nor a reason")
    return Entry(name, {text: str(row[text]) for text in texts}, tests, why)
