"""`turnkeeper keys`: API keys of a data dir. Works beside a running server."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import orjson
import typer

from turnkeeper.api.auth import generate_secret
from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.clock import SystemClock, render_time
from turnkeeper.datadir import DataDir
from turnkeeper.ids import RandomIds, is_id
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.access import ALL_SCOPES, SCOPES, NewKey
from turnkeeper.turns.model import PROJECT_ID, ApiKey
from turnkeeper.turns.ports import NotFound
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.platform import open_store

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("revoke")(revoke)
    app.add_typer(group, name="keys")


def create(
    name: Annotated[str, typer.Option("--name", help="Whose key it is, for the list.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="What it may do, once per scope. Default: everything.")
    ] = None,
    project: Annotated[
        str, typer.Option("--project", help="The project it belongs to: an id, or `new` for a fresh one.")
    ] = PROJECT_ID,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Make a key and print its secret.

    It is shown this once and never stored.
    """
    made = generate_secret()
    new = NewKey(name, made.sha256, _project(project), scopes=_scopes(scope))
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
    for key in keys:
        state = f"revoked {render_time(key.revoked_at)}" if key.revoked_at else "valid"
        typer.echo(f"{key.id}  {render_time(key.created_at)}  {state}  {key.name}")


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `keys list`.")],
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Revoke a key.

    The next request that shows it is refused.
    """
    try:
        key = _with_store(config, data_dir, lambda store: store.revoke_key(key_id))
    except NotFound as error:
        raise UsageRefused(f"there is no key {key_id}", hint="`turnkeeper keys list` shows them.") from error
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
        "created_at": render_time(key.created_at),
        "revoked_at": render_time(key.revoked_at) if key.revoked_at else None,
    }


def _nothing() -> None:
    return
