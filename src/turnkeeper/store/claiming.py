"""Which turn goes next (contract 7): fair between projects, then keys, then sessions, and nobody's twice.

Answers for a claim whose cost grows with the keys that post and not with the turns that wait. In a session the front is
the only one there is; among the fronts of a key the one goes first that has been the front for longest, which takes the
sessions in turn.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, bindparam, func, or_, select, text, update

from turnkeeper.store.draining import is_draining
from turnkeeper.store.leases import claimed, take
from turnkeeper.store.ledger import unpayable_front
from turnkeeper.store.tables import IS_CLAIMABLE, queue_shares, turns
from turnkeeper.store.tx import Tx, lock_session, lock_session_if_free
from turnkeeper.turns.model import Claim
from turnkeeper.turns.queueing import Share, served, turn_to_serve

CANDIDATES: Final = 8
"""How many fronts of one key are looked at, when other workers are busy with the first ones."""

SHARES_OF_A_TURN: Final = 2
"""Its key's and its project's."""

_IS_DUE: Final = or_(turns.c.run_after.is_(None), turns.c.run_after <= bindparam("now"))
_IN_POOL: Final = turns.c.pool == bindparam("of_pool")


def _of_share() -> Select[str, str]:
    """Fronts of one key, the longest waiting first."""
    of_key = (turns.c.project_id == bindparam("project_key"), turns.c.api_key_id == bindparam("api_key"))
    query = select(turns.c.id, turns.c.session_id).where(IS_CLAIMABLE, *of_key, _IS_DUE, _IN_POOL)
    return query.order_by(turns.c.front_at, turns.c.id).limit(CANDIDATES)


def _keys_that_wait() -> Select[Any]:
    of_key = (turns.c.project_id == queue_shares.c.project_id, turns.c.api_key_id == queue_shares.c.id)
    waits = select(turns.c.id).where(IS_CLAIMABLE, *of_key, _IS_DUE, _IN_POOL)
    return select(queue_shares).where(queue_shares.c.scope == "key", waits.exists())


def _unpaid() -> Select[str, str]:
    query = select(turns.c.id, turns.c.session_id).where(IS_CLAIMABLE, _IS_DUE, unpayable_front())
    return query.order_by(turns.c.front_at, turns.c.id).limit(CANDIDATES)


# Built once: what costs in a query of this length is putting it together.
_OF_SHARE: Final = _of_share()
_KEYS_THAT_WAIT: Final = _keys_that_wait()
_UNPAID: Final = _unpaid()
_PROJECTS: Final = select(queue_shares).where(queue_shares.c.scope == "project")
_NEWEST_KEYS: Final = (
    select(queue_shares.c.project_id, func.max(queue_shares.c.began))
    .where(queue_shares.c.scope == "key")
    .group_by(queue_shares.c.project_id)
)
_KNOWN_SHARES: Final = select(func.count()).where(
    queue_shares.c.project_id == bindparam("project_key"),
    queue_shares.c.id.in_([bindparam("project_id"), bindparam("api_key")]),
)
_NEW_SHARE: Final = text(
    "INSERT INTO queue_shares (scope, project_id, id, weight, began, served)"
    " VALUES (:scope, :project_key, :id, 1, 0, 0) ON CONFLICT DO NOTHING"
)


_IN_SCOPE: Final = queue_shares.c.scope == bindparam("in_scope")
_IN_PROJECT: Final = queue_shares.c.project_id == bindparam("project_key")
_ONE_SHARE: Final = (_IN_SCOPE, _IN_PROJECT, queue_shares.c.id == bindparam("share_key"))
_LOCKED_SHARE: Final = select(queue_shares).where(*_ONE_SHARE).with_for_update()
_NEWEST: Final = {
    "key": select(func.max(queue_shares.c.began)).where(_IN_SCOPE, _IN_PROJECT),
    "project": select(func.max(queue_shares.c.began)).where(_IN_SCOPE),
}
_SERVED: Final = (
    update(queue_shares).where(*_ONE_SHARE).values(began=bindparam("began_at"), served=bindparam("served_to"))
)


def claim(tx: Tx, owner: str, *, slot: bool, pool: str) -> Claim | None:
    """The next front of a pool that nobody holds; without a `slot` only one that cannot be paid, of any pool.

    None while draining.
    """
    if is_draining(tx.conn):
        return None
    if not slot:
        return _first_of(tx, owner, tx.conn.execute(_UNPAID, {"now": tx.now}).all())
    now: dict[str, object] = {"now": tx.now, "of_pool": pool}
    for share in _in_order(tx.conn, tx.conn.execute(_KEYS_THAT_WAIT, now).mappings().all()):
        of_key = {"project_key": share["project_id"], "api_key": share["id"]}
        taken = _first_of(tx, owner, tx.conn.execute(_OF_SHARE, {**now, **of_key}).all())
        if taken is not None:
            _count(tx, share)
            return taken
    return None


def know_shares(tx: Tx, project_id: str, api_key_id: str) -> None:
    """Makes sure that the key and its project have a share to be counted in."""
    wanted = {"project_key": project_id, "project_id": project_id, "api_key": api_key_id}
    if tx.conn.execute(_KNOWN_SHARES, wanted).scalar_one() == SHARES_OF_A_TURN:
        return
    for scope, share_id in (("key", api_key_id), ("project", project_id)):
        tx.conn.execute(_NEW_SHARE, {"scope": scope, "project_key": project_id, "id": share_id})


def _first_of(tx: Tx, owner: str, fronts: Sequence[Any]) -> Claim | None:
    # First those that no other worker is busy with; where there is none, wait for one rather than find nothing.
    for turn_id, session_id in fronts:
        if lock_session_if_free(tx, session_id):
            row = take(tx, owner, turns.c.id == turn_id, IS_CLAIMABLE)
            if row is not None:
                return claimed(tx, row)
    for turn_id, session_id in fronts:
        lock_session(tx, session_id)
        row = take(tx, owner, turns.c.id == turn_id, IS_CLAIMABLE)
        if row is not None:
            return claimed(tx, row)
    return None


def _in_order(conn: Connection, keys: Sequence[RowMapping]) -> list[RowMapping]:
    if len(keys) <= 1:
        return list(keys)
    projects = {row["id"]: _share(row) for row in conn.execute(_PROJECTS).mappings()}
    newest_project = max((share.began for share in projects.values()), default=0)
    newest_keys: dict[str, int] = {row[0]: row[1] for row in conn.execute(_NEWEST_KEYS).all()}

    def due(row: RowMapping) -> tuple[int, str, int, str]:
        project = projects[row["project_id"]]
        key = turn_to_serve(_share(row), newest_keys[row["project_id"]])
        return turn_to_serve(project, newest_project), project.id, key, row["id"]

    return sorted(keys, key=due)


def _count(tx: Tx, key: RowMapping) -> None:
    # The key's before the project's, for everybody, so that no two workers wait for each other.
    for scope, share_id in (("key", key["id"]), ("project", key["project_id"])):
        one = {"in_scope": scope, "project_key": key["project_id"], "share_key": share_id}
        row = tx.conn.execute(_LOCKED_SHARE, one).mappings().one()
        peers = {name: one[name] for name in (("in_scope", "project_key") if scope == "key" else ("in_scope",))}
        after = served(_share(row), tx.conn.execute(_NEWEST[scope], peers).scalar_one())
        tx.conn.execute(_SERVED, {**one, "began_at": after.began, "served_to": after.served})


def _share(row: RowMapping) -> Share:
    return Share(row["id"], row["weight"], row["began"], row["served"])
