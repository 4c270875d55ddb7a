"""`turnkeeper artifacts`: what turns left (contract 2.6)."""

from typing import Annotated, Final

import typer

from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.cli.remote import Key, Remote, Url
from turnkeeper.cli.shown import show_documents
from turnkeeper.cli.written import Output, write_bytes

ARTIFACT_COLUMNS: Final = ("id", "kind", "bytes", "media_type", "name", "path")

ArtifactId = Annotated[str, typer.Argument(metavar="ID", help="The artifact's id, from `artifacts list`.")]
TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Get what turns left.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command("list")(list_artifacts)
    group.command("get")(get_artifact)
    app.add_typer(group, name="artifacts")


def list_artifacts(
    turn_id: TurnId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """List what a turn left, in the order in which it did."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_documents(turnkeeper.turns.get(turn_id).artifacts(), ARTIFACT_COLUMNS, as_json=json)


def get_artifact(
    artifact_id: ArtifactId,
    *,
    output: Output = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Write the bytes of an artifact to standard output, or to a file that is not there yet."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        write_bytes(turnkeeper.files.download(turnkeeper.files.artifact(artifact_id)), output)


def _nothing() -> None:
    return
