"""Agents: written once, read often."""

from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, insert, select

from turnkeeper.store.pages import load_page, within
from turnkeeper.store.rows import to_agent, to_json
from turnkeeper.store.statements import find
from turnkeeper.store.tables import agents
from turnkeeper.store.tx import Tx
from turnkeeper.turns.model import Agent, Reach
from turnkeeper.turns.ports import NewAgent, NotFound, Page, PageRequest

FIRST_VERSION: Final = 1


def create_agent(tx: Tx, new: NewAgent) -> Agent:
    """The first version of an agent."""
    values: dict[str, object] = {
        "id": tx.ids.new("agt"),
        "version": FIRST_VERSION,
        "project_id": new.project_id,
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


def agent_of_project(conn: Connection, agent_id: str, project_id: str) -> Agent:
    """One agent of the project. Raises `NotFound`."""
    row = find(conn, agents, id=agent_id, project_id=project_id)
    if row is None:
        raise NotFound(f"there is no agent {agent_id}")
    return to_agent(row)


def list_agents(conn: Connection, page: PageRequest, reach: Reach | None = None) -> Page[Agent]:
    """A page of agents, of all or of those within reach."""
    query = select(agents).where(*within(reach, agents.c.project_id, agents.c.id))
    return load_page(conn, query, agents.c.id, page, lambda rows: [to_agent(row) for row in rows])
