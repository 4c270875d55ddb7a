"""`turnkeeper run "PROMPT"`: one turn in the terminal, on a data dir of its own, through the same platform.

Exit 0 when the turn completed (also at its budget), 1 when it failed, 2 for a usage error, 3 when the Guardian denied
it, 130 when it was canceled.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from turnkeeper.api.reads import read_turn
from turnkeeper.cli.exits import Exit, UsageRefused, exit_of_turn
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.cli.run_files import bind_workspace, new_agent, new_turn
from turnkeeper.cli.turn_view import show_end, show_step
from turnkeeper.clock import SystemClock
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, hold
from turnkeeper.logs import setup_logging
from turnkeeper.turns.model import Turn
from turnkeeper.turns.schema_rules import OutputSchemaInvalid
from turnkeeper.wiring.one_turn import Posted, TurnDesk
from turnkeeper.wiring.platform import Platform, open_platform


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What was typed."""

    prompt: str
    agent: Path | None
    schema: Path | None
    workspace: Path | None
    json: bool


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(run)


def run(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the turn is about.")],
    *,
    agent: Annotated[Path | None, typer.Option("--agent", help="An agent's JSON or TOML file.")] = None,
    schema: Annotated[Path | None, typer.Option("--schema", help="A JSON Schema that the result must fit.")] = None,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", help="The folder tools work in. Run as root, its files change their owner."),
    ] = None,
    json: AsJson = False,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Run one turn in this terminal.

    Shows each step with its verdict, the result, and what was used. Exit 0 completed (also at its budget), 1 failed,
    2 used wrongly, 3 denied, 130 canceled.
    """
    # No box is kept warm: it would be thrown away unused.
    configuration = load(config, data_dir, data_dir_name="run", sandbox__warm=0)
    setup_logging("warning", log_format=configuration.settings.log.format)
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()
    request = RunRequest(prompt, agent, schema, workspace, json)
    with hold(folder, command="turnkeeper run", clock=SystemClock()):
        raise typer.Exit(asyncio.run(_run(configuration, folder, request)))


async def _run(configuration: Configuration, folder: DataDir, request: RunRequest) -> Exit:
    console = Console(stderr=request.json, highlight=False, soft_wrap=True)
    async with open_platform(configuration, folder) as platform:
        desk = TurnDesk(platform)
        turn = await _one_turn(platform, desk, folder, request, console)
        if request.json:
            typer.echo(await read_turn(platform.store, turn))
        else:
            show_end(console, turn)
            console.print(f"[dim]verify it: turnkeeper verify --data-dir {folder.root}[/]")
        return exit_of_turn(turn)


async def _one_turn(platform: Platform, desk: TurnDesk, folder: DataDir, request: RunRequest, console: Console) -> Turn:
    agent = new_agent(request.agent, platform.api)
    if request.workspace is not None and not request.workspace.is_dir():
        raise UsageRefused(f"{request.workspace} is not a folder")
    session_id = await desk.open_session(agent)
    if request.workspace is not None:
        bind_workspace(folder.workspaces, session_id, request.workspace)
    repairs = agent.limits.max_repair_attempts
    try:
        new = new_turn(request.prompt, session_id, request.schema, platform.api, repairs)
        posted = await desk.post(new, last=True)
    except OutputSchemaInvalid as invalid:
        raise UsageRefused(f"{request.schema}: {invalid.message}", hint=invalid.hint) from invalid
    async with _canceled_by_ctrl_c(desk, posted):
        async for step in desk.steps(posted):
            show_step(console, step)
        async for step in desk.last_steps(session_id):
            show_step(console, step)
    return await desk.turn(posted)


@asynccontextmanager
async def _canceled_by_ctrl_c(desk: TurnDesk, posted: Posted) -> AsyncGenerator[None, None]:
    """The first Ctrl-C asks the turn to stop, the second does not wait for the agent."""
    asked: set[asyncio.Task[None]] = set()

    def arrived() -> None:
        asked.add(asyncio.create_task(desk.cancel(posted, immediate=bool(asked))))

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, arrived)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await asyncio.gather(*asked)
