"""What commands read from files that people wrote: text within bounds, JSON or TOML."""

import tomllib
from pathlib import Path
from typing import Final

import orjson

from turnkeeper.cli.exits import UsageRefused

MAX_FILE_BYTES: Final = 1_048_576


def load_text(file: Path) -> bytes:
    """A file's content. Raises `UsageRefused`."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageRefused(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise UsageRefused(f"{file} is over {MAX_FILE_BYTES} bytes")
    return content


def as_json(file: Path) -> bytes:
    """A JSON or TOML file as JSON. Raises `UsageRefused`."""
    content = load_text(file)
    if file.suffix != ".toml":
        return content
    try:
        return orjson.dumps(tomllib.loads(content.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        raise UsageRefused(f"{file} is not usable TOML: {error}") from error
