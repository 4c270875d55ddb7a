"""`turnkeeper version`."""

import typer

from turnkeeper import __version__
from turnkeeper.cli.options import ConfigFile, DataDirectory


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(version)


def version(config: ConfigFile = None, data_dir: DataDirectory = None) -> None:
    """Print the version."""
    del config, data_dir
    typer.echo(f"turnkeeper {__version__}")
