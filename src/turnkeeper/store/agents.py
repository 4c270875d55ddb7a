"""Agents and their versions, which never change (contract 2.1)."""

from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, bindparam, insert, select, update

from turnkeeper.store.budgets import open_account
from turnkeeper.store.pages import load_page, within
from turnkeeper.store.price_checks import require_price_of
from turnkeeper.store.rows import to_agent, to_json
from turnkeeper.store.statements import add, find
from turnkeeper.store.tables import agent_versions, agents
from turnkeeper.store.tx import Tx
from turnkeeper.turns.model import Agent, Reach
from turnkeeper.turns.ports import AgentArchived, NewAgent, NotFound, Page, PageRequest, VersionConflict

FIRST_VERSION: Final = 1


_VERSION_COLUMNS: Final = tuple(column for column in agent_versions.columns if column is not agent_versions.c.agent_id)
_VERSIONS: Final = select(
    agent_versions.c.agent_id.label("id"), *_VERSION_COLUMNS, agents.c.archived_at, agents.c.budget_id
).join_from(agent_versions, agents, agents.c.id == agent_versions.c.agent_id)
_ONE_VERSION: Final = _VERSIONS.where(
    agent_versions.c.agent_id == bindparam("agent_key"), agent_versions.c.version == bindparam("version_key")
)


def create_agent(tx: Tx, new: NewAgent) -> Agent:
    """The first version of an agent, and the budget over it where it brings one. Raises `PriceUnknown`."""
    agent_id = tx.ids.new("agt")
    account = None if new.budget is None else open_account(tx, "agent", agent_id, new.budget, project_id=new.project_id)
    budget_id = None if account is None else account.id
    values = {"id": agent_id, "version": FIRST_VERSION, "budget_id": budget_id, **_columns(tx, new)}
    agent = to_agent(tx.conn.execute(insert(agents).returning(agents), values).mappings().one())
    _keep_version(tx, agent.id, FIRST_VERSION, new)
    if account is not None:
        require_price_of(tx, account)
    return agent


def change_agent(tx: Tx, agent_id: str, new: NewAgent, *, expected_version: int) -> Agent:
    """The next version. Raises `NotFound`, `VersionConflict`, `AgentArchived`."""
    agent = _locked(tx, agent_id)
    if agent.archived_at is not None:
        raise AgentArchived(f"{agent_id} was archived", hint="Make another agent.")
    if agent.version != expected_version:
        raise VersionConflict(
            f"{agent_id} has version {agent.version} and not {expected_version}",
            detail={"version": agent.version},
            hint="Read the agent again, and change what it is now.",
        )
    version = agent.version + 1
    _keep_version(tx, agent_id, version, new)
    columns = {"version": version, **_columns(tx, new)}
    tx.conn.execute(update(agents).where(agents.c.id == agent_id).values(columns))
    return agent_by_id(tx.conn, agent_id)


def archive_agent(tx: Tx, agent_id: str) -> Agent:
    """The agent, for no more sessions; those that are open go on. Raises `NotFound`."""
    if _locked(tx, agent_id).archived_at is None:
        tx.conn.execute(update(agents).where(agents.c.id == agent_id).values(archived_at=tx.now))
    return agent_by_id(tx.conn, agent_id)


def agent_by_id(conn: Connection, agent_id: str, version: int | None = None) -> Agent:
    """A version of an agent, the newest where none is named. Raises `NotFound`."""
    if version is None:
        row = find(conn, agents, id=agent_id)
    else:
        named = {"agent_key": agent_id, "version_key": version}
        row = conn.execute(_ONE_VERSION, named).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no agent {agent_id}" if version is None else f"{agent_id} has no version {version}")
    return to_agent(row)


def list_versions(conn: Connection, agent_id: str, page: PageRequest) -> Page[Agent]:
    """A page of an agent's versions; `after` is a number. Raises `NotFound`."""
    agent_by_id(conn, agent_id)
    number, upwards = agent_versions.c.version, page.order == "asc"
    query = _VERSIONS.where(agent_versions.c.agent_id == agent_id)
    if page.after is not None:
        query = query.where(number > int(page.after) if upwards else number < int(page.after))
    ordered = query.order_by(number.asc() if upwards else number.desc()).limit(page.limit + 1)
    found = [to_agent(row) for row in conn.execute(ordered).mappings()]
    return Page(tuple(found[: page.limit]), has_more=len(found) > page.limit)


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


def _locked(tx: Tx, agent_id: str) -> Agent:
    row = tx.conn.execute(select(agents).where(agents.c.id == agent_id).with_for_update()).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no agent {agent_id}")
    return to_agent(row)


def _keep_version(tx: Tx, agent_id: str, version: int, new: NewAgent) -> None:
    add(tx.conn, agent_versions, {"agent_id": agent_id, "version": version, **_columns(tx, new)})


def _columns(tx: Tx, new: NewAgent) -> dict[str, object]:
    return {
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
        "subagents_json": to_json([asdict(subagent) for subagent in new.subagents]),
        "skills_json": to_json([asdict(skill) for skill in new.skills]),
        "client_tools_json": to_json([asdict(tool) for tool in new.client_tools]),
        "pause_expiry_ms": new.limits.pause_expiry_ms,
        "stream_before_decision": new.stream_before_decision,
        "sandbox_json": to_json({**asdict(new.sandbox), "network": asdict(new.network), "pool": new.pool}),
        "harness_json": to_json(asdict(new.harness)),
        "mcp_servers_json": to_json([asdict(server) for server in new.mcp_servers]),
    }
