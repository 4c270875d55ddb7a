"""API keys of the Guardian's own HTTP API: who may read what was decided, and who may answer for an approver.

Answers for scopes, for what an approver key may answer as, and for the form in which a secret is kept. Must never hold
a secret: what is stored and looked up is its SHA-256. Pure.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from turnkeeper.guardian.approvals import Approver

READ: Final = "guardian:read"
DECIDE: Final = "approvals:decide"
SCOPES: Final = frozenset({READ, DECIDE})
SECRET_PREFIX: Final = "gk_"  # noqa: S105  what a secret begins with, not one
SECRET_BYTES: Final = 32

_SECRET = re.compile(r"gk_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class GuardianKey:
    """An API key without its secret. `approver_ids` are the approvers that it may answer as, `*` for any."""

    key_id: str
    name: str
    scopes: frozenset[str]
    approver_type: str
    approver_ids: frozenset[str]
    created_at_ms: int
    revoked_at_ms: int | None = None

    @property
    def approver(self) -> Approver:
        """The key as the one who answers."""
        return Approver(self.key_id, self.name, self.approver_type, self.approver_ids)


def is_secret(text: str) -> bool:
    """Whether a text has the form of a secret."""
    return _SECRET.fullmatch(text) is not None


def secret_sha256(secret: str) -> str:
    """The form in which a secret is stored, in lower-case hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()
