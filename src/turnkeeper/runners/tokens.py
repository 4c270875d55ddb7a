"""What runners show: a pool's token for the first call, the lease's own for the rest, the gateway's for model calls.

Answers for tokens that stand for one turn and one fence and for nothing else, without a table of them: each names both
and carries our MAC. A pool's token is random, and only its SHA-256 is kept.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from turnkeeper.errors import TurnkeeperError

POOL_PREFIX: Final = "tkw_"
POOL_TOKEN_BYTES: Final = 32

Purpose: TypeAlias = Literal["lease", "gateway"]

_PREFIXES: Final[Mapping[Purpose, str]] = {"lease": "tkl_", "gateway": "tkg_"}
_TOKEN: Final = re.compile(r"(tkl_|tkg_)([0-9A-HJKMNP-TV-Z]{26})_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})\Z")


class RunnerTokenInvalid(TurnkeeperError):
    """The token is missing, not ours, or for something else."""

    code = "runner_token_invalid"


@dataclass(frozen=True, slots=True)
class Holder:
    """What a token stands for."""

    turn_id: str
    fence: int


def new_pool_token() -> str:
    """A fresh token for the runners of a pool, to be shown once."""
    return POOL_PREFIX + secrets.token_urlsafe(POOL_TOKEN_BYTES)


def token_sha256(token: str) -> str:
    """The form in which a pool's token is kept: SHA-256 in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


class PoolTokens:
    """The pools by the hashes of their tokens; looking one up is the comparison, so no timing tells anything."""

    def __init__(self, pools: Mapping[str, Iterable[str]]) -> None:
        self._pools: dict[str, set[str]] = {}
        for pool, hashes in pools.items():
            for known in hashes:
                self._pools.setdefault(known, set()).add(pool)

    def check(self, token: str, pool: str) -> None:
        """Raises `RunnerTokenInvalid` for a token that is not the pool's."""
        if pool not in self._pools.get(token_sha256(token), ()):
            raise RunnerTokenInvalid(f"this is not a token of the pool {pool[:64]!r}")


class LeaseTokens:
    """Makes and reads the tokens of leases. `key` is this process's and never leaves it."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, purpose: Purpose, holder: Holder) -> str:
        """The token of a lease. The same again for the same one."""
        ulid = holder.turn_id.removeprefix("trn_")
        return f"{_PREFIXES[purpose]}{ulid}_{holder.fence}_{self._mac(purpose, holder)}"

    def holder(self, purpose: Purpose, token: str) -> Holder:
        """What the token stands for. Raises `RunnerTokenInvalid`."""
        found = _TOKEN.match(token)
        if found is not None and found[1] == _PREFIXES[purpose]:
            holder = Holder(f"trn_{found[2]}", int(found[3]))
            if hmac.compare_digest(found[4], self._mac(purpose, holder)):
                return holder
        raise RunnerTokenInvalid(f"this is not the {purpose}'s token")

    def _mac(self, purpose: Purpose, holder: Holder) -> str:
        message = f"turnkeeper runner {purpose} {holder.turn_id} {holder.fence}".encode()
        return base64.urlsafe_b64encode(hmac.digest(self._key, message, "sha256")).rstrip(b"=").decode()
