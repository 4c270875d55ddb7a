"""Files through the wall: nothing that an agent planted is followed, read or written through."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnkeeper.clock import SystemClock
from turnkeeper.store.content_folder import FolderContents
from turnkeeper.turns.contents import Content, ContentMissing, ContentStore
from turnkeeper.turns.turn_files import TurnFile
from turnkeeper.turns.workspace_files import Collected, OutputLimits, collect, deliver, shown_path

LIMITS = OutputLimits(files=10, file_bytes=100, total_bytes=150)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def contents(tmp_path: Path) -> FolderContents:
    return FolderContents(tmp_path / "contents", SystemClock())


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def kept(contents: ContentStore, data: bytes) -> Content:
    return await contents.put(_pieces(data), max_bytes=1_000_000)


def delivered(workspace: Path, contents: ContentStore, data: bytes = b"hello") -> Path:
    async def main() -> None:
        made = await kept(contents, data)
        file = TurnFile("fil_1", "a.txt", "inputs/a.txt", "text/plain", made.size_bytes, made.sha256)
        await deliver(workspace, [file], contents)

    asyncio.run(main())
    return workspace / "inputs" / "a.txt"


def collected(workspace: Path, contents: ContentStore, limits: OutputLimits = LIMITS) -> Collected:
    return asyncio.run(collect(workspace, contents, limits, lambda path, sha256: False))


def test_a_file_lies_where_the_agent_is_told_and_cannot_be_written_by_mistake(
    workspace: Path, contents: FolderContents
) -> None:
    path = delivered(workspace, contents)
    assert path.read_bytes() == b"hello"
    assert path.stat().st_mode & 0o777 == 0o444
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_a_link_in_the_place_of_the_folder_is_replaced_and_not_followed(
    workspace: Path, contents: FolderContents, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "inputs").symlink_to(outside)
    assert delivered(workspace, contents).read_bytes() == b"hello"
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "old"])
def test_whatever_lies_in_the_place_of_a_file_gives_way(
    workspace: Path, contents: FolderContents, tmp_path: Path, kind: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    place = workspace / "inputs" / "a.txt"
    place.parent.mkdir()
    plant = {
        "link": lambda: place.symlink_to(victim),
        "dangling": lambda: place.symlink_to(tmp_path / "made-by-link"),
        "folder": lambda: (place / "deep").mkdir(parents=True),
        "pipe": lambda: os.mkfifo(place),
        "old": lambda: place.write_text("old"),
    }
    plant[kind]()
    assert delivered(workspace, contents).read_bytes() == b"hello"
    assert not place.is_symlink()
    assert victim.read_text() == "mine"
    assert not (tmp_path / "made-by-link").exists()


def test_a_content_that_is_not_what_its_name_says_is_not_delivered(workspace: Path, contents: FolderContents) -> None:
    path = delivered(workspace, contents)
    stored = next(file for file in (workspace.parent / "contents").rglob("*") if len(file.name) == 64)
    stored.write_bytes(b"other")
    path.unlink()
    with pytest.raises(ContentMissing):
        delivered_again(workspace, contents, stored.name)
    assert list(path.parent.iterdir()) == []


def delivered_again(workspace: Path, contents: ContentStore, sha256: str) -> None:
    file = TurnFile("fil_1", "a.txt", "inputs/a.txt", "text/plain", 5, sha256)
    asyncio.run(deliver(workspace, [file], contents))


def test_files_that_are_left_are_kept_with_their_hash(workspace: Path, contents: FolderContents) -> None:
    (workspace / "outputs" / "sub").mkdir(parents=True)
    (workspace / "outputs" / "b.txt").write_bytes(b"b")
    (workspace / "outputs" / "sub" / "a.txt").write_bytes(b"a")
    found = collected(workspace, contents)
    assert [(output.path, output.sha256) for output in found.outputs] == [
        ("outputs/b.txt", hashlib.sha256(b"b").hexdigest()),
        ("outputs/sub/a.txt", hashlib.sha256(b"a").hexdigest()),
    ]
    assert not found.skipped


def test_what_is_known_is_not_left_once_more(workspace: Path, contents: FolderContents) -> None:
    (workspace / "outputs").mkdir()
    (workspace / "outputs" / "a.txt").write_bytes(b"a")
    known = {("outputs/a.txt", hashlib.sha256(b"a").hexdigest())}
    found = asyncio.run(collect(workspace, contents, LIMITS, lambda path, sha256: (path, sha256) in known))
    assert (found.outputs, dict(found.skipped)) == ([], {})


def test_nothing_that_is_no_plain_file_leaves(workspace: Path, contents: FolderContents, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    outputs = workspace / "outputs"
    outputs.mkdir()
    (outputs / "link").symlink_to(secret)
    (outputs / "folder").symlink_to(tmp_path)
    os.link(secret, outputs / "hard")
    os.mkfifo(outputs / "pipe")
    found = collected(workspace, contents)
    assert found.outputs == []
    assert found.skipped == {"no regular files with one name": 4}


def test_an_output_folder_that_is_a_link_is_no_output_folder(
    workspace: Path, contents: FolderContents, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    (workspace / "outputs").symlink_to(tmp_path)
    assert collected(workspace, contents).outputs == []


@pytest.mark.parametrize(
    ("sizes", "taken", "why"),
    [
        ([101], 0, "too large files"),
        ([100, 60], 1, "too large files"),
        ([1] * 12, 10, "too many files"),
    ],
)
def test_what_is_left_has_limits(
    workspace: Path, contents: FolderContents, sizes: list[int], taken: int, why: str
) -> None:
    (workspace / "outputs").mkdir()
    for number, size in enumerate(sizes):
        (workspace / "outputs" / f"{number:03}").write_bytes(b"x" * size)
    found = collected(workspace, contents)
    assert len(found.outputs) == taken
    assert found.skipped == {why: len(sizes) - taken}


def test_a_file_of_zeros_without_blocks_counts_as_long_as_it_says(workspace: Path, contents: FolderContents) -> None:
    (workspace / "outputs").mkdir()
    with (workspace / "outputs" / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    assert collected(workspace, contents).skipped == {"too large files": 1}


def test_folders_too_deep_to_be_meant_are_not_walked(workspace: Path, contents: FolderContents) -> None:
    deep = workspace / "outputs" / "/".join("d" * 40)
    deep.mkdir(parents=True)
    (deep / "a").write_text("a")
    found = collected(workspace, contents)
    assert (found.outputs, found.skipped) == ([], {"folder trees beyond what is looked at": 1})


def test_a_path_that_is_no_text_is_shown_as_one() -> None:
    assert shown_path(("outputs", os.fsdecode(b"\xff\n.txt"))) == "outputs/\ufffd\ufffd.txt"
    assert len(shown_path(("x" * 5_000,))) == 1_024
