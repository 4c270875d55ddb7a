"""The quota of a workspace: what counts, when the box goes, and that a full one can be emptied."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from turnkeeper.sandbox import quota as quota_module
from turnkeeper.sandbox.boxes import BoxLimits
from turnkeeper.sandbox.quota import WorkspaceQuota

LIMITS = BoxLimits(disk_bytes=1 << 20, disk_files=10)

Step = Callable[[Path], object]


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that takes long is quick here: these tests are about what is found."""
    monkeypatch.setattr(quota_module, "SHORT_LOOK_MS", 60_000)


def fill(name: str, kibibytes: int) -> Step:
    """A file of that size, really written."""
    return lambda folder: (folder / name).write_bytes(b"x" * (kibibytes << 10))


def crowd(folder: Path) -> None:
    """More files than allowed."""
    for number in range(11):
        (folder / str(number)).touch()


def drop(folder: Path) -> None:
    """Everything goes."""
    for path in folder.iterdir():
        path.unlink()


def watch(folder: Path, *steps: Step) -> tuple[bool, bool]:
    """Whether the box was ended by one of these steps, a look after each, and whether its workspace is full."""
    ended: list[None] = []

    async def work() -> bool:
        quota = WorkspaceQuota(folder, LIMITS, lambda: ended.append(None))
        await quota.begin()
        for step in steps:
            step(folder)
            await quota.look_again()
        quota.stop()
        return quota.is_full

    full = asyncio.run(work())
    return bool(ended), full


def test_a_workspace_within_its_quota_is_left_alone(tmp_path: Path) -> None:
    assert watch(tmp_path, fill("a", 500), fill("b", 400)) == (False, False)


@pytest.mark.parametrize("step", [fill("a", 1100), crowd], ids=["bytes", "files"])
def test_a_workspace_that_grows_over_its_quota_ends_the_box(tmp_path: Path, step: Step) -> None:
    assert watch(tmp_path, step) == (True, True)


def test_one_that_was_full_before_may_stay_as_it_is(tmp_path: Path) -> None:
    fill("a", 2000)(tmp_path)
    assert watch(tmp_path, lambda _: None) == (False, True)


def test_one_that_was_full_before_may_not_grow(tmp_path: Path) -> None:
    fill("a", 2000)(tmp_path)
    assert watch(tmp_path, fill("b", 100)) == (True, True)


def test_one_that_was_emptied_has_its_whole_quota_and_no_more(tmp_path: Path) -> None:
    fill("a", 2000)(tmp_path)
    assert watch(tmp_path, drop, fill("b", 900)) == (False, False)
    assert watch(tmp_path, drop, fill("b", 1900)) == (True, True)


def test_one_that_shrinks_a_little_may_not_grow_back(tmp_path: Path) -> None:
    fill("a", 3000)(tmp_path)
    assert watch(tmp_path, fill("a", 2000), fill("a", 2900)) == (True, True)


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    fill("a", 700)(tmp_path)
    assert watch(tmp_path, lambda folder: os.link(folder / "a", folder / "b")) == (False, False)


def test_what_cannot_be_measured_counts_as_too_large(tmp_path: Path) -> None:
    assert watch(tmp_path, lambda folder: folder.rename(folder.with_name("elsewhere"))) == (True, True)
