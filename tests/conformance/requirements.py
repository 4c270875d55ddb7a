"""The requirement list as data: what the standard asks, what shows it here, or why nothing does.

Answers for reading `requirements.yaml` strictly: an unknown member or a word outside the claim template is an error.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import yaml

ROOT: Final = Path(__file__).parents[2]
LIST: Final = Path(__file__).with_name("requirements.yaml")
LEVELS: Final = frozenset({"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "open"})
REASONS: Final[Mapping[str, frozenset[str]]] = {
    "not_claimed": frozenset({"not-implemented", "not-offered", "governed-elsewhere", "out-of-scope"}),
    "not_established": frozenset({"no-test", "no-sink", "not-negotiated", "not-observed"}),
}
MARKER: Final = "requirement"
_MEMBERS = frozenset({"id", "clause", "level", "proposal", "role", "text", "tests", "why", "gaps", *REASONS})


@dataclass(frozen=True, slots=True)
class Requirement:
    """One row. `outcome` is `exercised`, `not_claimed` or `not_established`; `because` and `why` explain the others."""

    id: str
    clause: str
    level: str
    roles: tuple[str, ...]
    text: str
    tests: tuple[str, ...] = ()
    outcome: str = "exercised"
    because: str = ""
    why: str = ""
    gaps: tuple[str, ...] = ()
    proposal: bool = False


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """A test function and the requirements that its marker names."""

    node: str
    names: tuple[str, ...]


def read_requirements(text: str | None = None) -> tuple[Requirement, ...]:
    """All rows, in order. Raises `ValueError` for a row that says nothing or says it in other words."""
    rows = cast("list[dict[str, object]]", yaml.safe_load(LIST.read_text() if text is None else text))
    return tuple(_requirement(row) for row in rows)


def find_tests(folder: Path = ROOT / "tests") -> Iterator[MarkedTest]:
    """Every test function below a folder, by node id without parameters."""
    for path in sorted(folder.rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield MarkedTest(f"{name}::{node.name}", tuple(_marked(node)))


def _requirement(row: dict[str, object]) -> Requirement:
    name = str(row.get("id"))
    if unknown := row.keys() - _MEMBERS:
        raise ValueError(f"{name} has members that mean nothing: {sorted(unknown)}")
    if row["level"] not in LEVELS:
        raise ValueError(f"{name} has a level that is none: {row['level']}")
    said = [kind for kind in REASONS if kind in row]
    if len(said) + ("tests" in row) != 1:
        raise ValueError(f"{name} has neither tests nor a reason, or both")
    if said and (row[said[0]] not in REASONS[said[0]] or not row.get("why")):
        raise ValueError(f"{name} gives a reason that the claim template has no word for")
    return Requirement(
        id=name,
        clause=str(row["clause"]),
        level=str(row["level"]),
        roles=tuple(cast("list[str]", row["role"])),
        text=str(row["text"]),
        tests=tuple(cast("list[str]", row.get("tests", []))),
        outcome=said[0] if said else "exercised",
        because=str(row[said[0]]) if said else "",
        why=str(row.get("why", "")),
        gaps=tuple(cast("list[str]", row.get("gaps", []))),
        proposal=row.get("proposal") is True,
    )


def _marked(node: ast.FunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute):
            continue
        if decorator.func.attr == MARKER:
            for argument in decorator.args:
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)
