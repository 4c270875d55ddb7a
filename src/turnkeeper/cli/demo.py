"""`turnkeeper demo`: three turns on a fresh data dir, and what can be proved of them afterwards.

The first is the real local model's own work. In the other two the model's steps are scripted and say so; Guardian,
boxes, tools, budgets, events and chain are the real ones throughout.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, cast

import orjson
import typer
from rich.console import Console
from rich.text import Text

from turnkeeper.api.intake import parse_agent
from turnkeeper.cli import demo_script
from turnkeeper.cli.exits import Exit
from turnkeeper.cli.options import ConfigFile, DataDirectory, load
from turnkeeper.cli.run_files import json_body
from turnkeeper.cli.turn_view import shorten, show_end, show_step
from turnkeeper.cli.verify_data import verify_data_dir
from turnkeeper.cli.verify_report import render_lines
from turnkeeper.clock import SystemClock
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, hold
from turnkeeper.events.envelope import Event
from turnkeeper.guardian.verify import VerifyReport
from turnkeeper.ids import uuid_of
from turnkeeper.logs import setup_logging
from turnkeeper.sandbox.local_model import MODEL_NAME, find_weights
from turnkeeper.store.guardian_database import GuardianDatabase
from turnkeeper.testing.scripted_model import ScriptedModel
from turnkeeper.turns.model import Budget, Turn
from turnkeeper.turns.payloads import TURN_END
from turnkeeper.turns.ports import NewTurn
from turnkeeper.wiring.one_turn import TurnDesk
from turnkeeper.wiring.platform import Platform, open_platform
from turnkeeper.wiring.record import guardian_record

DEFAULT_TEXT: Final = (
    "The lighthouse keeper climbed the stairs every evening for forty years. Last winter the lamp was replaced by a "
    "machine, and now she teaches the village children how to read the stars."
)
MAX_EVENTS: Final = 1_000
MAX_TEXT_CHARACTERS: Final = 4_000
READER: Final[dict[str, object]] = {
    "name": "reader",
    "instructions": "You read a text and describe it.",
    "model": {"provider": "local", "id": MODEL_NAME, "params": {"temperature": 0, "max_tokens": 256}},
}
RESULT_SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 60},
        "summary": {"type": "string", "minLength": 1, "maxLength": 160},
    },
    "required": ["title", "summary"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """What the three acts share."""

    platform: Platform
    desk: TurnDesk
    console: Console


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(demo)


def demo(
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="The text that the turns are about.")] = DEFAULT_TEXT,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Show three governed turns.

    One with a result, one that is denied a tool, one at its budget; then what can be proved of them.
    """
    find_weights()
    setup_logging("warning")
    console = Console(highlight=False, soft_wrap=True)
    with _folder(data_dir) as root:
        folder = DataDir(root)
        folder.prepare()
        with hold(folder, command="turnkeeper demo", clock=SystemClock()):
            report = asyncio.run(_demo(console, text[:MAX_TEXT_CHARACTERS], config, folder))
    raise typer.Exit(Exit.DONE if report.intact else Exit.FAILED)


@contextmanager
def _folder(data_dir: Path | None) -> Generator[Path, None, None]:
    if data_dir is not None:
        yield data_dir.absolute()
        return
    root = Path(tempfile.mkdtemp(prefix="tk-demo-"))
    try:
        yield root
    finally:
        shutil.rmtree(root)


async def _demo(console: Console, text: str, config: Path | None, folder: DataDir) -> VerifyReport:
    async with ScriptedModel(lambda seen: demo_script.play(text, seen)) as scripted:
        configuration = _configuration(config, folder, scripted.base_url)
        async with open_platform(configuration, folder) as platform:
            stage = Stage(platform, TurnDesk(platform), console)
            first = await _act_one(stage, text)
            second = await _acts_with_scripted_steps(stage, scripted)
            await _show_events(stage, [*first, *second])
    _show_turn_ends(
        console, guardian_record(configuration.settings, folder), [turn.session_id for turn in (first[0], second[0])]
    )
    report = await verify_data_dir(configuration, None)
    _heading(console, "verify", "every hash and signature, recomputed from the files")
    for line in render_lines(report):
        console.print(Text(f"  {line}", "" if report.intact else "red"))
    return report


def _configuration(config: Path | None, folder: DataDir, scripted_url: str) -> Configuration:
    return load(
        config,
        folder.root,
        sandbox__warm=1,
        providers__local__kind="local",
        providers__scripted__kind="openai",
        providers__scripted__base_url=scripted_url,
    )


async def _act_one(stage: Stage, text: str) -> list[Turn]:
    _heading(stage.console, "1  a result", f"model: {MODEL_NAME}, running on this machine, nothing scripted")
    stage.console.print(Text(f"  text    {shorten(text)}", "dim"))
    session_id = await _open(stage, READER)
    prompt = f"Describe this text with a title and a summary of one sentence.\n\n{text}"
    return [await _act(stage, _turn(session_id, prompt, schema=RESULT_SCHEMA), last=True)]


async def _acts_with_scripted_steps(stage: Stage, scripted: ScriptedModel) -> list[Turn]:
    session_id = await _open(stage, demo_script.AGENT)
    _heading(stage.console, "2  a denial", "model steps: SCRIPTED (provider `scripted`); verdicts and tools are real")
    denied = await _act(stage, _turn(session_id, demo_script.GUARDED_PROMPT))
    _show_what_the_agent_got(stage.console, scripted)
    _heading(
        stage.console,
        "3  a budget",
        f"at most {demo_script.BUDGET_CALLS} model calls; model steps: SCRIPTED, they would never end",
    )
    budget = Budget(max_model_calls=demo_script.BUDGET_CALLS)
    unfinished = await _act(stage, _turn(session_id, demo_script.BUDGET_PROMPT, budget=budget), last=True)
    return [denied, unfinished]


async def _open(stage: Stage, agent: Mapping[str, object]) -> str:
    return await stage.desk.open_session(parse_agent(json_body(orjson.dumps(agent), "the agent"), stage.platform.api))


async def _act(stage: Stage, new: NewTurn, *, last: bool = False) -> Turn:
    posted = await stage.desk.post(new, last=last)
    async for step in stage.desk.steps(posted):
        show_step(stage.console, step)
    if last:
        async for step in stage.desk.last_steps(new.session_id):
            show_step(stage.console, step)
    turn = await stage.desk.turn(posted)
    show_end(stage.console, turn)
    return turn


def _turn(
    session_id: str, prompt: str, *, schema: Mapping[str, object] | None = None, budget: Budget | None = None
) -> NewTurn:
    return NewTurn(
        session_id=session_id,
        input_text=prompt,
        input_json=orjson.dumps(prompt).decode(),
        output_schema_json=None if schema is None else orjson.dumps(schema).decode(),
        metadata_json='{"from":"demo"}',
        budget=budget,
        max_repair_attempts=3,
        idempotency_key=None,
        fingerprint=None,
    )


def _show_what_the_agent_got(console: Console, scripted: ScriptedModel) -> None:
    """From the request that reached the model, which is all an agent ever learns."""
    got = [message for message in scripted.requests[-1].messages if message["role"] == "tool"]
    console.print(Text("  what the agent got back for its calls, as it was sent to its model:"))
    for message in got:
        console.print(Text(f"    {shorten(str(message.get('content')))}", "cyan"))


async def _show_events(stage: Stage, turns: list[Turn]) -> None:
    _heading(stage.console, "events", "what an app reads, in the order of its session")
    for number, session_id in enumerate(dict.fromkeys(turn.session_id for turn in turns), start=1):
        for event in await stage.platform.store.events(session_id, after=0, limit=MAX_EVENTS):
            line = f"  session {number}  {event.sequence:>3}  {event.source:<9} {event.type:<22}"
            stage.console.print(Text.assemble(line, (_gist(event), "dim")))


def _gist(event: Event) -> str:
    data = cast("dict[str, object]", orjson.loads(event.data))
    if event.type == "model.called":
        return f"provider {data['provider']}, {data['model']}, {data['finish_reason']}"
    if event.type == "tool.requested":
        return shorten(f"{data['name']} {orjson.dumps(data['input']).decode()}")[:80]
    if event.type == "tool.decided":
        return f"{data['decision']} {', '.join(cast('list[str]', data['reasons']))}"
    if event.type == "tool.completed":
        return shorten(f"{data['status']}: {data['output']}")[:80]
    return str(data.get("stop_reason") or "")


def _show_turn_ends(console: Console, record: GuardianDatabase, session_ids: list[str]) -> None:
    _heading(console, "turnEnd", "the entries in the Guardian's chain, with their counts")
    with record.reader() as reader:
        for session_id in session_ids:
            for row in reader.rows(uuid_of(session_id)):
                request = cast("dict[str, dict[str, object]]", orjson.loads(row.request or b"{}"))
                if cast("object", request.get("method")) != TURN_END or row.entry is None:
                    continue
                payload, entry = request["params"]["payload"], cast("dict[str, str]", orjson.loads(row.entry))
                console.print(Text(f"  {orjson.dumps(payload).decode()}"))
                console.print(Text(f"    entry {entry['entry_hash']}", "dim"))


def _heading(console: Console, title: str, note: str) -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), ("   " + note, "dim")))
