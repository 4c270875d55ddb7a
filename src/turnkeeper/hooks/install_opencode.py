"""Our plugin among opencode's: one file of our own."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Final

from turnkeeper.hooks.install import MODULE, HookFileUnusable, Installation, Presence, read_text, write_text

CLIENT: Final = "opencode"


class OpencodeFile:
    """A plugin file. One that is not ours is left alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def install(self, installation: Installation) -> None:
        """As `ClientFiles.install`."""
        self._check_ours()
        write_text(self._path, _plugin(installation))

    def uninstall(self) -> bool:
        """As `ClientFiles.uninstall`."""
        if not self._check_ours():
            return False
        try:
            self._path.unlink()
        except OSError as error:
            raise HookFileUnusable(f"{self._path} cannot be removed: {error.strerror}") from error
        return True

    def presence(self, installation: Installation) -> Presence:
        """As `ClientFiles.presence`."""
        text = read_text(self._path)
        if text == _plugin(installation):
            return "installed"
        return "changed" if MODULE in text else "absent"

    def _check_ours(self) -> bool:
        text = read_text(self._path)
        if text and MODULE not in text:
            raise HookFileUnusable(f"{self._path} is a plugin of somebody else")
        return bool(text)


def _plugin(installation: Installation) -> str:
    template = files("turnkeeper.hooks").joinpath("opencode_plugin.js").read_text()
    command = json.dumps(installation.argv(CLIENT))
    timeout_ms = json.dumps(installation.settings.client_timeout_s * 1_000)
    return template.replace("__COMMAND__", command).replace("__TIMEOUT_MS__", timeout_ms)
