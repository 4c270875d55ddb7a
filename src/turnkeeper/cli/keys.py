"""`turnkeeper keys`: API keys of a data dir. Works beside a running server."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import orjson
import typer

from turnkeeper.api.auth import generate_secret
from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.cli.shown import parse_time
from turnkeeper.clock import SystemClock, render_time
from turnkeeper.datadir import DataDir
from turnkeeper.ids import RandomIds, is_id
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.access import ALL_SCOPES, DEFAULT_OVERLAP_HOURS, MAX_LIMIT, MAX_OVERLAP_HOURS, SCOPES, NewKey
from turnkeeper.turns.model import PROJECT_ID, ApiKey, KeyLimits
from turnkeeper.turns.ports import NotFound
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.platform import open_store

T = TypeVar("T")

KeyId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `keys list`.")]
LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=MAX_LIMIT, help="The key's own limit. Default: none of its own.")
]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Make, list, rotate and revoke API keys.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("rotate")(rotate)
    group.command("revoke")(revoke)
    app.add_typer(group, name="keys")


def create(
    *,
    name: Annotated[str, typer.Option("--name", help="Whose key it is, for the list.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="What it may do, once per scope. Default: everything.")
    ] = None,
    project: Annotated[
        str, typer.Option("--project", help="The project it belongs to: an id, or `new` for a fresh one.")
    ] = PROJECT_ID,
    agent: Annotated[
        list[str] | None, typer.Option("--agent", help="Only with this agent, once per agent. Default: all.")
    ] = None,
    requests_per_minute: LimitOption = None,
    concurrent_turns: LimitOption = None,
    queued_turns: LimitOption = None,
    streams: LimitOption = None,
    expires_at: Annotated[
        str | None, typer.Option("--expires-at", metavar="TIME", help="Until when, such as 2027-01-01T00:00:00Z.")
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Make a key and print its secret.

    It is shown this once and never stored.
    """
    made = generate_secret()
    new = NewKey(
        name,
        made.sha256,
        _project(project),
        scopes=_scopes(scope),
        agent_ids=_agents(agent),
        limits=KeyLimits(requests_per_minute, concurrent_turns, queued_turns, streams),
        expires_at=_expiry(expires_at),
    )
    key = _with_store(config, data_dir, lambda store: store.access().make_key(new, actor=None))
    typer.echo(f"project {key.project_id}", err=True)
    typer.echo(f"key {key.id} made", err=True)
    typer.echo(made.secret)


def list_keys(config: ConfigFile = None, data_dir: DataDirectory = None, *, json: AsJson = False) -> None:
    """List the keys.

    Secrets are not stored, so none can be shown.
    """
    keys = _with_store(config, data_dir, lambda store: store.keys())
    if json:
        typer.echo(orjson.dumps([_as_json(key) for key in keys]))
        return
    now = SystemClock().now()
    for key in keys:
        typer.echo(f"{key.id}  {render_time(key.created_at)}  {_state(key, now)}  {','.join(key.scopes)}  {key.name}")


def rotate(
    key_id: KeyId,
    overlap_hours: Annotated[
        int, typer.Option("--overlap-hours", min=0, max=MAX_OVERLAP_HOURS, help="How long the older secret works too.")
    ] = DEFAULT_OVERLAP_HOURS,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Give a key another secret and print it.

    It is shown this once and never stored. The id stays, and what belongs to the key.
    """
    made = generate_secret()
    key = _of_key(
        config,
        data_dir,
        key_id,
        lambda store: store.access().rotate_key(
            key_id, secret_sha256=made.sha256, overlap_hours=overlap_hours, actor=None
        ),
    )
    typer.echo(f"key {key.id} rotated; the older secret works for {overlap_hours} h", err=True)
    typer.echo(made.secret)


def revoke(
    key_id: KeyId,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Revoke a key.

    The next request that shows it is refused.
    """
    key = _of_key(config, data_dir, key_id, lambda store: store.revoke_key(key_id))
    typer.echo(f"key {key.id} revoked", err=True)


def _project(text: str) -> str:
    if text == "new":
        return RandomIds(SystemClock()).new("prj")
    if not is_id(text, "prj"):
        raise UsageRefused(f"{text} is not the id of a project", hint="Give an id, or `new`.")
    return text


def _scopes(given: list[str] | None) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(given or [ALL_SCOPES]))
    unknown = next((scope for scope in scopes if scope not in (ALL_SCOPES, *SCOPES)), None)
    if unknown is not None:
        raise UsageRefused(f"{unknown} is no scope", hint=f"There are {', '.join(SCOPES)}.")
    return scopes


def _agents(given: list[str] | None) -> tuple[str, ...]:
    agents = tuple(dict.fromkeys(given or []))
    unknown = next((agent for agent in agents if not is_id(agent, "agt")), None)
    if unknown is not None:
        raise UsageRefused(f"{unknown} is not the id of an agent")
    return agents


def _expiry(text: str | None) -> datetime | None:
    expires_at = parse_time(text, "--expires-at")
    if expires_at is not None and expires_at <= SystemClock().now():
        raise UsageRefused("--expires-at is not in the future")
    return expires_at


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return f"revoked {render_time(key.revoked_at)}"
    if key.expires_at is None:
        return "valid"
    return f"{'valid until' if key.is_valid(now) else 'expired'} {render_time(key.expires_at)}"


def _of_key(config: Path | None, data_dir: Path | None, key_id: str, work: Callable[[SqlTurnStore], Awaitable[T]]) -> T:
    try:
        return _with_store(config, data_dir, work)
    except NotFound as error:
        raise UsageRefused(f"there is no key {key_id}", hint="`turnkeeper keys list` shows them.") from error


def _with_store(config: Path | None, data_dir: Path | None, work: Callable[[SqlTurnStore], Awaitable[T]]) -> T:
    configuration = load(config, data_dir)
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()

    async def main() -> T:
        async with open_store(Base(configuration, folder)) as store:
            return await work(store)

    return asyncio.run(main())


def _as_json(key: ApiKey) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "project_id": key.project_id,
        "scopes": key.scopes,
        "agent_ids": key.agent_ids,
        "limits": asdict(key.limits),
        "created_at": render_time(key.created_at),
        "expires_at": render_time(key.expires_at) if key.expires_at else None,
        "last_used_at": render_time(key.last_used_at) if key.last_used_at else None,
        "revoked_at": render_time(key.revoked_at) if key.revoked_at else None,
    }


def _nothing() -> None:
    return
