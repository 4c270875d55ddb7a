"""What every command takes: which settings, which data dir."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from turnkeeper.config import Configuration, load_configuration

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file. Default: turnkeeper.toml here, if there is one."),
]
DataDirectory: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Folder of databases, keys and workspaces."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


def load(config: Path | None, data_dir: Path | None, *, data_dir_name: str = "serve", **flags: object) -> Configuration:
    """The settings for a command; `flags` are settings' dotted names with `__` for the dot."""
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load_configuration(file=config, flags={"data_dir": data_dir, **named}, data_dir_name=data_dir_name)
