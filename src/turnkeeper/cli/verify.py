"""`turnkeeper verify`: is what was recorded intact? A data dir's chains, or an exported file's.

Works offline and beside a running server. What it proves, and what not, stands in README: the key lies with the
Guardian, so its holder could have written another chain; hence the heads that the turn side keeps of its own.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from turnkeeper.acs.keys import Keyring, read_secret
from turnkeeper.cli.exits import Exit, UsageRefused
from turnkeeper.cli.export import acs_session_id
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir
from turnkeeper.guardian.auditing import AuditFinding, Severity
from turnkeeper.guardian.ports import SessionSummary
from turnkeeper.guardian.verify import VerifyReport, verify_export, verify_stored
from turnkeeper.store.chain_reads import ChainReads
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.keys import OUTSIDE_LABEL, PLATFORM_LABEL, stored_keyring
from turnkeeper.wiring.platform import open_store
from turnkeeper.wiring.record import require_record
from turnkeeper.wiring.witness import Witness, witnesses

PAGE_SESSIONS: Final = 100
MAX_LINE_BYTES: Final = 4 * 1024 * 1024


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(verify)


def verify(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="An exported file. Without it: the data dir's chains.")
    ] = None,
    *,
    secret_file: Annotated[Path | None, typer.Option("--secret-file", help="The key that clients signed with.")] = None,
    key_id: Annotated[list[str] | None, typer.Option("--key-id", help="A label of that key.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="This session alone.")] = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Say whether what was recorded is intact.

    Recomputes every hash, signature, order and count, of a data dir or of an exported FILE. Exit 1 on a break.
    """
    if file is not None:
        report = _verify_file(file, secret_file, key_id or [])
    else:
        report = asyncio.run(verify_data_dir(_settings(config, data_dir, secret_file, key_id or []), session))
    typer.echo(render_json(report) if json else "\n".join(render_lines(report)))
    raise typer.Exit(Exit.DONE if report.intact else Exit.FAILED)


def _settings(
    config: Path | None, data_dir: Path | None, secret_file: Path | None, labels: Sequence[str]
) -> Configuration:
    if len(labels) > 1:
        raise UsageRefused("a data dir's --secret-file has one --key-id", hint="Further labels are files in its keys.")
    return load(config, data_dir, guardian__secret_file=secret_file, guardian__key_id=next(iter(labels), None))


def _verify_file(file: Path, secret_file: Path | None, labels: Sequence[str]) -> VerifyReport:
    if secret_file is None:
        raise UsageRefused("an exported file needs its key", hint="Add --secret-file FILE.")
    try:
        secret = read_secret(secret_file.read_bytes())
        keyring = Keyring(dict.fromkeys([OUTSIDE_LABEL, PLATFORM_LABEL, *labels], secret))
        with file.open("rb") as stream:
            report = verify_export(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""), keyring)
    except OSError as error:
        raise UsageRefused(f"{error.filename} cannot be read: {error.strerror}") from error
    if not report.sessions and not report.findings:
        raise UsageRefused(f"{file} is empty")
    return report


async def verify_data_dir(configuration: Configuration, session: str | None) -> VerifyReport:
    """The audit of every session of a data dir, or of one. Raises `UsageRefused`, `DataDirUnusable`."""
    folder = DataDir(configuration.settings.data_dir)
    record = require_record(configuration.settings, folder)
    seen = await _witnesses(configuration, folder)
    with ExitStack() as stack:
        summaries: Iterator[SessionSummary] = iter(())
        if record.is_there():
            reader = stack.enter_context(record.reader())
            summaries = _sessions(reader)
            keyring = _keyring(configuration, folder)
            wanted = None if session is None else acs_session_id(session)
            reports = [
                _verify_one(reader, summary, keyring, seen.pop(summary.session_id, None))
                for summary in summaries
                if wanted in (None, summary.session_id)
            ]
        else:
            reports = []
    if session is not None and not reports:
        raise UsageRefused(f"the Guardian knows no session {session}")
    lost = () if session is not None or configuration.settings.guardian.url else _lost(seen)
    return _merged(reports, lost)


def _keyring(configuration: Configuration, folder: DataDir) -> Keyring:
    chosen = configuration.settings.guardian
    # With a URL, the file is the key to somebody else's Guardian.
    file = chosen.secret_file if chosen.url is None else None
    try:
        return stored_keyring(folder, key_id=chosen.key_id, secret_file=file)
    except OSError as error:
        raise UsageRefused(f"{error.filename} cannot be read: {error.strerror}") from error


async def _witnesses(configuration: Configuration, folder: DataDir) -> dict[str, Witness]:
    if configuration.settings.store.url is None and not folder.turn_database.is_file():
        return {}
    async with open_store(Base(configuration, folder), read_only=True) as store:
        return {witness.acs_session_id: witness async for witness in witnesses(store)}


def _verify_one(reader: ChainReads, summary: SessionSummary, keyring: Keyring, witness: Witness | None) -> VerifyReport:
    heads = frozenset[str]() if witness is None or witness.head is None else frozenset({witness.head})
    counts = {} if witness is None else witness.counts
    return verify_stored(reader, summary, keyring, witnessed_heads=heads, platform_counts=counts)


def _sessions(reader: ChainReads) -> Iterator[SessionSummary]:
    after = ""
    while page := reader.sessions(after=after, limit=PAGE_SESSIONS):
        yield from page
        after = page[-1].session_id


def _lost(unseen: Mapping[str, Witness]) -> tuple[AuditFinding, ...]:
    return tuple(
        AuditFinding(
            "session_missing", Severity.BREAK, session_id, 0, "the platform was shown a chain that is not there"
        )
        for session_id, witness in sorted(unseen.items())
        if witness.head is not None
    )


def _merged(reports: Sequence[VerifyReport], lost: tuple[AuditFinding, ...]) -> VerifyReport:
    whole = VerifyReport(lost, ())
    for report in reports:
        whole = replace(
            whole,
            findings=whole.findings + report.findings,
            sessions=whole.sessions + report.sessions,
            omitted=whole.omitted + report.omitted,
        )
    return whole


def render_lines(report: VerifyReport) -> Iterator[str]:
    """The report for a person."""
    for found in report.findings:
        where = f"{found.session_id or 'file'} row {found.row}" if found.row else found.session_id or "file"
        yield f"{found.severity.value}: {where}: {found.message} [{found.code}]"
    if report.omitted:
        yield f"... and {report.omitted} more findings"
    for session in report.sessions:
        state = "closed" if session.closed else "open"
        yield f"session {session.session_id}: {session.entries} entries, {state}, head {session.head or 'none'}"
        for turn in session.turns:
            ended = turn.outcome or "no turnEnd yet"
            yield f"  turn {turn.turn_id}: {ended}, {turn.steps} steps, {turn.tool_calls} tool calls"
    entries = sum(session.entries for session in report.sessions)
    verdict = "intact" if report.intact else "BROKEN"
    yield f"{verdict}: {len(report.sessions)} sessions, {entries} entries, every hash and signature recomputed"


def render_json(report: VerifyReport) -> str:
    """The report for a program."""
    document = {
        "intact": report.intact,
        "findings": [asdict(found) for found in report.findings],
        "omitted": report.omitted,
        "sessions": [asdict(session) for session in report.sessions],
    }
    return orjson.dumps(document).decode()
