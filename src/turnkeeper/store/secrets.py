"""Secrets in the database, sealed: `SecretStore` on SQL (contract 2.13).

A sealed value is bound to its project, id, name and hosts: a row that was changed by hand cannot be opened any more.
"""

from collections.abc import Collection, Mapping
from typing import Final

import structlog
from sqlalchemy import Connection, delete, func, insert, select

from turnkeeper.errors import TurnkeeperError
from turnkeeper.sealing import Sealer
from turnkeeper.store.idempotency import once
from turnkeeper.store.pages import load_page
from turnkeeper.store.rows import to_json, to_secret
from turnkeeper.store.secret_tables import secrets
from turnkeeper.store.statements import find
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.creations import Created
from turnkeeper.turns.idempotency import IdempotencyResourceDeleted, KeyedRequest
from turnkeeper.turns.ports import NotFound, Page, PageRequest, StoreUnavailable
from turnkeeper.turns.secrets import (
    MAX_SECRETS,
    NewSecret,
    OpenedSecret,
    Secret,
    SecretExists,
    SecretStore,
    TooManyStoredSecrets,
)

_LOCK: Final = "secrets"

_log = structlog.get_logger(__name__)


class SqlSecretStore(SecretStore):
    """Secrets, in the turn store's database, sealed with this installation's key."""

    def __init__(self, read: Reads, write: Writes, sealer: Sealer) -> None:
        self._read = read
        self._write = write
        self._sealer = sealer

    def mark(self, value: str) -> str:
        return self._sealer.mark(value)

    async def make(self, new: NewSecret, request: KeyedRequest | None) -> Created[Secret]:
        return await self._write(lambda tx: once(tx, request, lambda tx: self._made(tx, new), _kept))

    async def secret(self, secret_id: str) -> Secret:
        return await self._read(lambda conn: _by_id(conn, secret_id))

    async def secrets_of(self, project_id: str, page: PageRequest) -> Page[Secret]:
        query = select(secrets).where(secrets.c.project_id == project_id)
        return await self._read(
            lambda conn: load_page(conn, query, secrets.c.id, page, lambda rows: [to_secret(row) for row in rows])
        )

    async def known(self, project_id: str, names: Collection[str]) -> frozenset[str]:
        query = select(secrets.c.name).where(secrets.c.project_id == project_id, secrets.c.name.in_(names))
        return await self._read(lambda conn: frozenset(conn.execute(query).scalars()))

    async def delete(self, secret_id: str) -> None:
        def body(tx: Tx) -> None:
            _by_id(tx.conn, secret_id)
            tx.conn.execute(delete(secrets).where(secrets.c.id == secret_id))

        await self._write(body)

    async def opened(self, project_id: str, names: Collection[str]) -> Mapping[str, OpenedSecret]:
        query = select(secrets).where(secrets.c.project_id == project_id, secrets.c.name.in_(names))

        def load(conn: Connection) -> list[tuple[Secret, str]]:
            return [(to_secret(row), row["sealed"]) for row in conn.execute(query).mappings()]

        found: dict[str, OpenedSecret] = {}
        for secret, sealed in await self._read(load):
            try:
                found[secret.name] = OpenedSecret(secret.hosts, self._sealer.open(sealed, _bound(secret)))
            except TurnkeeperError as error:
                _log.error("secret_not_opened", secret_id=secret.id, error=str(error))
        return found

    def _made(self, tx: Tx, new: NewSecret) -> Secret:
        if not tx.lock_name(tx.conn, f"{_LOCK} {new.project_id}", tx.limits.idempotency_wait_ms):
            raise StoreUnavailable("other secrets of the project are being made")
        if find(tx.conn, secrets, project_id=new.project_id, name=new.name) is not None:
            raise SecretExists(f"there is a secret {new.name}", hint="Delete it first, or choose another name.")
        count = select(func.count()).select_from(secrets).where(secrets.c.project_id == new.project_id)
        if tx.conn.execute(count).scalar_one() >= MAX_SECRETS:
            raise TooManyStoredSecrets(f"a project has at most {MAX_SECRETS} secrets")
        made = Secret(tx.ids.new("sec"), new.project_id, new.name, new.hosts, tx.now)
        values: dict[str, object] = {
            "id": made.id,
            "project_id": made.project_id,
            "name": made.name,
            "hosts_json": to_json(made.hosts),
            "sealed": self._sealer.seal(new.value, _bound(made)),
            "created_at": made.created_at,
        }
        tx.conn.execute(insert(secrets), values)
        return made


def _by_id(conn: Connection, secret_id: str) -> Secret:
    row = find(conn, secrets, id=secret_id)
    if row is None:
        raise NotFound(f"there is no secret {secret_id}")
    return to_secret(row)


def _kept(conn: Connection, secret_id: str) -> Secret:
    try:
        return _by_id(conn, secret_id)
    except NotFound as error:
        raise IdempotencyResourceDeleted(secret_id) from error


def _bound(secret: Secret) -> str:
    return to_json([secret.project_id, secret.id, secret.name, list(secret.hosts)])
