"""`turnkeeper config show`: the settings in force and where each came from. Secrets are stars."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import typer
from pydantic import SecretStr

from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.config import Configuration, leaves, render_value


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Look at the settings.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command()(show)
    app.add_typer(group, name="config")


def show(config: ConfigFile = None, data_dir: DataDirectory = None, *, json: AsJson = False) -> None:
    """Print every setting in force and where its value came from."""
    configuration = load(config, data_dir)
    if json:
        typer.echo(orjson.dumps(dict(_machine_rows(configuration)), option=orjson.OPT_INDENT_2))
        return
    rows = list(_rows(configuration))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        typer.echo(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin}")


def _rows(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    for name, value in leaves(configuration.settings):
        yield name, render_value(value), configuration.origin(name)
        if name.endswith(".api_key_env") and value is not None:
            provider = name.split(".")[1]
            held = provider in configuration.provider_secrets
            yield f"providers.{provider}.api_key", "********" if held else "unset", f"env {value}"


def _machine_rows(configuration: Configuration) -> Iterator[tuple[str, dict[str, object]]]:
    for name, value in leaves(configuration.settings):
        shown = render_value(value) if isinstance(value, SecretStr | Path) else value
        yield name, {"value": shown, "origin": configuration.origin(name)}


def _nothing() -> None:
    return
