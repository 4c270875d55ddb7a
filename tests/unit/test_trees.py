"""Hostile folders: deep, linked, full of pipes. Nothing outside of them is read, changed or removed."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper import trees


def deepen(folder: Path, levels: int) -> None:
    """So many folders inside each other, a file in each; the path is far longer than the kernel takes."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir("a", dir_fd=here)
        below = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path / "outside"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def read(root: Path, path: str) -> bytes:
    """What is in a file below `root`."""
    with os.fdopen(trees.open_beneath(root, path), "rb") as file:
        return file.read()


def test_a_tree_too_deep_for_a_recursion_is_removed(folder: Path) -> None:
    deepen(folder, 1200)
    trees.remove(folder)
    assert not folder.exists()


def test_removing_follows_no_link(folder: Path, outside: Path) -> None:
    (folder / "link").symlink_to(outside)
    (folder / "inner").mkdir()
    (folder / "inner" / "link").symlink_to(outside / "secret")
    os.link(outside / "secret", folder / "hard")
    trees.remove(folder)
    assert not folder.exists()
    assert (outside / "secret").read_text() == "secret"


def test_a_link_is_removed_and_not_what_it_leads_to(folder: Path, outside: Path) -> None:
    (folder / "link").symlink_to(outside)
    trees.remove(folder / "link")
    assert list(folder.iterdir()) == []
    assert outside.is_dir()


def test_a_folder_that_forbids_everything_is_removed(folder: Path) -> None:
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed").chmod(0)
    trees.remove(folder)
    assert not folder.exists()


def test_what_is_not_there_is_removed_already(folder: Path) -> None:
    trees.remove(folder / "absent")
    assert folder.is_dir()


def test_a_walk_finds_everything_below_once(folder: Path, outside: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "file").touch()
    (folder / "link").symlink_to(outside)
    found = [("/".join((*one.parents, one.name)), one.is_folder) for one in trees.walk(folder, max_entries=10)]
    assert sorted(found) == [("a", True), ("a/b", True), ("a/file", False), ("link", False)]


def test_a_walk_ends_at_its_limits(folder: Path) -> None:
    deepen(folder, trees.MAX_DEPTH + 2)
    with pytest.raises(trees.TreeTooLarge, match="deep"):
        list(trees.walk(folder, max_entries=1000))
    with pytest.raises(trees.TreeTooLarge, match="entries"):
        list(trees.walk(folder, max_entries=10))


def test_a_file_with_two_names_is_measured_once_and_a_hole_not_at_all(folder: Path) -> None:
    (folder / "one").write_bytes(b"x" * 100_000)
    os.link(folder / "one", folder / "two")
    before = trees.measure(folder, max_entries=10)
    with open(folder / "hole", "wb") as file:
        file.truncate(1 << 30)
    after = trees.measure(folder, max_entries=10)
    assert 100_000 <= before.size_bytes < 200_000
    assert (after.size_bytes, after.entries) == (before.size_bytes, before.entries + 1)


def test_a_file_below_is_opened(folder: Path) -> None:
    (folder / "out" / "deep").mkdir(parents=True)
    (folder / "out" / "deep" / "result.txt").write_text("fine")
    assert read(folder, "out/deep/result.txt") == b"fine"


@pytest.mark.parametrize(
    "path", ["link/secret", "secret", "hop/../secret", "../outside/secret", "/etc/passwd", "", ".", "a//b", "inner"]
)
def test_no_path_leads_out(folder: Path, outside: Path, path: str) -> None:
    (folder / "link").symlink_to(outside)
    (folder / "secret").symlink_to(outside / "secret")
    (folder / "inner").mkdir()
    with pytest.raises(trees.NotInTree):
        trees.open_beneath(folder, path)


def test_a_pipe_is_refused_and_does_not_block(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(trees.NotInTree):
        trees.open_beneath(folder, "pipe")


@given(st.lists(st.sampled_from(["..", ".", "", "a", "link", "secret", "\0"]), max_size=6))
def test_whatever_the_path_nothing_outside_is_read(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    base = tmp_path_factory.mktemp("tree")
    (base / "secret").write_text("secret")
    (base / "in" / "a").mkdir(parents=True)
    (base / "in" / "link").symlink_to(base)
    with pytest.raises(trees.NotInTree):
        trees.open_beneath(base / "in", "/".join(parts))


def test_no_descriptor_is_left(folder: Path) -> None:
    (folder / "a").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    trees.measure(folder, max_entries=10)
    for path in ("a", "a/b", "c"):
        with pytest.raises(trees.NotInTree):
            trees.open_beneath(folder, path)
    trees.remove(folder)
    assert len(os.listdir("/proc/self/fd")) == before
