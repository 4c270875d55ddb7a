"""Idempotency keys in the database (contract 9): one table for all that is made, in the transaction that makes it.

Answers for one request per key at a time: who comes second waits for the first, and no longer than
`StoreLimits.idempotency_wait_ms`. The key's lock is taken before any row's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from turnkeeper.store.statements import add, find
from turnkeeper.store.tables import idempotency_keys, sessions
from turnkeeper.store.tx import Tx
from turnkeeper.turns.creations import Created
from turnkeeper.turns.idempotency import IdempotencyInProgress, IdempotencyKeyReused, KeyedRequest
from turnkeeper.turns.ports import NotFound


class Identified(Protocol):
    """Something with an id."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Identified)


@dataclass(frozen=True, slots=True)
class KnownKey:
    """What a key stands for, and which request it came with."""

    thing_id: str
    fingerprint: str


def hold_key(tx: Tx, project_id: str, key: str) -> None:
    """Keeps every other request with the key out until the end of the transaction. Raises `IdempotencyInProgress`."""
    if not tx.lock_name(tx.conn, f"{project_id} {key}", tx.limits.idempotency_wait_ms):
        raise IdempotencyInProgress()


def known_key(conn: Connection, project_id: str, key: str) -> KnownKey | None:
    """What the project's key stands for."""
    row = find(conn, idempotency_keys, project_id=project_id, key=key)
    return None if row is None else KnownKey(row["thing_id"], row["fingerprint"])


def remember_key(tx: Tx, request: KeyedRequest, thing_id: str) -> None:
    """From now on the key stands for this."""
    values = {
        "project_id": request.project_id,
        "key": request.key,
        "fingerprint": request.fingerprint,
        "thing_id": thing_id,
        "created_at": tx.now,
    }
    add(tx.conn, idempotency_keys, values)


def once(
    tx: Tx, request: KeyedRequest | None, make: Callable[[Tx], T], load: Callable[[Connection, str], T]
) -> Created[T]:
    """What `make` makes, or what the request's key stands for already. Raises `IdempotencyKeyReused`."""
    if request is None:
        return Created(make(tx), replayed=False)
    hold_key(tx, request.project_id, request.key)
    known = known_key(tx.conn, request.project_id, request.key)
    if known is None:
        made = make(tx)
        remember_key(tx, request, made.id)
        return Created(made, replayed=False)
    if known.fingerprint != request.fingerprint:
        raise IdempotencyKeyReused(known.thing_id)
    return Created(load(tx.conn, known.thing_id), replayed=True)


def project_of(conn: Connection, session_id: str) -> str:
    """Whose a session is. Raises `NotFound`."""
    row = find(conn, sessions, id=session_id)
    if row is None:
        raise NotFound(f"there is no session {session_id}")
    return str(row["project_id"])
