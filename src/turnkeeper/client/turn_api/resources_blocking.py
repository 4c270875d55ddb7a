"""What a server has besides sessions and turns one holds: agents, events, approvals (contract 2).

Made from `turnkeeper.client.turn_api.resources` by `tests/unit/client/turn_api_half.py`; change it there.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from turnkeeper.client.turn_api.bodies import given, making, narrowed, path_of
from turnkeeper.client.turn_api.connection_blocking import Connection
from turnkeeper.client.turn_api.handles_blocking import Session, Turn, posted_turn
from turnkeeper.client.turn_api.pages_blocking import listed
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import Agent, Approval, Event

Order: TypeAlias = Literal["asc", "desc"]


class Agents:
    """Agents (contract 2.1)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        name: str,
        model: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        instructions: str | None = None,
        tools: Sequence[str | Mapping[str, Any]] | None = None,
        permissions: Mapping[str, str] | None = None,
        limits: Mapping[str, int] | None = None,
        sandbox: Mapping[str, Any] | None = None,
        harness: Mapping[str, Any] | None = None,
        mcp_servers: Sequence[Mapping[str, Any]] | None = None,
        skills: Sequence[Mapping[str, Any]] | None = None,
        budget: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Agent:
        """Makes an agent, once. `model` is `{"provider": …, "id": …}`; a tool the app runs is `{"kind": "client", …}`.

        `sandbox` has the box's size and `network`, `harness` what runs the loop, `mcp_servers` programs and addresses
        whose tools it gets, `skills` versions of skills as `{"id": …}` or `{"name": …, "version": …}`; `budget` is over
        all its versions.
        """
        body = given(
            extra,
            name=name,
            model=model,
            instructions=instructions,
            tools=tools,
            permissions=permissions,
            limits=limits,
            sandbox=sandbox,
            harness=harness,
            mcp_servers=mcp_servers,
            skills=skills,
            budget=budget,
            metadata=metadata,
        )
        return Agent((self._connection.ask(making(path_of("agents"), body, idempotency_key))).members)

    def get(self, agent_id: str) -> Agent:
        """The agent. Raises `NotFound`."""
        call = Call("GET", path_of("agents", agent_id), repeatable=True)
        return Agent((self._connection.ask(call)).members)

    def version(self, agent_id: str, version: int) -> Agent:
        """One version of the agent. Raises `NotFound`."""
        call = Call("GET", path_of("agents", agent_id, "versions", str(version)), repeatable=True)
        return Agent((self._connection.ask(call)).members)

    def change(self, agent: Agent, changes: Mapping[str, Any]) -> Agent:
        """A new version; what is left out stays. Raises `Conflict` (`version_conflict`) if it was changed meanwhile."""
        body = {**changes, "expected_version": agent.version}
        return Agent((self._connection.ask(Call("POST", path_of("agents", agent.id), body))).members)

    def archive(self, agent_id: str) -> Agent:
        """Takes no more sessions with the agent."""
        call = Call("POST", path_of("agents", agent_id, "archive"), repeatable=True)
        return Agent((self._connection.ask(call)).members)

    def versions(self, agent_id: str, *, order: Order = "desc") -> Sequence[Agent]:
        """Every version of the agent, newest first unless `order` says otherwise."""
        call = Call("GET", path_of("agents", agent_id, "versions"), query={"order": order}, repeatable=True)
        return [Agent(members) for members in listed(self._connection, call)]

    def list(self, *, limit: int | None = None, order: Order = "desc") -> Iterator[Agent]:
        """Agents, newest first unless `order` says otherwise."""
        call = Call("GET", path_of("agents"), query={"order": order}, repeatable=True)
        for members in listed(self._connection, call, limit=limit):
            yield Agent(members)


class Sessions:
    """Sessions (contract 2.2)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        agent: Agent | str,
        *,
        idempotency_key: str | None = None,
        title: str | None = None,
        budget: Mapping[str, Any] | None = None,
        network: Mapping[str, Any] | None = None,
        secrets: Sequence[Mapping[str, str]] | None = None,
        metadata: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Session:
        """Opens a session with an agent, or with the agent of this id, once.

        `network` narrows what its tools may reach; `secrets` are `{"name": variable, "ref": name of the secret}`.
        """
        agent_id = agent if isinstance(agent, str) else agent.id
        body = given(
            extra,
            agent_id=agent_id,
            title=title,
            budget=budget,
            network=network,
            secrets=secrets,
            metadata=metadata,
        )
        answer = self._connection.ask(making(path_of("sessions"), body, idempotency_key))
        return Session(answer.members, self._connection)

    def get(self, session_id: str) -> Session:
        """The session. Raises `NotFound`."""
        answer = self._connection.ask(Call("GET", path_of("sessions", session_id), repeatable=True))
        return Session(answer.members, self._connection)

    def list(
        self,
        *,
        agent_id: str | None = None,
        status: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
        order: Order = "desc",
    ) -> Iterator[Session]:
        """Sessions that fit every filter given, newest first unless `order` says otherwise.

        `metadata` are top-level members and their texts.
        """
        query = narrowed(
            order=order,
            agent_id=agent_id,
            status=status,
            created_after=created_after,
            created_before=created_before,
            metadata=metadata,
        )
        for members in listed(
            self._connection, Call("GET", path_of("sessions"), query=query, repeatable=True), limit=limit
        ):
            yield Session(members, self._connection)


class Turns:
    """Turns by their ids; a session posts them (contract 2.3)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, turn_id: str) -> Turn:
        """The turn. Raises `NotFound`."""
        answer = self._connection.ask(Call("GET", path_of("turns", turn_id), repeatable=True))
        return Turn(answer.members, self._connection)

    def post(
        self,
        agent: Agent | str,
        input: str | Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        output_schema: Mapping[str, Any] | bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Posts a turn in a session of its own, which closes with it; once, as `Session.post_turn`."""
        agent_id = agent if isinstance(agent, str) else agent.id
        more = given(extra, agent_id=agent_id)
        body = given(more, input=input, output_schema=output_schema, metadata=metadata, budget=budget)
        call = making(path_of("turns"), body, idempotency_key)
        return posted_turn(self._connection.ask(call), self._connection)

    def list(
        self,
        *,
        status: str | None = None,
        stop_reason: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
        order: Order = "desc",
    ) -> Iterator[Turn]:
        """Turns of all sessions that fit every filter given, newest first unless `order` says otherwise.

        `metadata` are top-level members and their texts.
        """
        query = narrowed(
            order=order,
            status=status,
            stop_reason=stop_reason,
            created_after=created_after,
            created_before=created_before,
            metadata=metadata,
        )
        call = Call("GET", path_of("turns"), query=query, repeatable=True)
        for members in listed(self._connection, call, limit=limit):
            yield Turn(members, self._connection)


class Events:
    """Events by their ids; a session or a turn lists and streams them (contract 2.4)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, event_id: str) -> Event:
        """The event. Raises `NotFound`."""
        call = Call("GET", path_of("events", event_id), repeatable=True)
        return Event((self._connection.ask(call)).members)


class Approvals:
    """Questions that turns wait for (contract 2.5)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self,
        *,
        status: str | None = "pending",
        session_id: str | None = None,
        limit: int | None = None,
        order: Order = "desc",
    ) -> Iterator[Approval]:
        """Approvals, those that wait unless told otherwise; `status=None` has all."""
        query = given(status=status, session_id=session_id, order=order)
        call = Call("GET", path_of("approvals"), query=query, repeatable=True)
        for members in listed(self._connection, call, limit=limit):
            yield Approval(members)

    def get(self, approval_id: str) -> Approval:
        """The approval. Raises `NotFound`."""
        call = Call("GET", path_of("approvals", approval_id), repeatable=True)
        return Approval((self._connection.ask(call)).members)

    def approve(
        self,
        approval: Approval | str,
        *,
        note: str | None = None,
        remember: Literal["once", "session"] | None = None,
        modified_input: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
        input_hash: str | None = None,
    ) -> Approval:
        """Lets the step go on. An `Approval` binds the answer to the input it showed; with an id say `input_hash`.

        Raises `Conflict` (`approval_already_decided`, `approval_input_changed`).
        """
        more = given(remember=remember, modified_input=modified_input, context=context)
        return self._decide(approval, "approve", input_hash, note, more)

    def deny(self, approval: Approval | str, *, note: str | None = None, input_hash: str | None = None) -> Approval:
        """Denies the step; the agent is told so. Raises `Conflict`."""
        return self._decide(approval, "deny", input_hash, note, {})

    def _decide(
        self, approval: Approval | str, word: str, input_hash: str | None, note: str | None, more: Mapping[str, Any]
    ) -> Approval:
        approval_id = approval if isinstance(approval, str) else approval.id
        if input_hash is None and not isinstance(approval, str) and approval.tool is not None:
            input_hash = approval.tool.input_hash
        body = given(more, decision=word, input_hash=input_hash, note=note)
        call = Call("POST", path_of("approvals", approval_id, "decision"), body, repeatable=True)
        return Approval((self._connection.ask(call)).members)
