"""`turnkeeper files`: what turns are given (contract 2.6)."""

import mimetypes
from pathlib import Path
from typing import Annotated, Final

import typer

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.cli.remote import Key, Remote, Url
from turnkeeper.cli.shown import render_json, show_documents
from turnkeeper.cli.written import Output, write_bytes

FILE_COLUMNS: Final = ("id", "bytes", "media_type", "created_at", "name")

FileId = Annotated[str, typer.Argument(metavar="ID", help="The file's id.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many at most.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Upload files for turns.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command()(upload)
    group.command("list")(list_files)
    group.command("get")(get_file)
    group.command()(delete)
    app.add_typer(group, name="files")


def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to upload.")],
    *,
    name: Annotated[str | None, typer.Option("--name", help="What it is called. Default: its own name.")] = None,
    media_type: Annotated[str | None, typer.Option("--type", help="Its media type. Default: by its name.")] = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Upload a file; prints its id."""
    guessed = media_type or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageRefused(f"{file} cannot be read: {error.strerror}") from error
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        made = turnkeeper.files.upload(content, name=name or file.name, media_type=guessed)
    typer.echo(render_json(made) if json else made.id)


def list_files(
    *,
    limit: Limit = 100,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """List files, newest first."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_documents(turnkeeper.files.list(limit=limit), FILE_COLUMNS, as_json=json)


def get_file(
    file_id: FileId,
    *,
    output: Output = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Write the bytes of a file to standard output, or to a file that is not there yet."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        write_bytes(turnkeeper.files.download(turnkeeper.files.get(file_id)), output)


def delete(
    file_id: FileId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Delete a file; turns that were accepted with it keep it until they end."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        turnkeeper.files.delete(file_id)
    typer.echo(f"file {file_id} deleted", err=True)


def _nothing() -> None:
    return
