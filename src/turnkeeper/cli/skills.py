"""`turnkeeper skills`: what agents can learn when they need it (contract 2.13)."""

import io
import tarfile
from pathlib import Path
from typing import Annotated, Final

import typer

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import Limit, add_group, over_api, show_made
from turnkeeper.cli.shown import show_document, show_documents
from turnkeeper.client import Turnkeeper

SKILL_COLUMNS: Final = ("id", "name", "version", "bytes", "created_at", "description")

SkillId = Annotated[str, typer.Argument(metavar="ID", help="The id of a version, from `skills list`.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {"upload": upload, "list": list_skills, "show": show}
    add_group(app, "skills", about="Keep skills that agents load.", commands=commands)


@over_api
def upload(
    turnkeeper: Turnkeeper,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder with SKILL.md, or its zip or tar.")],
    *,
    json: AsJson = False,
) -> None:
    """Upload the next version of a skill; prints its id. An archive that is the newest version already is no other."""
    try:
        content = _packed(path) if path.is_dir() else path.read_bytes()
    except OSError as error:
        raise UsageRefused(f"{path} cannot be read: {error.strerror}") from error
    show_made(turnkeeper.skills.upload(content, name=path.name or "skill"), as_json=json)


@over_api
def list_skills(turnkeeper: Turnkeeper, *, limit: Limit = 100, json: AsJson = False) -> None:
    """List versions of skills, newest first."""
    show_documents(turnkeeper.skills.list(limit=limit), SKILL_COLUMNS, as_json=json)


@over_api
def show(turnkeeper: Turnkeeper, skill_id: SkillId, *, json: AsJson = False) -> None:
    """Show a version of a skill."""
    show_document(turnkeeper.skills.get(skill_id), as_json=json)


def _packed(folder: Path) -> bytes:
    """The folder as a tar that says nothing of this machine: the same files are always the same archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            # A link goes as it is and is refused by name where it arrives.
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)
    return packed.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode = 0o644
    return entry
