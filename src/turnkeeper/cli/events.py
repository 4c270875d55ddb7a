"""`turnkeeper events`: what happens in a session or a turn, as it happens, over the API (contract 10 and 11)."""

from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from turnkeeper.cli.exits import Exit, UsageRefused
from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import add_group, over_api
from turnkeeper.cli.shown import cell, render_json, show_document
from turnkeeper.cli.turn_view import shorten
from turnkeeper.client import Event, EventStream, Turnkeeper

_ABOUT: Final = ("text", "name", "status", "decision", "outcome", "stop_reason", "reason", "question", "approval_id")


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {
        "tail": tail,
        "show": show,
    }
    add_group(app, "events", about="Follow what happens on a running server.", commands=commands)


@over_api
def tail(
    turnkeeper: Turnkeeper,
    followed: Annotated[str, typer.Argument(metavar="ID", help="A session or a turn.")],
    *,
    after: Annotated[
        int | None, typer.Option("--after", min=0, help="Begin behind this sequence; 0 begins at the first event.")
    ] = None,
    types: Annotated[str | None, typer.Option("--types", help="Only these types, with commas between.")] = None,
    json: AsJson = False,
) -> None:
    """Print events as they come: a turn's from its first to its last, a session's from now until it is closed.

    Goes on over restarts of the server, without losing or repeating an event. --json prints one event a line.
    """
    console = Console(highlight=False, soft_wrap=True)
    try:
        for event in _stream(turnkeeper, followed, after, types.split(",") if types else []):
            if json:
                typer.echo(render_json(event))
            else:
                console.print(line_of(event))
    except KeyboardInterrupt:
        raise typer.Exit(Exit.CANCELED) from None


@over_api
def show(
    turnkeeper: Turnkeeper,
    event_id: Annotated[str, typer.Argument(metavar="ID", help="The event's id.")],
    *,
    json: AsJson = False,
) -> None:
    """Show an event."""
    show_document(turnkeeper.events.get(event_id), as_json=json)


def line_of(event: Event) -> Text:
    """An event for a person: its number, time and type, and a few words of its data."""
    at = event.created_at
    stamp = "" if at is None else f"{at:%H:%M:%S}"
    data = event.data or {}
    about = "  ".join(cell(data[name]) for name in _ABOUT if data.get(name) is not None)
    number = "" if event.sequence is None else str(event.sequence)
    return Text.assemble((f"{number:>6}  {stamp:<8}  ", "dim"), f"{event.type:<24}", (f"  {shorten(about)}", "dim"))


def _stream(turnkeeper: Turnkeeper, followed: str, after: int | None, types: list[str]) -> EventStream:
    if followed.startswith("trn_"):
        return turnkeeper.turns.get(followed).stream(after=after, types=types)
    if followed.startswith("ses_"):
        return turnkeeper.sessions.get(followed).stream(after=after, types=types)
    raise UsageRefused(f"{followed} is no session (ses_…) and no turn (trn_…)")
