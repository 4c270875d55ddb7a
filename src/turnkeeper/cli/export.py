"""`turnkeeper export SESSION`: what a session asked and was answered, as JSON lines. Works beside a running server."""

import sys
from typing import Annotated

import typer

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import ConfigFile, DataDirectory, load
from turnkeeper.datadir import DataDir
from turnkeeper.guardian.export import export_lines
from turnkeeper.ids import is_id, uuid_of
from turnkeeper.wiring.record import require_record


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(export)


def export(
    session: Annotated[
        str,
        typer.Argument(
            metavar="SESSION", help="A session of ours (ses_...), a subagent (thr_...) or an ACS session id."
        ),
    ],
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Print a session's steps as JSON lines.

    Each has four members: request, response, entry, turn_id.
    """
    settings = load(config, data_dir).settings
    with require_record(settings, DataDir(settings.data_dir)).reader() as reader:
        lines = 0
        if (archived := reader.archived_session(acs_session_id(session))) is not None:
            raise UsageRefused(
                f"the session {session} is archived", hint=f"Its record is the archive {archived.archive_file}."
            )
        for line in export_lines(reader, acs_session_id(session)):
            sys.stdout.buffer.write(line)
            lines += 1
        sys.stdout.buffer.flush()
    if lines == 0:
        raise UsageRefused(
            f"the Guardian knows no session {session}", hint="`turnkeeper verify` lists the sessions it knows."
        )


def acs_session_id(session: str) -> str:
    """The id under which the Guardian knows a session: ours carry the same bits as a UUID, and so do subagents'."""
    return uuid_of(session) if is_id(session, "ses") or is_id(session, "thr") else session
