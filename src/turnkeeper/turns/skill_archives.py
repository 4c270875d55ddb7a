"""What is in a skill's archive (contract 2.13): a zip or tar with SKILL.md, and nothing that harms whoever opens it.

Answers for a name and a description from the front matter of SKILL.md, and for refusing by name what leaves the
skill's folder, links to elsewhere, is no plain file, is there twice, or is larger unpacked than it may be. Nothing is
written anywhere, and no size that an archive states is believed. Pure.
"""

import io
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final, cast

import yaml

from turnkeeper.errors import TurnkeeperError

SKILL_FILE: Final = "SKILL.md"
MAX_ARCHIVE_BYTES: Final = 4 * 1024 * 1024
MAX_UNPACKED_BYTES: Final = 16 * 1024 * 1024
MAX_FILES: Final = 500
MAX_ENTRIES: Final = 2_000
MAX_PATH_CHARACTERS: Final = 255
MAX_DEPTH: Final = 8
MAX_SKILL_FILE_BYTES: Final = 65_536
MAX_DESCRIPTION_CHARACTERS: Final = 1_024

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
MAX_NAME_CHARACTERS: Final = 64
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_BROKEN: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, struct.error),
    *(OSError, EOFError, RuntimeError, ValueError, OverflowError, LookupError),
)
"""What the library's readers raise for bytes that are no archive after all."""
_PART: Final = re.compile(r"[^\x00-\x1f\x7f\\/:]{1,255}\Z")


class SkillRefused(TurnkeeperError):
    """The archive is no skill, or one that nobody should open; the message names what is wrong with it."""

    code = "skill_refused"


@dataclass(frozen=True, slots=True)
class SkillBundle:
    """A skill as its archive has it. `files` are its bytes by their paths below its folder, SKILL.md among them."""

    name: str
    description: str
    files: dict[str, bytes]

    @property
    def text(self) -> str:
        """SKILL.md."""
        return self.files[SKILL_FILE].decode()


@dataclass(frozen=True, slots=True)
class _Member:
    """A plain file of an archive."""

    path: str
    open: "IO[bytes]"


def read_skill(archive: bytes) -> SkillBundle:
    """The skill of an archive. Raises `SkillRefused`."""
    if len(archive) > MAX_ARCHIVE_BYTES:
        raise SkillRefused(f"the archive is longer than {MAX_ARCHIVE_BYTES} bytes")
    try:
        files = _without_top(_unpacked(_members(archive)))
    except _BROKEN as error:
        raise SkillRefused(f"the archive cannot be read: {str(error)[:200]}") from error
    if SKILL_FILE not in files:
        raise SkillRefused(f"the archive has no {SKILL_FILE}, at its top or in its one folder")
    name, description = _front_matter(files[SKILL_FILE])
    return SkillBundle(name, description, files)


def _members(archive: bytes) -> Iterator[_Member]:
    if zipfile.is_zipfile(io.BytesIO(archive)) and archive.startswith(b"PK"):
        yield from _of_zip(archive)
        return
    mode = "r:gz" if archive.startswith(b"\x1f\x8b") else "r:"
    try:
        tar = tarfile.open(fileobj=_bounded(archive, mode), mode="r:")  # noqa: SIM115  closed below
    except tarfile.TarError as error:
        raise SkillRefused("the archive is neither a zip nor a tar, plain or gzip") from error
    with tar:
        yield from _of_tar(tar)


def _bounded(archive: bytes, mode: str) -> io.BytesIO:
    """The tar itself. Raises `SkillRefused` for one that is larger unpacked than any skill may be."""
    if mode == "r:":
        return io.BytesIO(archive)
    # Headers and padding come with the files.
    limit = MAX_UNPACKED_BYTES + MAX_ENTRIES * 4 * tarfile.BLOCKSIZE
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    unpacked = unpacker.decompress(archive, limit + 1)
    if len(unpacked) > limit:
        raise SkillRefused(f"the archive is larger than {MAX_UNPACKED_BYTES} bytes unpacked")
    return io.BytesIO(unpacked)


def _of_zip(archive: bytes) -> Iterator[_Member]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        entries = opened.infolist()
        _require_few(len(entries))
        for entry in entries:
            mode = entry.external_attr >> 16
            if entry.flag_bits & 1:
                raise SkillRefused(f"{_shown(entry.filename)} is encrypted")
            if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise SkillRefused(f"{_shown(entry.filename)} is packed in a way other than deflate")
            if stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise SkillRefused(f"{_shown(entry.filename)} is a link or a special file")
            if entry.is_dir():
                _checked(entry.filename)
                continue
            with opened.open(entry) as content:
                yield _Member(entry.filename, content)


def _of_tar(tar: tarfile.TarFile) -> Iterator[_Member]:
    for count, entry in enumerate(tar, start=1):
        _require_few(count)
        if entry.isdir():
            _checked(entry.name)
            continue
        content = tar.extractfile(entry) if entry.isreg() else None
        if content is None:
            raise SkillRefused(f"{_shown(entry.name)} is a link or a special file")
        yield _Member(entry.name, content)


def _require_few(entries: int) -> None:
    if entries > MAX_ENTRIES:
        raise SkillRefused(f"the archive has more than {MAX_ENTRIES} entries")


def _unpacked(members: Iterator[_Member]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    taken: set[str] = set()
    left = MAX_UNPACKED_BYTES
    for member in members:
        path = _checked(member.path)
        if path.casefold() in taken:
            raise SkillRefused(f"{_shown(path)} is there twice")
        if len(files) >= MAX_FILES:
            raise SkillRefused(f"the archive has more than {MAX_FILES} files")
        content = member.open.read(left + 1)
        left -= len(content)
        if left < 0:
            raise SkillRefused(f"the archive is larger than {MAX_UNPACKED_BYTES} bytes unpacked")
        files[path] = content
        taken.add(path.casefold())
    _require_no_file_in_the_way(files)
    return files


def _checked(path: str) -> str:
    """The path below the skill's folder. Raises `SkillRefused`."""
    parts = path.removesuffix("/").split("/")
    if parts and parts[0] == ".":
        parts = parts[1:]
    if any(part in {"", ".", ".."} or _PART.match(part) is None for part in parts):
        raise SkillRefused(f"{_shown(path)} is no path below the skill's folder")
    if len(path) > MAX_PATH_CHARACTERS or len(parts) > MAX_DEPTH:
        raise SkillRefused(f"{_shown(path)} is too long, or more than {MAX_DEPTH} folders deep")
    return "/".join(parts)


def _require_no_file_in_the_way(files: dict[str, bytes]) -> None:
    folded = {path.casefold() for path in files}
    for path in files:
        parts = path.casefold().split("/")
        if any("/".join(parts[:depth]) in folded for depth in range(1, len(parts))):
            raise SkillRefused(f"{_shown(path)} lies below a file")


def _without_top(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a skill that was packed with its folder."""
    tops = {path.partition("/")[0] for path in files}
    if SKILL_FILE in files or len(tops) != 1 or not all("/" in path for path in files):
        return files
    return {path.partition("/")[2]: content for path, content in files.items()}


def _front_matter(content: bytes) -> tuple[str, str]:
    if len(content) > MAX_SKILL_FILE_BYTES:
        raise SkillRefused(f"{SKILL_FILE} is longer than {MAX_SKILL_FILE_BYTES} bytes")
    try:
        found = _FRONT_MATTER.match(content.decode().removeprefix("\ufeff"))
        members: object = yaml.safe_load(found.group(1)) if found is not None else None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise SkillRefused(f"the front matter of {SKILL_FILE} cannot be read: {str(error)[:200]}") from error
    if not isinstance(members, dict):
        raise SkillRefused(f"{SKILL_FILE} does not begin with front matter: a block of YAML between two lines of ---")
    stated = cast("dict[str, object]", members)
    return _name(stated.get("name")), _description(stated.get("description"))


def _name(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARACTERS or _NAME.match(value) is None:
        raise SkillRefused(
            f"`name` in {SKILL_FILE} is not 1 to {MAX_NAME_CHARACTERS} small letters, digits and single hyphens"
        )
    return value


def _description(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > MAX_DESCRIPTION_CHARACTERS:
        raise SkillRefused(
            f"`description` in {SKILL_FILE} is not a text of 1 to {MAX_DESCRIPTION_CHARACTERS} characters"
        )
    return text


def _shown(path: str) -> str:
    return repr(path[:100])
