"""Archives of skills: what is taken, and everything that is refused by name."""

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnkeeper.turns import skill_archives
from turnkeeper.turns.skill_archives import MAX_ENTRIES, MAX_FILES, MAX_UNPACKED_BYTES, SkillRefused, read_skill

SKILL = b"---\nname: pdf-forms\ndescription: Fills forms.\n---\n# Forms\n"
Pack = Callable[[dict[str, bytes]], bytes]


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return packed.getvalue()


def tarred(files: dict[str, bytes], *entries: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for entry in entries:
            archive.addfile(entry)
    return packed.getvalue()


def gzipped(files: dict[str, bytes]) -> bytes:
    return gzip.compress(tarred(files))


def special(path: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.linkname = kind, target
    return entry


PACKS = pytest.mark.parametrize("pack", [zipped, tarred, gzipped])


@PACKS
@pytest.mark.parametrize("top", ["", "pdf-forms/"])
def test_a_skill_is_read_with_or_without_its_folder(pack: Pack, top: str) -> None:
    skill = read_skill(pack({f"{top}SKILL.md": SKILL, f"{top}scripts/fill.py": b"pass"}))
    assert (skill.name, skill.description, skill.text) == ("pdf-forms", "Fills forms.", SKILL.decode())
    assert skill.files == {"SKILL.md": SKILL, "scripts/fill.py": b"pass"}


@PACKS
@pytest.mark.parametrize(
    "path", ["../evil", "/etc/passwd", "a/../../evil", "a//b", "a\\b", "C:evil", "a\nb", "x/" * 9 + "y", "n" * 256]
)
def test_a_path_that_leaves_the_folder_or_is_none_is_refused(pack: Pack, path: str) -> None:
    with pytest.raises(SkillRefused):
        read_skill(pack({"SKILL.md": SKILL, path: b"x"}))


@pytest.mark.parametrize(
    "entry",
    [
        special("link", tarfile.SYMTYPE, "/etc/passwd"),
        special("hard", tarfile.LNKTYPE, "SKILL.md"),
        special("pipe", tarfile.FIFOTYPE),
        special("disk", tarfile.BLKTYPE),
        special("tty", tarfile.CHRTYPE),
    ],
    ids=lambda entry: entry.name,
)
def test_links_and_special_files_in_a_tar_are_refused(entry: tarfile.TarInfo) -> None:
    with pytest.raises(SkillRefused, match="link or a special file"):
        read_skill(tarred({"SKILL.md": SKILL}, entry))


def test_a_link_in_a_zip_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("SKILL.md", SKILL)
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(SkillRefused, match="link or a special file"):
        read_skill(packed.getvalue())


@PACKS
def test_a_bomb_is_refused_before_it_is_unpacked_whole(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack({"SKILL.md": SKILL, "zeros": bytes(MAX_UNPACKED_BYTES)})
    monkeypatch.setattr(skill_archives, "MAX_ARCHIVE_BYTES", 2 * MAX_UNPACKED_BYTES)
    with pytest.raises(SkillRefused, match="unpacked"):
        read_skill(packed)


def test_an_archive_that_is_too_long_is_not_opened() -> None:
    with pytest.raises(SkillRefused, match="longer than"):
        read_skill(bytes(skill_archives.MAX_ARCHIVE_BYTES + 1))


@PACKS
def test_too_many_files_are_refused(pack: Pack) -> None:
    with pytest.raises(SkillRefused, match=str(MAX_FILES)):
        read_skill(pack({"SKILL.md": SKILL, **{f"f{number}": b"" for number in range(MAX_FILES)}}))


def test_too_many_entries_are_refused_even_where_they_are_folders() -> None:
    folders = [special(f"d{number}", tarfile.DIRTYPE) for number in range(MAX_ENTRIES)]
    with pytest.raises(SkillRefused, match=str(MAX_ENTRIES)):
        read_skill(tarred({"SKILL.md": SKILL}, *folders))


@PACKS
@pytest.mark.parametrize(
    "files", [{"a": b"1", "A": b"2"}, {"a": b"1", "a/b": b"2"}, {"skill.md": b"x"}], ids=["case", "below", "the file"]
)
def test_two_things_in_one_place_are_refused(pack: Pack, files: dict[str, bytes]) -> None:
    with pytest.raises(SkillRefused):
        read_skill(pack({"SKILL.md": SKILL, **files}))


@pytest.mark.parametrize(
    "text",
    [
        b"# no front matter",
        b"---\nname: x\n---\n",
        b"---\nname: Upper\ndescription: d\n---\n",
        b"---\nname: a--b\ndescription: d\n---\n",
        b"---\nname: 1\ndescription: d\n---\n",
        b"---\nname: x\ndescription: ''\n---\n",
        b"---\n- a\n---\n",
        b"---\nname: [\n---\n",
        b"---\nname: !!python/object/apply:os.system [true]\ndescription: d\n---\n",
        b"\xff\xfe",
        b"---\nname: x\ndescription: d\n---\n" + b"x" * 65_536,
        b"---\nname: x\ndescription: " + b"d" * 1_025 + b"\n---\n",
    ],
)
def test_a_front_matter_that_says_no_name_or_description_is_refused(text: bytes) -> None:
    with pytest.raises(SkillRefused):
        read_skill(zipped({"SKILL.md": text}))


@PACKS
def test_an_archive_without_the_file_is_refused(pack: Pack) -> None:
    with pytest.raises(SkillRefused, match=r"no SKILL\.md"):
        read_skill(pack({"a/SKILL.md": SKILL, "b/x": b""}))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([zipped, tarred, gzipped]), st.integers(0, 400), st.binary(min_size=1, max_size=8))
@example(zipped, 283, b"\x01")
@example(zipped, 255, b"\x00")
def test_whatever_is_broken_is_refused_and_nothing_else_is_raised(pack: Pack, at: int, noise: bytes) -> None:
    packed = bytearray(pack({"pdf-forms/SKILL.md": SKILL, "pdf-forms/a": b"1"}))
    packed[at : at + len(noise)] = noise
    try:
        read_skill(bytes(packed))
    except SkillRefused:
        return
