"""`turnkeeper admin`: what operators do with a running server, over its API (contract 2.12).

The key needs the scope `admin`; a turn is reached with a key of its project.
"""

from typing import Annotated

import typer

from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import add_group, over_api
from turnkeeper.cli.shown import show_document
from turnkeeper.client import Turn, Turnkeeper

TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for whoever reads the record.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {
        "queue": queue,
        "requeue": requeue,
        "fail": fail,
        "cancel": cancel,
        "drain": drain,
        "undrain": undrain,
    }
    add_group(app, "admin", about="Operate a running server: its queue, a stuck turn, a drain.", commands=commands)


@over_api
def queue(turnkeeper: Turnkeeper, *, json: AsJson = False) -> None:
    """Show the turns that are not over, by status, in all projects."""
    show_document(turnkeeper.admin.queue(), as_json=json)


@over_api
def requeue(turnkeeper: Turnkeeper, turn_id: TurnId, *, json: AsJson = False) -> None:
    """Take a turn from its worker, so that another one takes it. One that runs needs another attempt."""
    _show(turnkeeper.admin.requeue(turn_id), as_json=json)


@over_api
def fail(turnkeeper: Turnkeeper, turn_id: TurnId, *, reason: Reason = None, json: AsJson = False) -> None:
    """End a turn at once as `internal_error`, whoever holds it. The app is shown the reason."""
    _show(turnkeeper.admin.fail(turn_id, reason=reason), as_json=json)


@over_api
def cancel(
    turnkeeper: Turnkeeper,
    turn_id: TurnId,
    *,
    immediate: Annotated[bool, typer.Option("--immediate", help="Do not wait for the agent to stop.")] = False,
    reason: Reason = None,
    json: AsJson = False,
) -> None:
    """Cancel a turn as its app could, with the stop reason `operator`."""
    _show(turnkeeper.admin.cancel(turn_id, mode="immediate" if immediate else "graceful", reason=reason), as_json=json)


@over_api
def drain(
    turnkeeper: Turnkeeper,
    *,
    status: Annotated[bool, typer.Option("--status", help="Only say whether it is drained.")] = False,
    reason: Reason = None,
    json: AsJson = False,
) -> None:
    """Accept and begin no turn, in every process, until `admin undrain`; those that run go on to their end."""
    found = turnkeeper.admin.drain() if status else turnkeeper.admin.begin_drain(reason=reason)
    show_document(found, as_json=json)


@over_api
def undrain(turnkeeper: Turnkeeper, *, json: AsJson = False) -> None:
    """Accept and begin turns again."""
    show_document(turnkeeper.admin.end_drain(), as_json=json)


def _show(turn: Turn, *, as_json: bool) -> None:
    if as_json:
        show_document(turn, as_json=True)
    else:
        typer.echo(f"turn {turn.id} is {turn.status}", err=True)
