"""Secrets that the egress proxy adds on the way out, so that no box has them (contract 2.13).

Pure. A program in the box holds a placeholder and puts it where the secret belongs; here it becomes the secret, in the
headers of a request to a host that the secret is for, and nowhere else. What comes back is looked through: a host that
repeats the secret repeats the placeholder to the box.
INVARIANT: a value leaves this module only in the head of a request to one of its hosts.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from turnkeeper.destinations import Destination, HostRule, any_allows
from turnkeeper.sandbox.egress_http import EgressRefused, Headers

_BASIC: Final = b"basic "
_UNREADABLE: Final = frozenset({b"accept-encoding", b"range", b"if-range"})


@dataclass(frozen=True, slots=True)
class BoxSecret:
    """One secret of one box: the variable that programs find the placeholder in, and where the value may go."""

    variable: str
    placeholder: str
    hosts: tuple[HostRule, ...]
    value: str = field(repr=False)

    @property
    def mark(self) -> bytes:
        """The placeholder as it stands in a header."""
        return self.placeholder.encode()

    @property
    def content(self) -> bytes:
        """The value as it goes out."""
        return self.value.encode()


class BoxSecrets:
    """The secrets of one box."""

    def __init__(self, secrets: Sequence[BoxSecret] = ()) -> None:
        self._secrets = tuple(secrets)

    @property
    def variables(self) -> dict[str, str]:
        """What the box's environment gets."""
        return {secret.variable: secret.placeholder for secret in self._secrets}

    @property
    def rules(self) -> tuple[HostRule, ...]:
        """The hosts that some secret is for."""
        return tuple(rule for secret in self._secrets for rule in secret.hosts)

    def of(self, destination: Destination) -> "HostSecrets | None":
        """Those for a destination; `None` where there are none, and nothing to look for."""
        own = tuple(secret for secret in self._secrets if any_allows(secret.hosts, destination))
        return HostSecrets(own) if own else None


class HostSecrets:
    """The secrets that one host may get."""

    def __init__(self, secrets: Sequence[BoxSecret]) -> None:
        # The longest first: one value may begin with another.
        self._secrets = sorted(secrets, key=lambda secret: len(secret.content), reverse=True)

    def added(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """The headers of a request with the values in place of the placeholders.

        What would keep the answer from being looked through is left out.
        """
        kept = [(name, self._added(value)) for name, value in headers if name not in _UNREADABLE]
        return [*kept, (b"accept-encoding", b"identity")]

    def masked_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """The headers of an answer, the other way round. Raises `EgressRefused` where its body cannot be read.

        Its length is left out: it may change.
        """
        listed = list(headers)
        codings = {value.strip().lower() for name, value in listed if name == b"content-encoding"}
        if not codings <= {b"identity"}:
            raise EgressRefused(502, "the answer is encoded, so that it cannot be searched for secrets")
        return [(name, self.masked(value)) for name, value in listed if name != b"content-length"]

    def masked(self, text: bytes) -> bytes:
        """Bytes with the placeholders in place of the values."""
        for secret in self._secrets:
            text = text.replace(secret.content, secret.mark)
        return text

    def mask(self) -> "StreamMask":
        """For the body of one answer."""
        return StreamMask(self)

    def unfinished(self, text: bytes) -> int:
        """How many of the last bytes could be the beginning of a value."""
        longest = min(len(self._secrets[0].content) - 1, len(text))
        for count in range(longest, 0, -1):
            if any(secret.content.startswith(text[-count:]) for secret in self._secrets):
                return count
        return 0

    def _added(self, value: bytes) -> bytes:
        if value[: len(_BASIC)].lower() == _BASIC:
            return value[: len(_BASIC)] + self._added_to_basic(value[len(_BASIC) :].strip())
        return self._replaced(value)

    def _added_to_basic(self, coded: bytes) -> bytes:
        try:
            plain = base64.b64decode(coded, validate=True)
        except binascii.Error:
            return coded
        return base64.b64encode(self._replaced(plain))

    def _replaced(self, text: bytes) -> bytes:
        for secret in self._secrets:
            text = text.replace(secret.mark, secret.content)
        return text


class StreamMask:
    """Masks a body that comes in pieces: holds back as much as could be the beginning of a value."""

    def __init__(self, secrets: HostSecrets) -> None:
        self._secrets = secrets
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What may go on of what came so far."""
        masked = self._secrets.masked(self._held + piece)
        keep = self._secrets.unfinished(masked)
        self._held = masked[len(masked) - keep :]
        return masked[: len(masked) - keep]

    def rest(self) -> bytes:
        """What was held back, at the end."""
        held, self._held = self._held, b""
        return held
