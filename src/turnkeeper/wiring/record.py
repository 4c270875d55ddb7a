"""Where our Guardian keeps its record: the database of the settings, or SQLite in the data dir."""

from turnkeeper.config import ConfigInvalid
from turnkeeper.datadir import DataDir, DataDirUnusable
from turnkeeper.settings import Settings
from turnkeeper.store.guardian_database import GuardianDatabase, SqliteGuardianDatabase, guardian_database
from turnkeeper.store.guardian_refusals import GuardianUrlInvalid


def guardian_record(settings: Settings, folder: DataDir) -> GuardianDatabase:
    """The Guardian's database; nothing is opened yet. Raises `ConfigInvalid`."""
    url = settings.guardian.database_url
    if url is None:
        return SqliteGuardianDatabase(folder.guardian_database)
    try:
        return guardian_database(url.get_secret_value())
    except GuardianUrlInvalid as invalid:
        raise ConfigInvalid(f"guardian.database_url: {invalid.message}", hint=invalid.hint) from invalid


def require_record(settings: Settings, folder: DataDir) -> GuardianDatabase:
    """The Guardian's database for commands that only read. Raises `ConfigInvalid`, `DataDirUnusable`, `StoreFailed`."""
    if settings.guardian.database_url is None:
        folder.require()
    return guardian_record(settings, folder)


def require_begun(settings: Settings, folder: DataDir) -> GuardianDatabase:
    """The same, where a Guardian has run. Raises `DataDirUnusable`, `ConfigInvalid`, `StoreFailed`."""
    record = guardian_record(settings, folder)
    if not record.is_there():
        where = folder.root if settings.guardian.database_url is None else "the database of guardian.database_url"
        raise DataDirUnusable(f"no Guardian has run on {where}")
    return record
