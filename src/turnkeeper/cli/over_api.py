"""The shape of the commands over the turn API: a group, a client that is there, and how what was made is shown."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

import typer

from turnkeeper.cli.options import ConfigFile, DataDirectory
from turnkeeper.cli.remote import Key, Remote, Url
from turnkeeper.cli.shown import member_of, show_document
from turnkeeper.client import Document, Turnkeeper

P = ParamSpec("P")
R = TypeVar("R")

Limit: TypeAlias = Annotated[int, typer.Option("--limit", min=1, help="How many at most.")]


def add_group(app: typer.Typer, name: str, *, about: str, commands: Mapping[str, Callable[..., Any]]) -> None:
    """Adds a group with its commands, in the order of the help."""
    group = typer.Typer(help=about, no_args_is_help=True)
    # A callback keeps the commands' names even when there is only one.
    group.callback()(_nothing)
    for word, command in commands.items():
        group.command(word)(command)
    app.add_typer(group, name=name)


def over_api(command: Callable[Concatenate[Turnkeeper, P], R]) -> Callable[..., R]:
    """The command with the options that say where the server is, in place of its first argument, a client of it."""

    @wraps(command)
    def run(*given: Any, **named: Any) -> R:
        place = Remote(*(named.pop(name) for name in _PLACE))
        with place.connect() as turnkeeper:
            return cast("Callable[..., R]", command)(turnkeeper, *given, **named)

    _, *own = inspect.signature(command).parameters.values()
    parameters = [*own, *_PLACE.values()]
    shape = cast("Any", run)
    shape.__signature__ = inspect.Signature(parameters)
    shape.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def show_made(document: Document, *, as_json: bool) -> None:
    """The id of what was made, for the next command, or the whole document."""
    if as_json:
        show_document(document, as_json=True)
    else:
        typer.echo(member_of(document, "id"))


def _where(*, url: Url = None, key: Key = None, config: ConfigFile = None, data_dir: DataDirectory = None) -> None:
    """The options of every such command."""


_PLACE: Final[Mapping[str, inspect.Parameter]] = inspect.signature(_where).parameters


def _nothing() -> None:
    return
