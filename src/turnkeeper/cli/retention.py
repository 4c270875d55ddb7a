"""`turnkeeper guardian retain|archive|archived|decisions`: what of the record goes, what is left, who decided what."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import orjson
import typer

from turnkeeper.cli.exits import Exit, UsageRefused
from turnkeeper.cli.export import acs_session_id
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.clock import SystemClock, epoch_ms
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, hold
from turnkeeper.guardian.decisions import log_lines
from turnkeeper.guardian.ports import ArchivedSession
from turnkeeper.guardian.retention import MAX_PROBLEMS, RetentionReport, steps_of
from turnkeeper.guardian.views import render_ms
from turnkeeper.wiring.record import guardian_record, require_begun
from turnkeeper.wiring.retention import HOUR_MS, make_retention, recorded_keys, retention_rules

AfterHours = Annotated[
    int | None, typer.Option("--after-hours", min=0, help="How old; in place of the setting in guardian.retention.")
]


def register(group: typer.Typer) -> None:
    """Adds the commands below `turnkeeper guardian`."""
    group.command()(retain)
    group.command()(archive)
    group.command()(archived)
    group.command()(decisions)


def retain(
    config: ConfigFile = None, data_dir: DataDirectory = None, *, after_hours: AfterHours = None, json: AsJson = False
) -> None:
    """Erase the bodies of old requests and answers. Works beside a running server.

    Hashes, entries and signed decisions stay, so that the chain verifies on.
    """
    configuration, folder = _load(config, data_dir)
    rules = retention_rules(configuration.settings.guardian.retention)
    if after_hours is not None:
        rules = replace(rules, erase_content_after_ms=after_hours * HOUR_MS)
    if rules.erase_content_after_ms is None:
        raise UsageRefused("nothing says how old", hint="Add --after-hours N, or set guardian.retention.")
    retention = make_retention(configuration.settings, folder, rules)
    _tell(_until_done(retention.erase), json=json)


def archive(
    config: ConfigFile = None, data_dir: DataDirectory = None, *, after_hours: AfterHours = None, json: AsJson = False
) -> None:
    """Move closed sessions into signed archive files. Not beside a running server, which does it by itself.

    Each leaves its id, its head and the archive's digest behind, and can never be continued.
    """
    configuration, folder = _load(config, data_dir)
    rules = retention_rules(configuration.settings.guardian.retention)
    if after_hours is not None:
        rules = replace(rules, archive_after_ms=after_hours * HOUR_MS)
    if rules.archive_after_ms is None:
        raise UsageRefused("nothing says how old", hint="Add --after-hours N, or set guardian.retention.")
    # A Guardian that runs may remember a session, and would deny a whole batch for one that is gone.
    with hold(folder, command="turnkeeper guardian archive", clock=SystemClock()):
        report = _until_done(make_retention(configuration.settings, folder, rules).archive)
    _tell(report, json=json)


def archived(
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many at most.")] = 100,
    json: AsJson = False,
) -> None:
    """List sessions that have left for an archive."""
    configuration, folder = _load(config, data_dir)
    with guardian_record(configuration.settings, folder).reader() as reader:
        rows = [archived_view(one) for one in reader.archived(limit=limit)]
    if json:
        typer.echo(orjson.dumps(rows))
        return
    for row in rows:
        names = ("session_id", "archived_at", "entries", "chain_hash", "archive_file")
        typer.echo("  ".join(f"{name}={row[name]}" for name in names))


def decisions(
    session: Annotated[str, typer.Argument(help="A session of ours (ses_...) or an ACS session id.")],
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Print a session's signed decision log: each decision and its entry, and no content."""
    configuration, folder = _load(config, data_dir)
    session_id, record = acs_session_id(session), guardian_record(configuration.settings, folder)
    with record.reader() as reader:
        found = reader.session(session_id)
    if found is None:
        raise UsageRefused(
            f"the Guardian has no session {session}", hint="An archive has the decisions of its session."
        )
    key = recorded_keys(configuration.settings.guardian, folder).session_key(found.key_id, session_id)
    steps = steps_of(record.retention(), session_id, found.progress.recorded)
    for line in log_lines(steps, key):
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def archived_view(one: ArchivedSession) -> Mapping[str, object]:
    """What is left of an archived session."""
    return {
        "object": "guardian.archived_session",
        "session_id": one.session_id,
        "agent_id": one.agent_id,
        "key_id": one.key_id,
        "created_at": render_ms(one.created_at_ms),
        "archived_at": render_ms(one.archived_at_ms),
        "chain_hash": one.head,
        "records": one.recorded,
        "entries": one.entries,
        "tool_calls": one.tool_calls,
        "turns": one.turns,
        "archive_file": one.archive_file,
        "archive_sha256": one.archive_sha256,
    }


def _load(config: Path | None, data_dir: Path | None) -> tuple[Configuration, DataDir]:
    configuration = load(config, data_dir)
    folder = DataDir(configuration.settings.data_dir)
    require_begun(configuration.settings, folder)
    return configuration, folder


def _until_done(run: Callable[[int], RetentionReport]) -> RetentionReport:
    """Runs until no limit ends a run; a command has no decision to keep waiting."""
    whole, now_ms = RetentionReport(), epoch_ms(SystemClock().now())
    while True:
        report = run(now_ms)
        whole = RetentionReport(
            whole.erased_steps + report.erased_steps,
            whole.archived_sessions + report.archived_sessions,
            problems=tuple(dict.fromkeys(whole.problems + report.problems))[:MAX_PROBLEMS],
        )
        if not report.more:
            return whole


def _tell(report: RetentionReport, *, json: bool) -> None:
    if json:
        typer.echo(orjson.dumps(report))
    else:
        typer.echo(f"{report.erased_steps} steps erased, {len(report.archived_sessions)} sessions archived")
        for problem in report.problems:
            typer.echo(f"left as it is: {problem}", err=True)
    raise typer.Exit(Exit.FAILED if report.problems else Exit.DONE)
