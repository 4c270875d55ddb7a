"""Retention of the Guardian's record: built from the settings, once for a command, or again and again in a server.

Answers for runs that end with the server and for a line in the log for each that did something. Must never keep a
decision waiting: a run works in a thread of its own, on a connection of its own.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog

from turnkeeper.acs.keys import Keyring
from turnkeeper.clock import Clock, epoch_ms
from turnkeeper.datadir import DataDir
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.guardian.retention import Retention, RetentionReport, RetentionRules
from turnkeeper.settings import GuardianSettings, RetentionSettings, Settings
from turnkeeper.store.archives import FolderArchives
from turnkeeper.turns.containment import contained
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.keys import stored_keyring
from turnkeeper.wiring.record import guardian_record

HOUR_MS: Final = 3_600_000
PAUSE_S: Final = 0.02
"""Between two changes of a run beside a Guardian that decides: SQLite's writers find each other by trying again."""

_log = structlog.get_logger(__name__)


def retention_rules(settings: RetentionSettings) -> RetentionRules:
    """The settings in milliseconds."""
    return RetentionRules(
        erase_content_after_ms=_ms(settings.erase_content_after_hours),
        archive_after_ms=_ms(settings.archive_after_hours),
        max_steps_per_run=settings.max_steps_per_run,
        max_sessions_per_run=settings.max_sessions_per_run,
    )


def make_retention(
    settings: Settings,
    folder: DataDir,
    rules: RetentionRules,
    *,
    forget: Callable[[str], None] | None = None,
    is_stopping: Callable[[], bool] | None = None,
    pause: Callable[[], object] | None = None,
) -> Retention:
    """Retention over a data dir; `forget` belongs to the Guardian that runs on it."""
    return Retention(
        guardian_record(settings, folder).retention(),
        archives_of(settings.guardian, folder),
        lambda: recorded_keys(settings.guardian, folder),
        rules,
        forget=forget,
        is_stopping=is_stopping,
        pause=pause,
    )


def archives_of(settings: GuardianSettings, folder: DataDir) -> FolderArchives:
    """Where the archives of a data dir's Guardian are."""
    return FolderArchives(settings.retention.archive_dir or folder.archives)


def recorded_keys(settings: GuardianSettings, folder: DataDir) -> Keyring:
    """Every key that sessions on a data dir may have been signed with. Raises `OSError` for a named file."""
    # With a URL, the file is the key to somebody else's Guardian.
    file = settings.secret_file if settings.url is None else None
    return stored_keyring(folder, key_id=settings.key_id, secret_file=file)


@asynccontextmanager
async def retaining(base: Base, guardian: Guardian) -> AsyncGenerator[None, None]:
    """Runs retention until the end of the block, where a setting asks for it."""
    rules = retention_rules(base.settings.guardian.retention)
    if rules.erase_content_after_ms is None and rules.archive_after_ms is None:
        yield
        return
    stopped = threading.Event()
    loop = asyncio.get_running_loop()
    retention = make_retention(
        base.settings,
        base.folder,
        rules,
        forget=lambda session_id: _told(loop, guardian, session_id),
        is_stopping=stopped.is_set,
        pause=lambda: stopped.wait(PAUSE_S),
    )
    ended = asyncio.Event()
    running = asyncio.create_task(
        _run_again_and_again(retention, base.clock, base.settings.guardian.retention.interval_ms, ended)
    )
    try:
        yield
    finally:
        stopped.set()
        ended.set()
        await running


def _told(loop: asyncio.AbstractEventLoop, guardian: Guardian, session_id: str) -> None:
    loop.call_soon_threadsafe(guardian.forget, session_id)


async def _run_again_and_again(retention: Retention, clock: Clock, interval_ms: int, ended: asyncio.Event) -> None:
    while not ended.is_set():
        await contained("guardian_retention", asyncio.to_thread(_run_once, retention, clock))
        try:
            await asyncio.wait_for(ended.wait(), interval_ms / 1000)
        except TimeoutError:
            continue


def _run_once(retention: Retention, clock: Clock) -> None:
    for work in (retention.erase, retention.archive):
        report = work(epoch_ms(clock.now()))
        if report != RetentionReport():
            _log.info(
                "retention_ran",
                erased_steps=report.erased_steps,
                archived_sessions=len(report.archived_sessions),
                more=report.more,
            )
        for problem in report.problems:
            _log.warning("retention_problem", problem=problem)


def _ms(hours: int | None) -> int | None:
    return None if hours is None else hours * HOUR_MS
