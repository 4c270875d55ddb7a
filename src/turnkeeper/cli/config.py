"""`turnkeeper config`: the settings in force and where each came from, secrets as stars; and the page of them all."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.config import Configuration
from turnkeeper.settings_tree import known_settings, leaves, render_value


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Look at the settings.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command()(show)
    group.command()(reference)
    app.add_typer(group, name="config")


def show(config: ConfigFile = None, data_dir: DataDirectory = None, *, json: AsJson = False) -> None:
    """Print every setting and its origin."""
    configuration = load(config, data_dir)
    if json:
        typer.echo(orjson.dumps(dict(_machine_rows(configuration)), option=orjson.OPT_INDENT_2))
        return
    rows = list(_rows(configuration))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        typer.echo(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin}")


def reference(config: ConfigFile = None, data_dir: DataDirectory = None) -> None:
    """Print the page of all settings."""
    del config, data_dir
    typer.echo(render_reference(), nl=False)


def render_reference() -> str:
    """`docs/reference/settings.md`, made from the tree itself."""
    lines = [_REFERENCE_HEAD]
    for setting in known_settings():
        name = ".".join(setting.name)
        if setting.field is None:
            lines += [
                "",
                f"## `{name}`",
                "",
                setting.description,
                "",
                "| setting | default | meaning |",
                "|---|---|---|",
            ]
        else:
            lines.append(f"| `{name}` | {_default(setting.field)} | {setting.description} |")
    return "\n".join(lines) + "\n"


_REFERENCE_HEAD = """# Settings

Made by `turnkeeper config reference`; a test holds this page against the settings tree.

A value comes from its default, from `turnkeeper.toml` (`--config`, or the variable `TURNKEEPER_CONFIG`, or that name in
the current folder), from a variable (`server.port` is `TURNKEEPER_SERVER__PORT`), or from a flag; the later one wins.
A name that is not on this page is refused. A relative path is meant from the file it stands in.
`turnkeeper config show` prints what is in force and where each value came from.

| setting | default | meaning |
|---|---|---|"""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "" if field.annotation is Path else "required"
    default: object = field.default
    return "unset" if default is None else f"`{render_value(default)}`"


def _rows(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    for name, value in leaves(configuration.settings):
        yield name, render_value(value), configuration.origin(name)
        if name.endswith((".api_key_env", ".api_key_file")) and value is not None:
            provider, source = name.split(".")[1], "env" if name.endswith("_env") else "file"
            held = provider in configuration.provider_secrets
            yield f"providers.{provider}.api_key", "********" if held else "unset", f"{source} {value}"


def _machine_rows(configuration: Configuration) -> Iterator[tuple[str, dict[str, object]]]:
    for name, value in leaves(configuration.settings):
        shown = render_value(value) if isinstance(value, SecretStr | Path) else value
        yield name, {"value": shown, "origin": configuration.origin(name)}


def _nothing() -> None:
    return
