"""The folder of loaded skills: whole files under their own names, that another user can read and nobody can write."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from turnkeeper.turns.skill_folder import SkillFolder, SkillsUnusable

FILES = {"SKILL.md": b"# a", "more/deep/b.txt": b"b"}


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_whatever_the_umask_is_every_user_can_read_and_none_can_write(tmp_path: Path) -> None:
    async def main() -> None:
        folder = SkillFolder(tmp_path / "skills" / "ses_1")
        await folder.open()
        await folder.put("folding", FILES)
        assert modes(folder.path) == {
            "folding": 0o755,
            "folding/SKILL.md": 0o444,
            "folding/more": 0o755,
            "folding/more/deep": 0o755,
            "folding/more/deep/b.txt": 0o444,
        }
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o755

    before = os.umask(0o077)
    try:
        asyncio.run(main())
    finally:
        os.umask(before)


def test_a_skill_that_is_put_again_has_its_new_files_alone(tmp_path: Path) -> None:
    async def main() -> None:
        folder = SkillFolder(tmp_path / "skills" / "ses_1")
        await folder.open()
        await folder.put("folding", FILES)
        await folder.put("folding", {"SKILL.md": b"# b"})
        assert [(path.name, path.read_bytes()) for path in folder.path.rglob("*") if path.is_file()] == [
            ("SKILL.md", b"# b")
        ]
        assert [path.name for path in folder.path.iterdir()] == ["folding"]

    asyncio.run(main())


def test_what_was_left_there_is_gone_when_it_is_opened_and_all_of_it_when_it_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        folder = SkillFolder(tmp_path / "skills" / "ses_1")
        await folder.open()
        await folder.put("folding", FILES)
        await SkillFolder(folder.path).open()
        assert list(folder.path.iterdir()) == []
        await folder.close()
        await folder.close()
        assert not folder.path.exists()

    asyncio.run(main())


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "skills").write_text("no folder")
    with pytest.raises(SkillsUnusable, match="cannot be used"):
        asyncio.run(SkillFolder(tmp_path / "skills" / "ses_1").open())
