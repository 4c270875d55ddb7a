"""What commands over the turn API print: a table or a list of members for people, JSON for programs."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.client import Document
from turnkeeper.clock import render_time

PIPE_WIDTH: Final = 1_000
"""Columns of what is no terminal: nothing is folded there."""


def render_json(document: Document) -> str:
    """The document as it came, on one line."""
    return json.dumps(document.members, ensure_ascii=False, separators=(",", ":"))


def show_documents(documents: Iterable[Document], columns: Sequence[str], *, as_json: bool) -> None:
    """A table of the documents' members, or a JSON array of the documents."""
    if as_json:
        typer.echo("[" + ",".join(map(render_json, documents)) + "]")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column.rpartition(".")[2], overflow="fold")
    for document in documents:
        table.add_row(*(Text(cell(member_of(document, column))) for column in columns))
    _console().print(table)


def show_document(document: Document, *, as_json: bool) -> None:
    """A document's members, one a line, or as JSON on one line."""
    if as_json:
        typer.echo(render_json(document))
        return
    width = max(map(len, document.members), default=0)
    for name, value in document.members.items():
        _console().print(Text.assemble((f"{name:<{width}}  ", "dim"), cell(value)), soft_wrap=True)


def member_of(document: Document, path: str) -> Any:
    """A member by its path; None where there is none."""
    value: Any = document.members
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return value  # pyright: ignore[reportUnknownVariableType]


def cell(value: Any) -> str:
    """A value for a person."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return render_time(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parse_json(text: str | None, option: str) -> Any:
    """What was typed as JSON; None for nothing. Raises `UsageRefused`."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageRefused(f"{option} is not JSON: {error}") from error


def parse_time(text: str | None, option: str) -> datetime | None:
    """What was typed as a time with its offset. Raises `UsageRefused`."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageRefused(f"{option} is no time such as 2026-12-01T10:00:00Z") from error
    if moment.tzinfo is None:
        raise UsageRefused(f"{option} has no offset from UTC, such as Z")
    return moment


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)
