"""The root of every error Turnkeeper raises, with the members a person and a program need.

An edge (HTTP, JSON-RPC, the command line) translates `code` by a table of its own; nobody else knows a
status number.
"""

from collections.abc import Mapping
from typing import ClassVar


class TurnkeeperError(Exception):
    """Something that cannot be answered.

    `code` is stable and what programs test. `message` is one sentence for a person. `detail` is JSON-safe
    and may reach a client, so it never holds a secret. `hint` says what to do, where there is something to do.
    """

    code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: Mapping[str, object] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = code if code is not None else type(self).code
        self.detail: dict[str, object] = dict(detail or {})
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.error_code})" + (f" {self.hint}" if self.hint else "")


class LocalProtocolError(TurnkeeperError):
    """We broke a protocol: a bug here."""

    code = "local_protocol_error"


class RemoteProtocolError(TurnkeeperError):
    """The peer broke a protocol: a bad client, server, Guardian or harness."""

    code = "remote_protocol_error"
