"""Which key opens which door. The labels, the files, and the one rule: `platform` is never accepted over HTTP."""

from typing import Final

from turnkeeper.acs.keys import Keyring, read_secret
from turnkeeper.datadir import DataDir, load_or_make_key

PLATFORM_LABEL: Final = "platform"
OUTSIDE_LABEL: Final = "default"


def platform_keyring(folder: DataDir) -> Keyring:
    """For the door in process, and for our own side of it. Makes the key on first use."""
    return Keyring({PLATFORM_LABEL: read_secret(load_or_make_key(folder.platform_key))})


def outside_keyring(folder: DataDir) -> Keyring:
    """For the HTTP door. Makes the key on first use."""
    return Keyring({OUTSIDE_LABEL: read_secret(load_or_make_key(folder.outside_key))})


def stored_keyring(folder: DataDir) -> Keyring:
    """Both keys, as far as they exist, for reading what was recorded. Makes nothing."""
    files = {PLATFORM_LABEL: folder.platform_key, OUTSIDE_LABEL: folder.outside_key}
    return Keyring({label: read_secret(file.read_bytes()) for label, file in files.items() if file.is_file()})
