"""Key labels that come and go while the Guardian runs (ACS 10.1, CORE-SIG-05 to 08).

Answers for the labels that a door accepts: a label is there exactly as long as its file is. The file is looked at for
each request, so that a key that was taken away opens nothing from that moment on, and a new one needs no restart. Must
never fall back to another label, nor keep a secret that can no longer be read. I/O is handed in.
"""

import re
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from turnkeeper.acs import Keyring, KeyUnknown, SessionKey, check_label, read_secret
from turnkeeper.errors import TurnkeeperError

MAX_LABELS: Final = 1_000
"""Labels whose keys are held in memory; past it the oldest is read again when it is next shown."""

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_log = structlog.get_logger(__name__)


class KeyFiles(Protocol):
    """Key files by label. Both calls are quick: local files of a few bytes."""

    def stamp(self, label: str) -> object | None:
        """What changes when the file is written again; None where there is no file."""
        ...

    def read(self, label: str) -> bytes:
        """The file's bytes. Raises `OSError`."""
        ...


@dataclass(frozen=True, slots=True)
class _Held:
    stamp: object
    keyring: Keyring | None


class KeyFolder:
    """Labels whose secrets lie in files (`KeySource`)."""

    def __init__(self, files: KeyFiles, *, refused: frozenset[str] = frozenset()) -> None:
        """`refused` are labels that no file can open here."""
        self._files = files
        self._refused = refused
        self._held: dict[str, _Held] = {}

    def session_key(self, key_id: str, session_id: str) -> SessionKey:
        """The key of one session under one label, as its file is now. Raises `KeyUnknown`."""
        keyring = self._keyring(key_id)
        if keyring is None:
            raise KeyUnknown("no secret has the label that the signature names")
        return keyring.session_key(key_id, session_id)

    def _keyring(self, label: str) -> Keyring | None:
        # The label is a stranger's text until its signature holds: it must not become a path of its own choosing.
        if label in self._refused or _LABEL.fullmatch(label) is None:
            return None
        stamp = self._files.stamp(label)
        if stamp is None:
            if self._held.pop(label, None) is not None:
                _log.info("key_label_gone", label=label)
            return None
        held = self._held.get(label)
        if held is None or held.stamp != stamp:
            held = self._hold(label, stamp)
        return held.keyring

    def _hold(self, label: str, stamp: object) -> _Held:
        held = _Held(stamp, self._read(label))
        self._held[label] = held
        if len(self._held) > MAX_LABELS:
            del self._held[next(iter(self._held))]
        return held

    def _read(self, label: str) -> Keyring | None:
        try:
            secret = read_secret(self._files.read(label))
            check_label(label, secret)
        except (OSError, TurnkeeperError) as error:
            _log.error("key_label_unusable", label=label, problem=str(error))
            return None
        _log.info("key_label_read", label=label)
        return Keyring({label: secret})
