"""`turnkeeper verify`: is what was recorded intact? A data dir's chains, or one file of any kind that there is.

Works offline and beside a running server, and changes nothing. What it proves, and what not, stands in
docs/how-to/audit.md: the key lies with the Guardian, so its holder could have written another chain; hence the heads
that the turn side keeps of its own.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer

from turnkeeper.acs import Keyring, read_secret
from turnkeeper.cli.exits import Exit, UsageRefused
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.cli.verify_data import keys_of, verify_data_dir
from turnkeeper.cli.verify_report import render_json, render_lines
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir
from turnkeeper.guardian.archive_audit import is_archive, verify_archive
from turnkeeper.guardian.client_stream import is_client_record, verify_client_stream
from turnkeeper.guardian.decision_audit import verify_decision_log
from turnkeeper.guardian.decisions import is_log_line
from turnkeeper.guardian.known_steps import KnownSteps, members_of, steps_of_archive, steps_of_export
from turnkeeper.guardian.traffic import is_exchange, verify_traffic
from turnkeeper.guardian.verify import VerifyReport, verify_export
from turnkeeper.store.archives import lines_of
from turnkeeper.wiring.keys import OUTSIDE_LABEL, PLATFORM_LABEL

Lines: TypeAlias = Iterable[bytes]
_Read = TypeVar("_Read")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(verify)


def verify(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="An export, an archive, a decision log, captured traffic or an agent's audit log."
            " Without it: the data dir's chains.",
        ),
    ] = None,
    *,
    against: Annotated[
        Path | None, typer.Option("--against", help="The Guardian's export or archive to hold FILE against.")
    ] = None,
    secret_file: Annotated[Path | None, typer.Option("--secret-file", help="The key that clients signed with.")] = None,
    key_id: Annotated[list[str] | None, typer.Option("--key-id", help="A label of that key.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="This session alone.")] = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Say whether what was recorded is intact.

    Recomputes every hash, signature, order and count, of a data dir or of a FILE; a FILE needs --secret-file, or the
    keys of a --data-dir. Exit 1 on a break.
    """
    labels = key_id or []
    if file is None:
        if against is not None:
            raise UsageRefused("--against belongs to a FILE")
        report = asyncio.run(verify_data_dir(_settings(config, data_dir, secret_file, labels), session))
    else:
        keyring = _keyring(config, data_dir, secret_file, labels)
        report = _reading(lambda: _verify_file(file, against, keyring))
    typer.echo(render_json(report) if json else "\n".join(render_lines(report)))
    raise typer.Exit(Exit.DONE if report.intact else Exit.FAILED)


def _settings(
    config: Path | None, data_dir: Path | None, secret_file: Path | None, labels: Sequence[str]
) -> Configuration:
    if len(labels) > 1:
        raise UsageRefused("a data dir's --secret-file has one --key-id", hint="Further labels are files in its keys.")
    return load(config, data_dir, guardian__secret_file=secret_file, guardian__key_id=next(iter(labels), None))


def _keyring(config: Path | None, data_dir: Path | None, secret_file: Path | None, labels: Sequence[str]) -> Keyring:
    if secret_file is not None:
        secret = read_secret(_reading(secret_file.read_bytes))
        return Keyring(dict.fromkeys([OUTSIDE_LABEL, PLATFORM_LABEL, *labels], secret))
    if data_dir is None:
        raise UsageRefused("a file needs its key", hint="Add --secret-file FILE, or --data-dir D for the keys there.")
    settings = load(config, data_dir).settings
    return keys_of(settings.guardian, DataDir(settings.data_dir))


def _verify_file(file: Path, against: Path | None, keyring: Keyring) -> VerifyReport:
    first, lines = _opened(file)
    members = members_of(first)
    if is_client_record(members):
        if against is None:
            raise UsageRefused(f"{file} is an agent's audit log", hint="Add --against with the Guardian's export.")
        return _joined(against, keyring, lambda known: verify_client_stream(lines, known))
    if is_exchange(members):
        if against is None:
            return verify_traffic(lines, keyring)
        return _joined(against, keyring, lambda known: verify_traffic(lines, keyring, known))
    if against is not None:
        raise UsageRefused("--against belongs to captured traffic or an agent's audit log")
    return _verify_record(first, lines, keyring)


def _verify_record(first: bytes, lines: Lines, keyring: Keyring) -> VerifyReport:
    """The audit of what a Guardian wrote."""
    if is_archive(first):
        return verify_archive(lines, keyring)
    if is_log_line(members_of(first)):
        return verify_decision_log(lines, keyring)
    return verify_export(lines, keyring)


def _joined(against: Path, keyring: Keyring, join: Callable[[KnownSteps], VerifyReport]) -> VerifyReport:
    """The audit of another stream, which is worth what the Guardian's record is worth, so that is verified too."""
    first, lines = _opened(against)
    record = _verify_record(first, lines, keyring)
    steps = steps_of_archive if is_archive(first) else steps_of_export
    report = join(KnownSteps(steps(lines_of(against))))
    return replace(
        record,
        findings=record.findings + report.findings,
        omitted=record.omitted + report.omitted,
        compared=report.compared,
    )


def _opened(file: Path) -> tuple[bytes, Iterator[bytes]]:
    lines = lines_of(file)
    first = next(lines, None)
    if first is None:
        raise UsageRefused(f"{file} is empty")
    return first, chain([first], lines)


def _reading(work: Callable[[], _Read]) -> _Read:
    try:
        return work()
    except OSError as error:
        raise UsageRefused(f"{error.filename} cannot be read: {error.strerror}") from error
