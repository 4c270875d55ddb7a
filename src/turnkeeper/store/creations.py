"""`Creations` on SQL: every method is one transaction of the modules beside this one."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from turnkeeper.events.webhooks.endpoints import Endpoint, NewEndpoint
from turnkeeper.store import access, agents, budgets, sessions, webhooks
from turnkeeper.store.budget_store import make_budget
from turnkeeper.store.idempotency import Identified, once
from turnkeeper.store.loading import load_session
from turnkeeper.store.statements import load_row
from turnkeeper.store.tables import sessions as session_rows
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_store import Writes
from turnkeeper.turns.access import NewKey, SessionDeleted
from turnkeeper.turns.budget_accounts import Account, NewBudget
from turnkeeper.turns.creations import Created, Creations
from turnkeeper.turns.idempotency import IdempotencyResourceDeleted, KeyedRequest
from turnkeeper.turns.model import Agent, ApiKey, Session
from turnkeeper.turns.ports import NewAgent, NewSession, NotFound

T = TypeVar("T", bound=Identified)


class SqlCreations(Creations):
    """What the API makes, in the turn store's database."""

    def __init__(self, write: Writes) -> None:
        self._write = write

    async def agent(self, new: NewAgent, request: KeyedRequest | None) -> Created[Agent]:
        return await self._once(request, lambda tx: agents.create_agent(tx, new), agents.agent_by_id)

    async def session(self, new: NewSession, request: KeyedRequest | None) -> Created[Session]:
        return await self._once(request, lambda tx: sessions.create_session(tx, new), _kept_session)

    async def budget(self, new: NewBudget, request: KeyedRequest | None) -> Created[Account]:
        def body(tx: Tx) -> Created[Account]:
            def load(conn: Connection, budget_id: str) -> Account:
                return budgets.budget_by_id(conn, new.project_id, budget_id, tx.now)

            return once(tx, request, lambda tx: make_budget(tx, new), load)

        return await self._write(body)

    async def api_key(self, new: NewKey, request: KeyedRequest | None, *, actor: str) -> Created[ApiKey]:
        return await self._once(request, lambda tx: access.make_key(tx, new, actor=actor), access.key_by_id)

    async def endpoint(self, new: NewEndpoint, request: KeyedRequest | None, *, secret: str) -> Created[Endpoint]:
        def made(tx: Tx) -> Endpoint:
            return webhooks.create_endpoint(tx, new, secret=secret)

        return await self._once(request, made, _kept_endpoint)

    async def _once(
        self, request: KeyedRequest | None, make: Callable[[Tx], T], load: Callable[[Connection, str], T]
    ) -> Created[T]:
        return await self._write(lambda tx: once(tx, request, make, load))


def _kept_session(conn: Connection, session_id: str) -> Session:
    session = load_session(conn, session_id)
    if load_row(conn, session_rows, session_id)["delete_requested_at"] is not None:
        raise SessionDeleted(f"{session_id} was deleted", detail={"session_id": session_id})
    return session


def _kept_endpoint(conn: Connection, endpoint_id: str) -> Endpoint:
    try:
        return webhooks.endpoint_by_id(conn, endpoint_id)
    except NotFound as error:
        raise IdempotencyResourceDeleted(endpoint_id) from error
