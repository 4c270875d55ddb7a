"""The page of events is the catalogue: each type is written somewhere, or says why it is not (contract 10)."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from turnkeeper.api.schema_files import schema_files
from turnkeeper.events.catalogue import EPHEMERAL_TYPES, EVENT_TYPES

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "reference" / "events.md").read_text()
CONTRACT: Final = ROOT.parent / "shared" / "contract" / "turn-contract.md"
CATALOGUES: Final = ROOT / "src" / "turnkeeper" / "events"
STREAM_FRAMES: Final = frozenset({"stream.ready", "stream.closing"})
NAME: Final = r"`([a-z_]+\.[a-z_.]+)`"
SHARED: Final = {
    "turn_ended": ("turn.completed", "turn.failed", "turn.canceled"),
    "session_activity": ("session.busy", "session.idle", "session.paused"),
    "api_key_changed": ("api_key.created", "api_key.rotated", "api_key.revoked"),
    "file_changed": ("file.uploaded", "file.deleted"),
    "artifact_created": ("artifact.created",),
}
"""Functions that are given the type, or take it from a constant."""


def names(heading: str) -> list[str]:
    """The types in the first column of a section's table."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [name for row in rows for name in re.findall(NAME, row)]


@cache
def renderers() -> dict[str, str]:
    """For each type that a function of the catalogue names, that function."""
    found = {name: shared for shared, types in SHARED.items() for name in types}
    for path in CATALOGUES.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found |= {name: node.name for name in literals(node) if name in {*EVENT_TYPES, *EPHEMERAL_TYPES}}
    return found


def literals(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


@cache
def called() -> frozenset[str]:
    """The functions that anything outside of the catalogue calls."""
    calls: set[str] = set()
    for path in (ROOT / "src" / "turnkeeper").rglob("*.py"):
        if path.parent != CATALOGUES:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    target = node.func
                    calls.add(target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", ""))
    return frozenset(calls)


def test_the_page_names_every_type_that_is_written_and_no_other() -> None:
    assert sorted(names("Stored")) == sorted(EVENT_TYPES)
    assert sorted(names("In streams alone")) == sorted({*EPHEMERAL_TYPES, *STREAM_FRAMES})


def test_no_type_is_both_written_and_not() -> None:
    unwritten = names("Not written")
    assert len(unwritten) == len(set(unwritten))
    assert set(unwritten).isdisjoint({*EVENT_TYPES, *EPHEMERAL_TYPES})


@pytest.mark.parametrize("event_type", [*EVENT_TYPES, *EPHEMERAL_TYPES])
def test_a_type_of_the_catalogue_is_written_by_somebody_and_its_schema_is_served(event_type: str) -> None:
    assert renderers()[event_type] in called()
    assert f"{event_type}.json" in schema_files()


@pytest.mark.skipif(not CONTRACT.exists(), reason="the contract lies beside the repository, not in it")
def test_every_type_of_the_contract_is_written_or_has_a_reason() -> None:
    catalogue = CONTRACT.read_text().partition("### 10.2 ")[2].partition("### 10.5 ")[0]
    rows = re.findall(r"^\| (\*{0,2}`.*?) \|", catalogue, re.MULTILINE)
    wanted = {name for row in rows for name in full_names(row)}
    assert wanted - {*EVENT_TYPES, *EPHEMERAL_TYPES, *names("Not written")} == set()


def full_names(row: str) -> list[str]:
    """The types of a row; `.rotated` behind `api_key.created` is one of the same kind."""
    found = re.findall(r"`([a-z_]*\.[a-z_.]+)`", row)
    kind = found[0].partition(".")[0] if found else ""
    return [name if not name.startswith(".") else kind + name for name in found]
