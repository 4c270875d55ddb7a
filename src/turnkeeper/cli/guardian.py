"""`turnkeeper guardian`: the Guardian alone, over HTTP or standard streams; and what it has recorded.

The first SIGTERM or SIGINT stops gracefully: what is being decided is answered. Over standard streams the end of the
input is the end. Standard output then carries frames and nothing else.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import stat
import sys
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import orjson
import structlog
import typer
import uvicorn

from turnkeeper import __version__
from turnkeeper.acs.framing import FrameBroken
from turnkeeper.cli import retention
from turnkeeper.cli.exits import Exit, UsageRefused
from turnkeeper.cli.export import acs_session_id
from turnkeeper.cli.listening import Stopping, bound_socket, run_loop, shown_address, spare_collector, uvicorn_config
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory, load
from turnkeeper.clock import SystemClock, epoch_ms
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir, hold
from turnkeeper.guardian.apikeys import DECIDE, SCOPES, SECRET_BYTES, SECRET_PREFIX, GuardianKey, secret_sha256
from turnkeeper.guardian.approvals import HUMAN
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.capabilities import APPROVER_TYPES
from turnkeeper.guardian.stdio import serve_frames
from turnkeeper.guardian.views import finding_view, key_view, session_view, turn_view
from turnkeeper.ids import RandomIds
from turnkeeper.logs import setup_logging
from turnkeeper.store.guardian_desk import GuardianDesk
from turnkeeper.wiring.record import guardian_record, require_begun
from turnkeeper.wiring.standalone import StandaloneGuardian, open_standalone

PAGE: Final = 100
MAX_KEYS: Final = 1_000
READ_LIMIT_BYTES: Final = 65_536

Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many at most.")]

_log = structlog.get_logger(__name__)


def register(app: typer.Typer) -> None:
    """Adds the command and what hangs below it."""
    group = typer.Typer(help="Run the Guardian alone, or look at what it recorded.", invoke_without_command=True)
    group.callback()(guardian)
    group.command()(sessions)
    group.command()(turns)
    group.command()(findings)
    retention.register(group)
    keys = typer.Typer(help="Make, list and revoke keys of the Guardian's HTTP API.", no_args_is_help=True)
    keys.callback()(_nothing)
    keys.command("create")(create_key)
    keys.command("list")(list_keys)
    keys.command("revoke")(revoke_key)
    group.add_typer(keys, name="keys")
    app.add_typer(group, name="guardian")


def guardian(
    context: typer.Context,
    *,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak frames on standard streams, and no HTTP.")] = False,
    policy: Annotated[Path | None, typer.Option("--policy", help="Rule file, or folder of a policy.")] = None,
    secret_file: Annotated[Path | None, typer.Option("--secret-file", help="Key shared with clients.")] = None,
    key_id: Annotated[str | None, typer.Option("--key-id", help="Label of that key.")] = None,
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="Where the record is kept: SQLite or PostgreSQL.")
    ] = None,
) -> None:
    """Decide steps for any ACS client."""
    if context.invoked_subcommand is not None:
        return
    if stdio and (host is not None or port is not None):
        raise UsageRefused("--stdio listens on no address: leave --host and --port out")
    configuration = load(
        config,
        data_dir,
        server__host=host,
        server__port=port,
        guardian__policy=policy,
        guardian__secret_file=secret_file,
        guardian__key_id=key_id,
        guardian__database_url=database_url,
    )
    setup_logging(configuration.settings.log.level, log_format=configuration.settings.log.format)
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()
    with hold(folder, command="turnkeeper guardian", clock=SystemClock()):
        if stdio:
            raise typer.Exit(asyncio.run(_serve_stdio(configuration, folder)))
        with bound_socket(configuration.settings.server) as bound:
            run_loop(_serve_http(configuration, folder, bound))


class _Server(uvicorn.Server):
    """Listens; leaves signals to whoever runs it."""

    def stop(self) -> None:
        """Begins the graceful end."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """No handlers of its own."""
        yield


async def _serve_http(configuration: Configuration, folder: DataDir, bound: socket.socket) -> None:
    stopping = Stopping()
    try:
        async with open_standalone(configuration, folder) as running:
            server = _Server(uvicorn_config(configuration.settings.server, running.asgi))
            stopping.graceful = server.stop
            spare_collector()
            _announce(configuration, running)
            typer.echo(f"The Guardian listens on {shown_address(bound)}")
            await server.serve(sockets=[bound])
    except asyncio.CancelledError:
        if not stopping.at_once:
            raise
        _log.warning("stopped_at_once")
    else:
        _log.info("stopped")


async def _serve_stdio(configuration: Configuration, folder: DataDir) -> Exit:
    stopping = Stopping()
    try:
        async with open_standalone(configuration, folder) as running:
            reader = await _standard_input()
            _announce(configuration, running)
            await serve_frames(
                running.guardian,
                Door("stdio", running.keys),
                reader,
                _write,
                max_body_bytes=configuration.settings.server.max_body_bytes,
            )
    except FrameBroken as broken:
        _log.error("stdio_broken", problem=broken.message)
        return Exit.FAILED
    except BrokenPipeError:
        _log.info("stdio_peer_gone")
    except asyncio.CancelledError:
        if not stopping.at_once:
            raise
    return Exit.DONE


async def _standard_input() -> asyncio.StreamReader:
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)):
        raise UsageRefused("standard input is a file; --stdio speaks with a peer through a pipe")
    reader = asyncio.StreamReader(limit=READ_LIMIT_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


async def _write(frame: bytes) -> None:
    # A peer that does not read must not stop the loop.
    await asyncio.get_running_loop().run_in_executor(None, _write_whole, frame)


def _write_whole(frame: bytes) -> None:
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()


def _announce(configuration: Configuration, running: StandaloneGuardian) -> None:
    _log.info(
        "started",
        version=__version__,
        data_dir=str(configuration.settings.data_dir),
        config_file=str(configuration.file) if configuration.file else None,
        policy=running.policy,
    )


def sessions(
    config: ConfigFile = None, data_dir: DataDirectory = None, *, limit: Limit = PAGE, json: AsJson = False
) -> None:
    """List the sessions that the Guardian knows."""
    desk = open_desk(config, data_dir)
    rows = [session_view(one) for one in desk.sessions(after="", limit=limit)]
    _show(rows, json=json, columns=("session_id", "agent_id", "closed", "entries", "turns", "denials", "tainted"))


def turns(
    session: Annotated[str, typer.Argument(help="A session of ours (ses_...) or an ACS session id.")],
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    *,
    limit: Limit = PAGE,
    json: AsJson = False,
) -> None:
    """List a session's turns with the Guardian's own counts."""
    desk, session_id = _session(config, data_dir, session)
    rows = [turn_view(one) for one in desk.turns(session_id, after=0, limit=limit)]
    columns = ("turn_id", "outcome", "step_count", "tool_call_count", "denials", "deferrals", "taint_step")
    _show(rows, json=json, columns=columns)


def findings(
    session: Annotated[str, typer.Argument(help="A session of ours (ses_...) or an ACS session id.")],
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    *,
    limit: Limit = PAGE,
    json: AsJson = False,
) -> None:
    """List what an auditor should see of a session."""
    desk, session_id = _session(config, data_dir, session)
    rows = [finding_view(one) for one in desk.findings(session_id, after=0, limit=limit)]
    _show(rows, json=json, columns=("at", "recorded", "code", "turn_id", "message"))


def create_key(
    name: Annotated[str, typer.Option("--name", help="Whose key it is; decisions name it.")],
    *,
    scope: Annotated[list[str], typer.Option("--scope", help="guardian:read or approvals:decide; repeatable.")],
    approver: Annotated[
        list[str] | None, typer.Option("--approver", help="An approver it may answer as, * for any; repeatable.")
    ] = None,
    approver_type: Annotated[str, typer.Option("--approver-type", help="human, agent or service.")] = HUMAN,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Make a key and print its secret, which is shown this once and never stored."""
    scopes, approvers = frozenset(scope), frozenset(approver or ())
    _check_key(name, scopes, approvers, approver_type)
    desk, clock = open_desk(config, data_dir, make=True), SystemClock()
    secret = SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    key_id = RandomIds(clock).new("key")
    made = GuardianKey(key_id, name, scopes, approver_type, approvers, epoch_ms(clock.now()))
    desk.add_key(made, secret_sha256(secret))
    typer.echo(f"key {made.key_id} made", err=True)
    typer.echo(secret)


def list_keys(config: ConfigFile = None, data_dir: DataDirectory = None, *, json: AsJson = False) -> None:
    """List the keys. Secrets are not stored, so none can be shown."""
    rows = [key_view(key) for key in open_desk(config, data_dir).keys(limit=MAX_KEYS)]
    _show(rows, json=json, columns=("key_id", "created_at", "revoked_at", "scopes", "approver", "name"))


def revoke_key(
    key_id: Annotated[str, typer.Argument(help="The key's id, from `guardian keys list`.")],
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Revoke a key: the next request that shows it is refused."""
    if not open_desk(config, data_dir).revoke_key(key_id, epoch_ms(SystemClock().now())):
        raise UsageRefused(f"there is no key {key_id}", hint="`turnkeeper guardian keys list` shows them.")
    typer.echo(f"key {key_id} revoked", err=True)


def open_desk(config: Path | None, data_dir: Path | None, *, make: bool = False) -> GuardianDesk:
    """What the Guardian of a data dir has recorded; with `make` also of one that never ran."""
    settings = load(config, data_dir).settings
    folder = DataDir(settings.data_dir)
    if not make:
        return require_begun(settings, folder).desk()
    folder.prepare()
    record = guardian_record(settings, folder)
    record.migrate()
    return record.desk()


def _session(config: Path | None, data_dir: Path | None, session: str) -> tuple[GuardianDesk, str]:
    desk, session_id = open_desk(config, data_dir), acs_session_id(session)
    if desk.session(session_id) is None:
        raise UsageRefused(
            f"the Guardian knows no session {session}", hint="`turnkeeper guardian sessions` lists those it knows."
        )
    return desk, session_id


def _check_key(name: str, scopes: frozenset[str], approvers: frozenset[str], approver_type: str) -> None:
    if unknown := sorted(scopes - SCOPES):
        raise UsageRefused(f"there is no scope {unknown[0]}", hint=f"One of {', '.join(sorted(SCOPES))}.")
    if approver_type not in APPROVER_TYPES:
        raise UsageRefused(f"--approver-type is one of {', '.join(APPROVER_TYPES)}")
    if (DECIDE in scopes) != bool(approvers):
        raise UsageRefused(f"--approver belongs to the scope {DECIDE}, and that scope needs one")
    if any("\n" in text for text in (name, *approvers)):
        raise UsageRefused("a name has one line")


def _show(rows: Iterable[Mapping[str, object]], *, json: bool, columns: tuple[str, ...]) -> None:
    if json:
        typer.echo(orjson.dumps(list(rows)))
        return
    for row in rows:
        typer.echo("  ".join(f"{name}={_shown(row[name])}" for name in columns if row[name] is not None))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _nothing() -> None:
    return
