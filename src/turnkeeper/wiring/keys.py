"""Which key opens which door. The labels, the files, and the one rule: `platform` is never accepted from outside."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from turnkeeper.acs.keys import Keyring, read_secret
from turnkeeper.datadir import DataDir, load_or_make_key
from turnkeeper.guardian.keyfolder import KeyFolder

PLATFORM_LABEL: Final = "platform"
OUTSIDE_LABEL: Final = "default"
KEY_SUFFIX: Final = ".key"
MAX_KEY_BYTES: Final = 4_096


def platform_keyring(folder: DataDir) -> Keyring:
    """For the door in process, and for our own side of it. Makes the key on first use."""
    return Keyring({PLATFORM_LABEL: read_secret(load_or_make_key(folder.platform_key))})


class FolderKeyFiles:
    """Key files on the disk (`guardian.keyfolder.KeyFiles`): `LABEL.key` in a folder, save those with a path."""

    def __init__(self, folder: Path, named: Mapping[str, Path]) -> None:
        self._folder = folder
        self._named = dict(named)

    def stamp(self, label: str) -> object | None:
        """What changes when the file is written again; None where there is none."""
        try:
            seen = self._path(label).stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size

    def read(self, label: str) -> bytes:
        """The file's bytes, as many as a key may have. Raises `OSError`."""
        with self._path(label).open("rb") as stream:
            return stream.read(MAX_KEY_BYTES)

    def _path(self, label: str) -> Path:
        return self._named.get(label) or self._folder / f"{label}{KEY_SUFFIX}"


def outside_keys(folder: DataDir, *, key_id: str = OUTSIDE_LABEL, secret_file: Path | None = None) -> KeyFolder:
    """For the doors that others can reach: one named key, and every label in the folder of keys.

    Without a `secret_file` the named key is the data dir's own, made on first use. Raises `SecretTooShort`, `OSError`.
    """
    if secret_file is None:
        load_or_make_key(folder.outside_key)
    file = folder.outside_key if secret_file is None else secret_file
    read_secret(file.read_bytes())
    return KeyFolder(FolderKeyFiles(folder.label_keys, {key_id: file}), refused=frozenset({PLATFORM_LABEL}))


def stored_keyring(folder: DataDir, *, key_id: str = OUTSIDE_LABEL, secret_file: Path | None = None) -> Keyring:
    """Every key that there is, revoked ones too, for reading what was recorded. Makes nothing.

    A `secret_file` is the key of the label `key_id`, wherever it lies. Raises `OSError` where it cannot be read.
    """
    files = dict(_labelled(folder.label_keys / "revoked")) | dict(_labelled(folder.label_keys))
    files |= {PLATFORM_LABEL: folder.platform_key, OUTSIDE_LABEL: folder.outside_key}
    if secret_file is not None:
        secret_file.stat()
        files[key_id] = secret_file
    return Keyring({label: read_secret(file.read_bytes()) for label, file in files.items() if file.is_file()})


def _labelled(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.glob(f"*{KEY_SUFFIX}")):
        yield file.name.removesuffix(KEY_SUFFIX), file
