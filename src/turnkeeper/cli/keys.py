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
from turnkeeper.clock import render_time
from turnkeeper.datadir import DataDir
from turnkeeper.store.turn_store import SqlTurnStore
from turnkeeper.turns.model import ApiKey
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
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Make a key and print its secret.

    It is shown this once and never stored.
    """
    made = generate_secret()
    key = _with_store(config, data_dir, lambda store: store.create_key(name=name, secret_sha256=made.sha256))
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


def _with_store(config: Path | None, data_dir: Path | None, work: Callable[[SqlTurnStore], Awaitable[T]]) -> T:
    configuration = load(config, data_dir)
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()

    async def main() -> T:
        async with open_store(Base(configuration, folder)) as store:
            return await work(store)

    return asyncio.run(main())


def _as_json(key: ApiKey) -> dict[str, str | None]:
    return {
        "id": key.id,
        "name": key.name,
        "created_at": render_time(key.created_at),
        "revoked_at": render_time(key.revoked_at) if key.revoked_at else None,
    }


def _nothing() -> None:
    return
