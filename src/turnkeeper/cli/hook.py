"""`turnkeeper hook`: the Guardian in front of a coding agent on one's own machine."""

import subprocess
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from turnkeeper.cli.exits import Exit, UsageRefused
from turnkeeper.cli.options import AsJson
from turnkeeper.hooks.command import SELF_TEST
from turnkeeper.hooks.install import ClientFiles, Installation, write_text
from turnkeeper.hooks.places import CLIENTS, client_files, default_settings_file, default_state_dir
from turnkeeper.hooks.settings import HookSettings, HookSettingsInvalid, load_settings, render_settings

SELF_TEST_TIMEOUT_S: Final = 60

Client = Annotated[str, typer.Argument(metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")]
Project = Annotated[
    Path | None, typer.Option("--project", metavar="DIR", help="Only in this folder, not wherever the user works.")
]
ClientFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The client's own file, where it is not in its usual place."),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="The hooks' settings. Default: ~/.config/turnkeeper/hook.toml."),
]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(
        help="Put the Guardian in front of Claude Code, Codex or opencode outside any box.", no_args_is_help=True
    )
    group.callback()(_nothing)
    group.command("install")(install)
    group.command("status")(status)
    group.command("uninstall")(uninstall)
    app.add_typer(group, name="hook")


def install(
    client: Client,
    *,
    guardian: Annotated[
        str | None, typer.Option("--guardian", metavar="URL", help="Where the Guardian answers, with /acs at the end.")
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="The key that the Guardian knows this agent by."),
    ] = None,
    agent_id: Annotated[str | None, typer.Option("--agent-id", help="The agent's name at the Guardian.")] = None,
    key_id: Annotated[str, typer.Option("--key-id", help="The label of the key.")] = "default",
    ask_wait_s: Annotated[
        int, typer.Option("--ask-wait-s", help="How long a call is held while a person is asked, in seconds.")
    ] = 120,
    settings: SettingsFile = None,
    project: Project = None,
    file: ClientFile = None,
) -> None:
    """Install the hooks, and test them.

    With --guardian and --secret-file the hooks' settings are written first; without, they must be there. For Codex the
    managed file is used, which needs root and binds every user: hooks in a user's own file are skipped silently.
    """
    path = _settings_file(settings)
    if guardian is not None or secret_file is not None:
        if guardian is None or secret_file is None:
            raise UsageRefused("--guardian and --secret-file belong together")
        given = HookSettings(
            guardian_url=guardian,
            secret_file=secret_file.absolute(),
            state_dir=default_state_dir(Path.home()),
            agent_id=agent_id or client,
            key_id=key_id,
            ask_wait_s=ask_wait_s,
        )
        write_text(path, render_settings(given))
    installation = Installation(path, load_settings(path))
    place = client_files(client, Path.home(), project=project, file=file)
    _check(installation, client)
    place.install(installation)
    typer.echo(f"{client}: hooks installed in {place.path}", err=True)


def status(
    client: Annotated[str | None, typer.Argument(metavar="CLIENT", help="One client. Default: all.")] = None,
    settings: SettingsFile = None,
    project: Project = None,
    file: ClientFile = None,
    *,
    json: AsJson = False,
) -> None:
    """Say whether the hooks are in place and would get a decision now.

    Exit code 1 where hooks are installed and a call would be blocked, or where they were changed by somebody.
    """
    path = _settings_file(settings)
    try:
        installation = Installation(path, load_settings(path))
    except HookSettingsInvalid as error:
        typer.echo(f"no hooks can run: {error.message}", err=True)
        raise typer.Exit(Exit.FAILED) from None
    rows = [_state(name, installation, project, file) for name in ([client] if client else CLIENTS)]
    if json:
        typer.echo(orjson.dumps(rows))
    else:
        for row in rows:
            typer.echo("  ".join(str(value) for value in row.values() if value is not None))
    if any(row["hooks"] == "changed" or (row["hooks"] == "installed" and row["guardian"] != "answers") for row in rows):
        raise typer.Exit(Exit.FAILED)


def uninstall(client: Client, project: Project = None, file: ClientFile = None) -> None:
    """Take the hooks out of the client's file again; settings and records stay."""
    place = client_files(client, Path.home(), project=project, file=file)
    word = "removed from" if place.uninstall() else "were not in"
    typer.echo(f"{client}: hooks {word} {place.path}", err=True)


def _state(client: str, installation: Installation, project: Path | None, file: Path | None) -> dict[str, str | None]:
    # Codex has no project file to look for; its managed one binds there too.
    place: ClientFiles = client_files(client, Path.home(), project=None if client == "codex" else project, file=file)
    presence = place.presence(installation)
    heard = None if presence == "absent" else _self_test(installation, client) or "answers"
    return {"client": client, "hooks": presence, "guardian": heard, "file": str(place.path)}


def _check(installation: Installation, client: str) -> None:
    said = _self_test(installation, client)
    if said is not None:
        raise UsageRefused(f"the hooks were not installed, since every call would be blocked: {said}")


def _self_test(installation: Installation, client: str) -> str | None:
    """What keeps the hook's own command from getting a decision; None where nothing does."""
    words = [*installation.argv(client), SELF_TEST]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=SELF_TEST_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the hook's command does not run: {error}"
    if ended.returncode == 0:
        return None
    lines = ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"]
    return lines[-1]


def _settings_file(given: Path | None) -> Path:
    return (given or default_settings_file(Path.home())).absolute()


def _nothing() -> None:
    return
