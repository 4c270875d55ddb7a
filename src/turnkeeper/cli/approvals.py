"""`turnkeeper approvals`: questions that steps wait for, and answers to them. Works beside a running Guardian.

Whoever answers shows an API key that may (`turnkeeper guardian keys create --scope approvals:decide`), as over HTTP;
reading needs no more than the data dir. Ids that begin with `apr_` are approvals of our own turns
(`cli.turn_approvals`).
"""

from pathlib import Path
from typing import Annotated

import orjson
import typer

from turnkeeper.cli.approval_lists import ALL, Door, doors_of, questions
from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.guardian import PAGE, Limit, open_desk
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.cli.turn_approvals import (
    Place,
    Said,
    decide_of_turn,
    is_turn_approval,
    show_of_turn,
)
from turnkeeper.clock import SystemClock, epoch_ms
from turnkeeper.guardian.apikeys import DECIDE, GuardianKey, is_secret, secret_sha256
from turnkeeper.guardian.approvals import ApprovalAnswer, ApprovalRefused, ApprovalScope
from turnkeeper.guardian.views import approval_view, input_of
from turnkeeper.store.guardian_desk import GuardianDesk
from turnkeeper.turns.approvals import APPROVAL_STATUSES

MAX_KEY_FILE_BYTES = 4_096

ApprovalId = Annotated[str, typer.Argument(help="An approval, from `approvals list`.")]
KeyFile = Annotated[Path, typer.Option("--key-file", metavar="FILE", help="File with the approver's API key.")]
Note = Annotated[str | None, typer.Option("--note", help="Why, for whoever reads the record.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="See what steps wait for, and answer.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command("list")(list_approvals)
    group.command()(show)
    group.command()(approve)
    group.command()(deny)
    app.add_typer(group, name="approvals")


def list_approvals(
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    *,
    status: Annotated[
        str, typer.Option("--status", help="pending, approved, denied, expired, canceled or all.")
    ] = "pending",
    limit: Limit = PAGE,
    turns: Annotated[bool, typer.Option("--turns", help="Approvals of turns alone.")] = False,
    guardian: Annotated[bool, typer.Option("--guardian", help="The Guardian's own questions alone.")] = False,
    json: AsJson = False,
) -> None:
    """List questions of turns and of the Guardian, those that wait for an answer unless told otherwise."""
    if status != ALL and status not in APPROVAL_STATUSES:
        raise UsageRefused(f"--status is one of {', '.join(APPROVAL_STATUSES)}, {ALL}")
    place = Place(config, data_dir)
    named = ([Door.TURNS] if turns else []) + ([Door.GUARDIAN] if guardian else [])
    found = questions(place, named or doors_of(place), status=status, limit=limit)
    if json:
        typer.echo(orjson.dumps([orjson.Fragment(row.document) for row in found]))
        return
    for row in found:
        typer.echo(f"{row.id}  {row.status}  {row.expires_at}  {row.about}")


def show(approval_id: ApprovalId, config: ConfigFile = None, data_dir: DataDirectory = None) -> None:
    """Print one question with the input that it is about, as JSON."""
    if is_turn_approval(approval_id):
        show_of_turn(Place(config, data_dir), approval_id)
        return
    desk = open_desk(config, data_dir)
    approval = desk.approval(approval_id)
    if approval is None:
        raise _unknown(approval_id)
    shown = approval_view(approval, epoch_ms(SystemClock().now()))
    shown["input"] = input_of(desk.request(approval.session_id, approval.request_id))
    typer.echo(orjson.dumps(shown, option=orjson.OPT_INDENT_2))


def approve(
    approval_id: ApprovalId,
    *,
    key_file: KeyFile,
    scope: Annotated[str, typer.Option("--scope", help="this_request or session.")] = ApprovalScope.THIS_REQUEST.value,
    input_hash: Annotated[
        str | None, typer.Option("--input-hash", help="Refuse unless the question is about this input.")
    ] = None,
    note: Note = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Grant a step. The agent learns it when it sends the step again."""
    if is_turn_approval(approval_id):
        remember = "session" if scope == ApprovalScope.SESSION.value else "once"
        said = Said("approve", remember, input_hash, note)
        decide_of_turn(Place(config, data_dir), approval_id, said, key_file)
        return
    answer = ApprovalAnswer("approve", scope, note, input_hash)
    _decide(open_desk(config, data_dir), approval_id, answer, key_file)


def deny(
    approval_id: ApprovalId,
    *,
    key_file: KeyFile,
    note: Note = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Deny a step for good."""
    if is_turn_approval(approval_id):
        decide_of_turn(Place(config, data_dir), approval_id, Said("deny", note=note), key_file)
        return
    _decide(open_desk(config, data_dir), approval_id, ApprovalAnswer("deny", note=note), key_file)


def _decide(desk: GuardianDesk, approval_id: str, answer: ApprovalAnswer, key_file: Path) -> None:
    approver = _key(desk, key_file).approver
    approval = desk.decide(approval_id, answer, approver, epoch_ms(SystemClock().now()))
    if approval is None:
        raise _unknown(approval_id)
    typer.echo(f"{approval.approval_id} {approval.status.value} by {approval.decided_by}", err=True)


def _key(desk: GuardianDesk, key_file: Path) -> GuardianKey:
    try:
        with key_file.open("rb") as stream:
            secret = stream.read(MAX_KEY_FILE_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageRefused(f"{key_file} cannot be read: {error.strerror}") from error
    key = desk.key_of_secret(secret_sha256(secret)) if is_secret(secret) else None
    if key is None or key.revoked_at_ms is not None:
        raise ApprovalRefused("the key is not known here or was revoked", code="key_invalid")
    if DECIDE not in key.scopes:
        raise ApprovalRefused(f"the key does not have the scope {DECIDE}", code="scope_missing")
    return key


def _unknown(approval_id: str) -> UsageRefused:
    return UsageRefused(f"there is no approval {approval_id}", hint="`turnkeeper approvals list` shows them.")


def _nothing() -> None:
    return
