"""`turnkeeper doctor`: what this machine lacks, and what an installation has left undelivered. Changes nothing.

`fail` is what keeps turns from running (exit 1); `warn` is worth knowing.
"""

import asyncio
import ctypes.util
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson
import typer

from turnkeeper.cli.exits import Exit
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.clock import SystemClock
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, is_private, load_holder
from turnkeeper.errors import TurnkeeperError
from turnkeeper.ids import RandomIds
from turnkeeper.sandbox.boxes import SandboxError
from turnkeeper.sandbox.local_model import find_weights
from turnkeeper.settings import unsafe_choices
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.boxes import make_driver
from turnkeeper.wiring.guardian import load_rules
from turnkeeper.wiring.harnesses import harness_lacks
from turnkeeper.wiring.platform import open_store
from turnkeeper.wiring.record import guardian_record

OLDEST_PYTHON: Final = (3, 11)
OLDEST_SQLITE: Final = (3, 35)
"""RETURNING, which the turn store relies on."""
MAX_DEAD_LETTERS: Final = 20

State: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    detail: str


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(doctor)


def doctor(config: ConfigFile = None, data_dir: DataDirectory = None, *, json: AsJson = False) -> None:
    """Say what this machine lacks.

    Looks at Python, SQLite, boxes, models, harnesses, rules, port, data dir, Guardian's record and dead letters. Exit 1
    when turns cannot run.
    """
    configuration = load(config, data_dir)
    checks: list[Check] = []
    for check in _checks(configuration):
        checks.append(check)
        if not json:
            typer.echo(f"{check.state:<5} {check.name}: {check.detail}")
    if json:
        typer.echo(orjson.dumps([asdict(check) for check in checks]))
    raise typer.Exit(Exit.FAILED if any(check.state == "fail" for check in checks) else Exit.DONE)


def _checks(configuration: Configuration) -> Iterator[Check]:
    folder = DataDir(configuration.settings.data_dir)
    yield from _machine()
    yield from _boxes(configuration)
    yield from _models(configuration)
    yield from _harnesses(configuration)
    yield _policy(configuration)
    yield from _data_dir(folder)
    yield from _record(configuration, folder)
    yield _port(configuration, folder)
    yield from (Check("settings", "warn", choice) for choice in unsafe_choices(configuration.settings))
    yield from asyncio.run(_dead_letters(configuration, folder))


def _machine() -> Iterator[Check]:
    python = sys.version_info[:3]
    yield Check("python", _state(python >= OLDEST_PYTHON), ".".join(map(str, python)))
    yield Check("sqlite", _state(sqlite3.sqlite_version_info >= OLDEST_SQLITE), sqlite3.sqlite_version)
    seccomp = ctypes.util.find_library("seccomp")
    yield Check("libseccomp", _state(seccomp is not None), seccomp or "missing; on Debian: apt-get install libseccomp2")


def _boxes(configuration: Configuration) -> Iterator[Check]:
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="tk-") as scratch:
        driver = make_driver(configuration.settings.sandbox, DataDir(Path(scratch)), ids=RandomIds(clock), clock=clock)
        try:
            probes = driver.probe()
        except SandboxError as error:
            yield Check("sandbox", "fail", f"{error.message} {error.hint or ''}".strip())
            return
    for probe in probes:
        yield Check(f"sandbox {probe.name}", "warn" if probe.ok and probe.weak else _state(probe.ok), probe.detail)


def _models(configuration: Configuration) -> Iterator[Check]:
    for name, provider in configuration.settings.providers.items():
        if provider.kind == "local":
            try:
                yield Check(f"provider {name}", "ok", f"weights {find_weights().name}")
            except TurnkeeperError as error:
                yield Check(f"provider {name}", "warn", f"{error.message}. {error.hint or ''}".strip())
        elif provider.api_key_env is not None and name not in configuration.provider_secrets:
            yield Check(f"provider {name}", "warn", f"the variable {provider.api_key_env} is not set")
        else:
            yield Check(f"provider {name}", "ok", str(provider.base_url))


def _harnesses(configuration: Configuration) -> Iterator[Check]:
    for name, lack in harness_lacks(configuration.settings.harness).items():
        yield Check(f"harness {name}", "warn" if lack else "ok", lack or "installed")


def _policy(configuration: Configuration) -> Check:
    chosen = configuration.settings.guardian
    if chosen.url is not None:
        return Check("guardian", "ok", f"another one, at {chosen.url}")
    try:
        rules = load_rules(chosen.policy)
    except TurnkeeperError as error:
        return Check("policy", "fail", error.message)
    return Check("policy", "ok", f"{rules.name}, {len(rules.rules)} rules, default {rules.default}")


def _data_dir(folder: DataDir) -> Iterator[Check]:
    if not folder.root.is_dir():
        yield Check("data dir", "ok", f"{folder.root} will be made at the first start")
        return
    private = is_private(folder.root)
    yield Check("data dir", "ok" if private else "warn", f"{folder.root}{'' if private else ' is open to others'}")
    for key in (folder.outside_key, folder.platform_key):
        if key.exists() and not is_private(key):
            yield Check("key file", "warn", f"{key} can be read by others: chmod 600")


def _record(configuration: Configuration, folder: DataDir) -> Iterator[Check]:
    settings = configuration.settings
    if settings.guardian.url is not None:
        return
    try:
        record = guardian_record(settings, folder)
        if not record.is_there():
            yield Check("guardian's record", "ok", "will be made at the first start")
            return
        record.reader().close()
    except TurnkeeperError as error:
        yield Check("guardian's record", "fail", f"{error.message}. {error.hint or ''}".strip())
    else:
        yield Check("guardian's record", "ok", "can be read")


def _port(configuration: Configuration, folder: DataDir) -> Check:
    server = configuration.settings.server
    with socket.socket(socket.AF_INET6 if ":" in server.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host, server.port))
        except OSError as error:
            holder = load_holder(folder)
            who = f" (this data dir was last held by `{holder.command}`, pid {holder.pid})" if holder else ""
            return Check("port", "warn", f"{server.host} port {server.port}: {error.strerror}{who}")
    return Check("port", "ok", f"{server.host} port {server.port} is free")


async def _dead_letters(configuration: Configuration, folder: DataDir) -> list[Check]:
    if configuration.settings.store.url is None and not folder.turn_database.is_file():
        return []
    try:
        async with open_store(Base(configuration, folder)) as store:
            dead = await store.dead_letters(MAX_DEAD_LETTERS)
    except TurnkeeperError as error:
        return [Check("store", "fail", error.message)]
    if not dead:
        return [Check("dead letters", "ok", "none")]
    return [
        Check("dead letter", "warn", f"{step.method} of {step.session_id}, refused with {step.error_code}")
        for step in dead
    ]


def _state(fine: bool) -> State:
    return "ok" if fine else "fail"
