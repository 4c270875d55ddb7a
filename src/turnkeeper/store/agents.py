"""Agents and API keys: written once, read often."""

from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, insert, select, update

from turnkeeper.store.pages import load_page
from turnkeeper.store.rows import to_agent, to_json, to_key
from turnkeeper.store.tables import agents, api_keys
from turnkeeper.store.tx import Tx
from turnkeeper.turns.model import PROJECT_ID, Agent, ApiKey
from turnkeeper.turns.ports import NewAgent, NotFound, Page, PageRequest

FIRST_VERSION: Final = 1
MAX_KEYS: Final = 1_000


def create_agent(tx: Tx, new: NewAgent) -> Agent:
    """The first version of an agent."""
    values: dict[str, object] = {
        "id": tx.ids.new("agt"),
        "version": FIRST_VERSION,
        "project_id": PROJECT_ID,
        "name": new.name,
        "model_provider": new.model.provider,
        "model_id": new.model.id,
        "model_params_json": to_json(dict(new.model.params)),
        "instructions": new.instructions,
        "tools_json": to_json(new.tools),
        "timeout_ms": new.limits.timeout_ms,
        "max_repair_attempts": new.limits.max_repair_attempts,
        "max_attempts": new.limits.max_attempts,
        "metadata_json": new.metadata_json,
        "created_at": tx.now,
        "permissions_json": to_json(dict(new.permissions)),
        "client_tools_json": to_json([asdict(tool) for tool in new.client_tools]),
        "pause_expiry_ms": new.limits.pause_expiry_ms,
    }
    return to_agent(tx.conn.execute(insert(agents).returning(agents), values).mappings().one())


def agent_by_id(conn: Connection, agent_id: str) -> Agent:
    """One agent. Raises `NotFound`."""
    row = conn.execute(select(agents).where(agents.c.id == agent_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no agent {agent_id}")
    return to_agent(row)


def list_agents(conn: Connection, page: PageRequest) -> Page[Agent]:
    """A page of agents."""
    return load_page(conn, select(agents), agents.c.id, page, lambda rows: [to_agent(row) for row in rows])


def create_key(tx: Tx, *, name: str, secret_sha256: str) -> ApiKey:
    """An API key; the secret itself never comes here."""
    values = {"id": tx.ids.new("key"), "name": name, "secret_sha256": secret_sha256, "created_at": tx.now}
    return to_key(tx.conn.execute(insert(api_keys).returning(api_keys), values).mappings().one())


def active_key(conn: Connection, secret_sha256: str) -> ApiKey | None:
    """The key with this secret, unless it was revoked."""
    query = select(api_keys).where(api_keys.c.secret_sha256 == secret_sha256, api_keys.c.revoked_at.is_(None))
    row = conn.execute(query).mappings().one_or_none()
    return None if row is None else to_key(row)


def list_keys(conn: Connection) -> tuple[ApiKey, ...]:
    """The oldest `MAX_KEYS` keys, revoked ones included."""
    return tuple(
        to_key(row) for row in conn.execute(select(api_keys).order_by(api_keys.c.id).limit(MAX_KEYS)).mappings()
    )


def revoke_key(tx: Tx, key_id: str) -> ApiKey:
    """The key, unusable from now on. Raises `NotFound`."""
    unrevoked = update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
    tx.conn.execute(unrevoked.values(revoked_at=tx.now))
    row = tx.conn.execute(select(api_keys).where(api_keys.c.id == key_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no key {key_id}")
    return to_key(row)
