"""`turnkeeper migrate`: brings turn store and Guardian's record to this version. On SQLite every start does it."""

import typer

from turnkeeper.cli.options import ConfigFile, DataDirectory, load
from turnkeeper.datadir import DataDir
from turnkeeper.store.admin import migrate as migrate_store
from turnkeeper.wiring.platform import store_url
from turnkeeper.wiring.record import guardian_record


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(migrate)


def migrate(config: ConfigFile = None, data_dir: DataDirectory = None) -> None:
    """Bring the turn store and the Guardian's record to this version.

    Stop workers and Guardians of an older version first.
    """
    settings = load(config, data_dir).settings
    folder = DataDir(settings.data_dir)
    folder.prepare()
    revision = migrate_store(store_url(settings, folder))
    typer.echo(f"the turn store is at {revision}")
    if settings.guardian.url is None:
        typer.echo(f"the Guardian's record is at {guardian_record(settings, folder).migrate()}")
