"""Bytes that a command hands out: to standard output, or into a file that is not there yet."""

import os
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from turnkeeper.cli.exits import UsageRefused

Output: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Write there, over nothing. Default: standard output."),
]


def write_bytes(content: bytes, output: Path | None) -> None:
    """Writes them; over nothing that is there. Raises `UsageRefused`."""
    if output is None or str(output) == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageRefused(f"{output} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
