"""How commands reach a running server's turn API: its address, and a key for it.

Without `--url` and `--key` they are those of the local installation: the address in the settings, and a key of the
command line's own, made at first use and kept in the data dir, readable by its owner alone. That one never goes to an
address that was named.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import load
from turnkeeper.client import Turnkeeper
from turnkeeper.config import Configuration, load_remote
from turnkeeper.datadir import PRIVATE_FILE, DataDir
from turnkeeper.settings import ServerSettings

KEY_NAME: Final = "command line"
MAX_KEY_BYTES: Final = 4_096

_COMMAND: Final = "from turnkeeper.cli import main; main()"

Url: TypeAlias = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server. Default: TURNKEEPER_URL, else the settings' own address."),
]
Key: TypeAlias = Annotated[
    str | None,
    typer.Option("--key", metavar="SECRET", help="An API key. Default: TURNKEEPER_KEY, else the data dir's own."),
]


@dataclass(frozen=True, slots=True)
class Remote:
    """What was typed about where the server is."""

    url: str | None
    key: str | None
    config: Path | None
    data_dir: Path | None

    def connect(self) -> Turnkeeper:
        """A client of the server. Raises `UsageRefused` without a key for it."""
        named = load_remote()
        url, key = self.url or named.url, self.key or named.key
        if url is not None:
            if key is None:
                raise UsageRefused(f"there is no key for {url}", hint="Give one with --key or TURNKEEPER_KEY.")
            return Turnkeeper(url, key)
        configuration = load(self.config, self.data_dir)
        return Turnkeeper(_own_address(configuration.settings.server), key or _own_key(configuration))


def _own_address(server: ServerSettings) -> str:
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  what is listened on, to where it is reached
    host = anywhere.get(server.host, server.host)
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def _own_key(configuration: Configuration) -> str:
    folder = DataDir(configuration.settings.data_dir)
    folder.require()
    file = folder.root / "cli.key"
    if not file.exists():
        _make_key(configuration, folder, file)
    with file.open("rb") as stream:
        return stream.read(MAX_KEY_BYTES).decode("ascii", "replace").strip()


def _make_key(configuration: Configuration, folder: DataDir, file: Path) -> None:
    # In a process of its own: the store takes longer to load than a request takes, and is needed this once.
    words = ["keys", "create", "--name", KEY_NAME, "--data-dir", str(folder.root)]
    named = [] if configuration.file is None else ["--config", str(configuration.file)]
    made = subprocess.run([sys.executable, "-c", _COMMAND, *words, *named], capture_output=True, text=True, check=False)
    if made.returncode:
        raise UsageRefused(f"no key could be made: {made.stderr.strip()}", hint="Give one with --key.")
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(made.stdout)
