"""Whether the platform is drained (contract 2.12): kept in the database, for every process and after a restart."""

from dataclasses import asdict
from typing import Final

import orjson
from sqlalchemy import Connection, delete, select

from turnkeeper.store.rows import to_json
from turnkeeper.store.statements import add
from turnkeeper.store.tables import drains
from turnkeeper.store.tx import QUEUE_TOPIC, Tx
from turnkeeper.turns.model import CanceledBy
from turnkeeper.turns.operations import Drain, Draining

PLATFORM: Final = "platform"

_KNOWN: Final = select(drains.c.id)
_ALL: Final = select(drains)


def is_draining(conn: Connection) -> bool:
    """Whether no turn may be accepted or begun."""
    return conn.execute(_KNOWN).one_or_none() is not None


def require_open(tx: Tx) -> None:
    """Raises `Draining` while no turn is accepted."""
    if is_draining(tx.conn):
        raise Draining()


def drain_of(conn: Connection) -> Drain | None:
    """Since when and why the platform is drained; None where it is not."""
    row = conn.execute(_ALL).mappings().one_or_none()
    if row is None:
        return None
    return Drain(row["since"], row["reason"], CanceledBy(**orjson.loads(row["asked_by_json"])))


def begin_drain(tx: Tx, reason: str | None, by: CanceledBy) -> Drain:
    """From now on no turn is accepted or begun; a drained platform stays as it is."""
    known = drain_of(tx.conn)
    if known is not None:
        return known
    add(tx.conn, drains, {"id": PLATFORM, "since": tx.now, "reason": reason, "asked_by_json": to_json(asdict(by))})
    return Drain(tx.now, reason, by)


def end_drain(tx: Tx) -> None:
    """Turns are accepted and begun again."""
    tx.conn.execute(delete(drains))
    tx.topics.add(QUEUE_TOPIC)
