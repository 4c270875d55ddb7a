"""What `turnkeeper approvals list` shows: questions of both doors of a data dir, each once, oldest first.

A turn that asks its Guardian waits for one question with two names: its approval's (`apr_`) and the Guardian's. Where
both doors are listed it is the approval's that is shown, since answering it answers both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

import orjson

from turnkeeper.api.approval_views import render_approval
from turnkeeper.cli.guardian import open_desk
from turnkeeper.cli.options import load
from turnkeeper.cli.turn_approvals import INLINE_BYTES, Place, approvals_of_turns
from turnkeeper.clock import SystemClock, epoch_ms
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir
from turnkeeper.guardian.approvals import ApprovalStatus, approval_id_of
from turnkeeper.guardian.views import approval_view
from turnkeeper.ids import uuid_of
from turnkeeper.turns.approvals import Approval
from turnkeeper.turns.approvals import ApprovalStatus as TurnApprovalStatus
from turnkeeper.wiring.record import guardian_record

ALL: Final = "all"


class Door(Enum):
    """Whose questions."""

    TURNS = "turns"
    GUARDIAN = "guardian"


@dataclass(frozen=True, slots=True)
class Question:
    """One row: a line for people, a document for programs."""

    id: str
    status: str
    created_at: str
    expires_at: str
    about: str
    document: bytes


def doors_of(place: Place) -> Sequence[Door]:
    """The doors that have a record here. Raises `DataDirUnusable` where nothing was ever started."""
    configuration = load(place.config, place.data_dir)
    folder = DataDir(configuration.settings.data_dir)
    doors = [
        *([Door.TURNS] if _has_turns(configuration, folder) else []),
        *([Door.GUARDIAN] if guardian_record(configuration.settings, folder).is_there() else []),
    ]
    if not doors:
        folder.require()
    return doors


def questions(place: Place, doors: Sequence[Door], *, status: str, limit: int) -> Sequence[Question]:
    """The questions of these doors, oldest first, at most `limit` of them."""
    own: Sequence[Approval] = _of_turns(place, status, limit) if Door.TURNS in doors else ()
    rows = [_turn_row(approval) for approval in own]
    if Door.GUARDIAN in doors:
        twins = {_twin(approval) for approval in own}
        rows += [row for row in _of_guardian(place, status, limit) if row.id not in twins]
    return sorted(rows, key=lambda row: row.created_at)[:limit]


def _has_turns(configuration: Configuration, folder: DataDir) -> bool:
    return configuration.settings.store.url is not None or folder.turn_database.is_file()


def _of_turns(place: Place, status: str, limit: int) -> Sequence[Approval]:
    wanted = None if status == ALL else cast("TurnApprovalStatus", status)
    return approvals_of_turns(place, status=wanted, limit=limit)


def _of_guardian(place: Place, status: str, limit: int) -> Sequence[Question]:
    if status != ALL and status not in tuple(ApprovalStatus):
        return []
    now_ms = epoch_ms(SystemClock().now())
    wanted = None if status == ALL else ApprovalStatus(status)
    found = open_desk(place.config, place.data_dir).approvals(status=wanted, after=0, limit=limit, now_ms=now_ms)
    return [_guardian_row(approval_view(approval, now_ms)) for _, approval in found]


def _twin(approval: Approval) -> str | None:
    request_id = approval.call.request_id
    return None if request_id is None else approval_id_of(uuid_of(approval.session_id), request_id)


def _turn_row(approval: Approval) -> Question:
    document = render_approval(approval, SystemClock().now(), inline_bytes=INLINE_BYTES)
    shown = orjson.loads(document)
    about = f"{approval.call.name}  {approval.question}"
    return Question(approval.id, shown["status"], shown["created_at"], shown["expires_at"], about, document)


def _guardian_row(view: dict[str, object]) -> Question:
    about = f"{view['tool'] or view['method']}  {view['question']}"
    id_, status, created_at, expires_at = (
        str(view[name]) for name in ("approval_id", "status", "created_at", "expires_at")
    )
    return Question(id_, status, created_at, expires_at, about, orjson.dumps(view))
