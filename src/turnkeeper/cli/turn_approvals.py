"""Approvals of turns on the command line: `turnkeeper approvals` with an `apr_` id.

Works beside a running server. Whoever answers shows an API key of the turn API, as over HTTP.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import orjson
import typer

from turnkeeper.api.approval_views import render_approval
from turnkeeper.api.auth import secret_sha256
from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import load
from turnkeeper.clock import SystemClock
from turnkeeper.datadir import DataDir
from turnkeeper.ids import is_id
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.approval_desk import ApprovalDesk
from turnkeeper.turns.approvals import (
    Approval,
    ApprovalAnswer,
    ApprovalStatus,
    ApprovalWord,
    DecidedBy,
    Remember,
)
from turnkeeper.turns.ports import NotFound, PageRequest
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.guardian import guardian_questions
from turnkeeper.wiring.platform import open_store

INLINE_BYTES: Final = 262_144
MAX_KEY_FILE_BYTES: Final = 4_096

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the turn store is."""

    config: Path | None
    data_dir: Path | None


def is_turn_approval(approval_id: str) -> bool:
    """Whether the id is of a turn's approval and not of a question of the Guardian's."""
    return is_id(approval_id, "apr")


def approvals_of_turns(place: Place, *, status: ApprovalStatus | None, limit: int) -> Sequence[Approval]:
    """The approvals of turns, oldest first; those with a status if one is given."""
    page = PageRequest(limit=limit, order="asc")
    return _with_store(place, lambda _, store: store.approvals(page, status=status)).items


def show_of_turn(place: Place, approval_id: str) -> None:
    """Prints one approval of a turn as JSON."""
    approval = _with_store(place, lambda _, store: _known(store.approval(approval_id), approval_id))
    shown = orjson.loads(render_approval(approval, SystemClock().now(), inline_bytes=INLINE_BYTES))
    typer.echo(orjson.dumps(shown, option=orjson.OPT_INDENT_2))


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody says on the command line."""

    word: ApprovalWord
    remember: Remember = "once"
    input_hash: str | None = None
    note: str | None = None


def decide_of_turn(place: Place, approval_id: str, said: Said, key_file: Path) -> None:
    """Answers one approval of a turn, and with it the Guardian's question."""

    async def decide(base: Base, store: SqlTurnStore) -> str:
        key = await store.key_by_secret(secret_sha256(_secret(key_file)))
        if key is None:
            raise UsageRefused(
                f"{key_file} holds no valid key of the turn API", hint="`turnkeeper keys create` makes one."
            )
        answer = ApprovalAnswer(
            said.word, DecidedBy("api_key", key.id), said.input_hash, remember=said.remember, note=said.note
        )
        async with guardian_questions(base) as questions:
            desk = ApprovalDesk(store, base.clock, questions)
            approval = await _known(desk.decide(approval_id, answer), approval_id)
        return f"{approval.id} {approval.status} by {key.name}"

    typer.echo(_with_store(place, decide), err=True)


async def _known(looked_up: Awaitable[T], approval_id: str) -> T:
    try:
        return await looked_up
    except NotFound as error:
        raise UsageRefused(
            f"there is no approval {approval_id}", hint="`turnkeeper approvals list` shows them."
        ) from error


def _secret(key_file: Path) -> str:
    try:
        with key_file.open("rb") as stream:
            return stream.read(MAX_KEY_FILE_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageRefused(f"{key_file} cannot be read: {error.strerror}") from error


def _with_store(place: Place, work: Callable[[Base, SqlTurnStore], Awaitable[T]]) -> T:
    configuration = load(place.config, place.data_dir)
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()

    async def main() -> T:
        base = Base(configuration, folder)
        async with open_store(base) as store:
            return await work(base, store)

    return asyncio.run(main())
