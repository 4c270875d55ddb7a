"""`turnkeeper validate FILE`: is this a legal `turn.completed` or `turnEnd`, whoever wrote it?"""

import sys
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from turnkeeper.acs.strictjson import JsonLimits, parse_strict
from turnkeeper.cli.exits import Exit, UsageRefused
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.events.founding import Finding, check_founding, identify

MAX_DOCUMENT_BYTES: Final = 8 * 1024 * 1024


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(validate)


def validate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The document: data, event, payload or ACS request. - is stdin.")
    ],
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    *,
    json: AsJson = False,
) -> None:
    """Check a turn.completed or a turnEnd.

    Whoever wrote it; what is wrong is named with its place. Exit 1 when something is.
    """
    del config, data_dir
    document = parse_strict(_read(file), JsonLimits(max_bytes=MAX_DOCUMENT_BYTES))
    kind = identify(document)
    findings = check_founding(document)
    if json:
        report = {"kind": kind, "valid": not findings, "findings": [_as_json(finding) for finding in findings]}
        typer.echo(orjson.dumps(report))
    else:
        _print(str(file), kind, findings)
    raise typer.Exit(Exit.FAILED if findings else Exit.DONE)


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1) if str(file) == "-" else _read_file(file)
    except OSError as error:
        raise UsageRefused(f"{file} cannot be read: {error.strerror}") from error


def _read_file(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(MAX_DOCUMENT_BYTES + 1)


def _print(name: str, kind: str, findings: list[Finding]) -> None:
    for finding in findings:
        typer.echo(f"{name}: {finding.pointer or '/'}: {finding.message} [{finding.kind.value}: {finding.code}]")
    typer.echo(f"{name}: not a valid {kind}" if findings else f"{name}: a valid {kind}")


def _as_json(finding: Finding) -> dict[str, str]:
    return {
        "kind": finding.kind.value,
        "code": finding.code,
        "pointer": finding.pointer,
        "message": finding.message,
    }
