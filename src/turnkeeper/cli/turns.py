"""`turnkeeper turns`: turns of a running server, over its API (contract 2.3)."""

from pathlib import Path
from typing import Annotated, Final, cast

import orjson
import typer

from turnkeeper.cli.exits import UsageRefused, exit_of_end
from turnkeeper.cli.input_files import as_json
from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import Limit, add_group, over_api, show_made
from turnkeeper.cli.shown import parse_json, show_document, show_documents
from turnkeeper.client import Turn, Turnkeeper
from turnkeeper.client.turn_api.handles import OnBusy

COLUMNS: Final = ("id", "status", "stop_reason", "session_id", "created_at", "duration_ms", "usage.total_tokens")

TurnId = Annotated[str, typer.Argument(metavar="ID", help="The turn's id.")]
TimeoutMs = Annotated[int | None, typer.Option("--timeout-ms", min=1, help="Wait no longer than this; exit 1 then.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {
        "post": post,
        "list": list_turns,
        "show": show,
        "wait": wait,
        "cancel": cancel,
        "submissions": submissions,
        "tool-result": tool_result,
    }
    add_group(app, "turns", about="Post, follow and cancel turns of a running server.", commands=commands)


@over_api
def post(
    turnkeeper: Turnkeeper,
    session_id: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the turn is about.")],
    *,
    schema: Annotated[Path | None, typer.Option("--schema", help="A JSON Schema that the result must fit.")] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", help="A JSON object of your own.")] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="The turn's own budget, a JSON object.")] = None,
    on_busy: Annotated[str | None, typer.Option("--on-busy", help="enqueue, reject or interrupt.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key is the same turn, whenever it is posted.")
    ] = None,
    until_end: Annotated[bool, typer.Option("--wait", help="Wait for the turn's end and show it.")] = False,
    json: AsJson = False,
) -> None:
    """Post a turn and print its id; with --wait its end, and the exit code of `run`."""
    turn = turnkeeper.sessions.get(session_id).post_turn(
        prompt,
        output_schema=None if schema is None else orjson.loads(as_json(schema)),
        metadata=parse_json(metadata, "--metadata"),
        budget=parse_json(budget, "--budget"),
        on_busy=cast("OnBusy | None", on_busy),
        idempotency_key=idempotency_key,
    )
    if until_end:
        _end(turn.wait(), as_json=json)
    show_made(turn, as_json=json)


@over_api
def list_turns(
    turnkeeper: Turnkeeper,
    *,
    session: Annotated[str | None, typer.Option("--session", help="Only those of this session.")] = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """List turns, newest first."""
    if session is None:
        found = turnkeeper.turns.list(limit=limit)
    else:
        found = turnkeeper.sessions.get(session).turns(limit=limit)
    show_documents(found, COLUMNS, as_json=json)


@over_api
def show(
    turnkeeper: Turnkeeper,
    turn_id: TurnId,
    *,
    json: AsJson = False,
) -> None:
    """Show a turn as it is."""
    show_document(turnkeeper.turns.get(turn_id), as_json=json)


@over_api
def wait(
    turnkeeper: Turnkeeper,
    turn_id: TurnId,
    *,
    timeout_ms: TimeoutMs = None,
    json: AsJson = False,
) -> None:
    """Wait for a turn's end and show it; the exit code is that of `run`."""
    _end(turnkeeper.turns.get(turn_id).wait(timeout_ms), as_json=json)


@over_api
def cancel(
    turnkeeper: Turnkeeper,
    turn_id: TurnId,
    *,
    immediate: Annotated[bool, typer.Option("--immediate", help="Do not wait for the agent to stop.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for whoever reads the record.")] = None,
    json: AsJson = False,
) -> None:
    """Cancel a turn: at once while it is queued, else as soon as its agent has stopped."""
    turn = turnkeeper.turns.get(turn_id).cancel(mode="immediate" if immediate else "graceful", reason=reason)
    if json:
        show_document(turn, as_json=True)
    else:
        typer.echo(f"turn {turn.id} is {turn.status}" + ("" if turn.ended else ", asked to stop"), err=True)


@over_api
def submissions(
    turnkeeper: Turnkeeper,
    turn_id: TurnId,
    *,
    json: AsJson = False,
) -> None:
    """List what the agent submitted for the output schema, refused values too."""
    found = turnkeeper.turns.get(turn_id).submissions()
    show_documents(found, ("submission", "valid", "withheld", "value", "errors"), as_json=json)


@over_api
def tool_result(
    turnkeeper: Turnkeeper,
    turn_id: TurnId,
    tool_call_id: Annotated[str, typer.Argument(metavar="CALL", help="The call's id, from the turn's `pause`.")],
    *,
    output: Annotated[str | None, typer.Option("--output", help="What the tool gave.")] = None,
    error: Annotated[str | None, typer.Option("--error", help="Why it gave nothing.")] = None,
) -> None:
    """Answer the call of a tool that the app runs."""
    if (output is None) == (error is None):
        raise UsageRefused("give either --output or --error")
    turn = turnkeeper.turns.get(turn_id).answer_tool(tool_call_id, output=output, error=error)
    typer.echo(f"turn {turn.id} is {turn.status}", err=True)


def _end(turn: Turn, *, as_json: bool) -> None:
    show_document(turn, as_json=as_json)
    raise typer.Exit(exit_of_end(turn.status, turn.stop_reason))
