"""Every conformance test can fail: faults are sown into the parts, and each is found by the test meant for it."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.seeded_faults import FAULTS, Fault


def cases(killer: Any) -> Iterator[dict[str, Any]]:
    """What pytest would hand a test, one case after the other."""
    marks = [mark for mark in getattr(killer, "pytestmark", ()) if mark.name == "parametrize"]
    for combination in product(*([(mark, value) for value in mark.args[1]] for mark in marks)):
        case: dict[str, Any] = {}
        for mark, value in combination:
            given = getattr(value, "values", (value,)) if hasattr(value, "marks") else (value,)
            names = mark.args[0]
            listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
            case |= zip(listed, given[0] if len(listed) > 1 and len(given) == 1 else given, strict=True)
        yield case


def run(fault: Fault, folder: Path) -> None:
    """Runs a fault's killer, each case in a folder of its own."""
    module, _, name = fault.killer.partition(":")
    killer = getattr(import_module(module), name)
    in_folder = "tmp_path" in inspect.signature(killer).parameters
    for number, case in enumerate(cases(killer)):
        path = folder / str(number)
        path.mkdir(parents=True)
        killer(**case, **({"tmp_path": path} if in_folder else {}))


def standing(target: str) -> Any:
    """What stands under a dotted name."""
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise AssertionError(target)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "_"))
def test_a_seeded_fault_is_found(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(fault, tmp_path / "healthy")
    monkeypatch.setattr(fault.target, fault.make(standing(fault.target)))
    try:
        run(fault, tmp_path / "faulty")
    except (Exception, pytest.fail.Exception):  # noqa: BLE001  whatever a test fails with, it fails
        return
    pytest.fail(f"nothing finds that {fault.name}")


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
