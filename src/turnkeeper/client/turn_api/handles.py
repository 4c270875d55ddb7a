"""Sessions and turns one can do something with (contract 2.2 to 2.5).

Each answer is a new handle, and a handle stays as it was when it was read: `refresh` reads again.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from turnkeeper.client.turn_api.answers import Answer
from turnkeeper.client.turn_api.bodies import given, making, narrowed, path_of, turn_body
from turnkeeper.client.turn_api.connection import AsyncConnection, monotonic_ms
from turnkeeper.client.turn_api.documents import Json
from turnkeeper.client.turn_api.file_views import Artifact
from turnkeeper.client.turn_api.pages import listed
from turnkeeper.client.turn_api.problems import ApiProblem, ServerUnreachable, WaitTimedOut
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.spending_views import TurnUsage
from turnkeeper.client.turn_api.streams import AsyncEventStream
from turnkeeper.client.turn_api.views import (
    ApprovalRule,
    Event,
    SessionSnapshot,
    SessionView,
    StreamToken,
    Submission,
    TurnView,
)

LONG_POLL_MS: Final = 25_000
EVENTS_PAGE: Final = 1_000
_AWAY: Final = frozenset({429, 500, 502, 503, 504})

OnBusy: TypeAlias = Literal["enqueue", "reject", "interrupt"]
CancelMode: TypeAlias = Literal["graceful", "immediate"]


class AsyncTurn(TurnView):
    """A turn. `events_after` is the sequence just before its first event, `replayed` says that the key was known."""

    __slots__ = ("_connection", "events_after", "replayed")

    _connection: AsyncConnection
    events_after: int
    replayed: bool

    def __init__(
        self, members: Json, connection: AsyncConnection, *, events_after: int | None = None, replayed: bool = False
    ) -> None:
        super().__init__(members)
        first = self.first_sequence
        known = events_after if events_after is not None else first - 1 if first else 0
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "events_after", known)
        object.__setattr__(self, "replayed", replayed)

    async def refresh(self) -> "AsyncTurn":
        """The turn as it is now."""
        return await self._asked(Call("GET", self._path(), repeatable=True))

    async def wait(self, timeout_ms: int | None = None) -> "AsyncTurn":
        """The turn once it has ended. Raises `WaitTimedOut`; the turn goes on then.

        A server that is away for less than `Retries.outage_ms` does not end the wait.
        """
        started_ms, turn, failures = monotonic_ms(), self, 0
        away_since_ms: int | None = None
        while not turn.ended:
            asked_ms = monotonic_ms()
            left_ms = None if timeout_ms is None else timeout_ms - (asked_ms - started_ms)
            if left_ms is not None and left_ms <= 0:
                raise WaitTimedOut(turn, timeout_ms or 0)
            wait_ms = LONG_POLL_MS if left_ms is None else min(LONG_POLL_MS, left_ms)
            try:
                turn, failures, away_since_ms = await self._polled(wait_ms), 0, None
            except (ServerUnreachable, ApiProblem) as error:
                away_since_ms = away_since_ms or asked_ms
                if not self._is_bearable(error, away_since_ms):
                    raise
                failures += 1
            # A server that stops answers at once: it is not asked again in the same breath.
            if not turn.ended and monotonic_ms() - asked_ms < wait_ms:
                await self._connection.pause(max(1, failures))
        return turn

    async def cancel(self, *, mode: CancelMode = "graceful", reason: str | None = None) -> "AsyncTurn":
        """Asks the turn to stop; one that waits in the queue ends at once, an ended one stays as it is."""
        body = {"mode": mode} | ({} if reason is None else {"reason": reason})
        return await self._asked(Call("POST", self._path("cancel"), body, repeatable=True))

    async def answer_tool(self, tool_call_id: str, *, output: Any = None, error: str | None = None) -> "AsyncTurn":
        """Answers a call of a tool that the app runs: `output` (text or JSON) or, if it went wrong, `error`."""
        given = {"output": output} if error is None else {"error": error}
        body = {"tool_call_id": tool_call_id, **given}
        return await self._asked(Call("POST", self._path("tool_results"), body, repeatable=True))

    async def retry(
        self,
        *,
        idempotency_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Mapping[str, Any] | None = None,
    ) -> "AsyncTurn":
        """A new turn with the input of this one, which has ended; posted once. Raises `Conflict` before the end."""
        call = making(self._path("retry"), given(metadata=metadata, budget=budget), idempotency_key)
        return posted_turn(await self._connection.ask(call), self._connection)

    async def submissions(self) -> Sequence[Submission]:
        """What the agent submitted for the output schema, refused values too."""
        call = Call("GET", self._path("submissions"), repeatable=True)
        return [Submission(members) async for members in listed(self._connection, call, page=None)]

    async def artifacts(self) -> Sequence[Artifact]:
        """What the turn has left so far, in the order in which it did."""
        call = Call("GET", self._path("artifacts"), query={"order": "asc"}, repeatable=True)
        return [Artifact(members) async for members in listed(self._connection, call)]

    async def events(self, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """The stored events of the turn so far, in their order."""
        call = Call("GET", self._path("events"), query=_event_query(types) | {"after": str(after)}, repeatable=True)
        async for members in listed(self._connection, call, page=EVENTS_PAGE):
            yield Event(members)

    async def usage_ledger(self) -> TurnUsage:
        """What the turn has used so far, and each model call with what was reserved and what it came to."""
        return TurnUsage((await self._connection.ask(Call("GET", self._path("usage"), repeatable=True))).members)

    def stream(
        self, *, after: int | None = None, types: Sequence[str] = (), deltas: bool | None = None
    ) -> AsyncEventStream:
        """The events of the turn, stored ones first, then as they come, up to its end.

        `deltas`: whether unfinished text comes too, where it may be shown.
        """
        start = self.events_after if after is None else after
        path, query = self._path("events", "stream"), _event_query(types, deltas)
        return AsyncEventStream(self._connection, path, after=start, query=query, gapless=False)

    async def session(self) -> "AsyncSession":
        """The session that the turn is in."""
        answer = await self._connection.ask(Call("GET", path_of("sessions", self.session_id), repeatable=True))
        return AsyncSession(answer.members, self._connection)

    def _path(self, *verbs: str) -> str:
        return path_of("turns", self.id, *verbs)

    async def _polled(self, wait_ms: int) -> "AsyncTurn":
        call = Call("GET", self._path(), query={"wait_ms": str(wait_ms)}, repeatable=True)
        return self._again((await self._connection.ask(call, timeout_ms=wait_ms)).members)

    async def _asked(self, call: Call) -> "AsyncTurn":
        return self._again((await self._connection.ask(call)).members)

    def _again(self, members: Json) -> "AsyncTurn":
        return AsyncTurn(members, self._connection, events_after=self.events_after, replayed=self.replayed)

    def _is_bearable(self, error: ServerUnreachable | ApiProblem, away_since_ms: int) -> bool:
        if isinstance(error, ApiProblem) and error.status not in _AWAY:
            return False
        return monotonic_ms() - away_since_ms < self._connection.retries.outage_ms


class AsyncSession(SessionView):
    """A session with an agent."""

    __slots__ = ("_connection",)

    _connection: AsyncConnection

    def __init__(self, members: Json, connection: AsyncConnection) -> None:
        super().__init__(members)
        object.__setattr__(self, "_connection", connection)

    async def refresh(self) -> "AsyncSession":
        """The session as it is now."""
        return await self._asked(Call("GET", self._path(), repeatable=True))

    async def post_turn(
        self,
        input: str | Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        output_schema: Mapping[str, Any] | bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Mapping[str, Any] | None = None,
        on_busy: OnBusy | None = None,
        start_by: datetime | None = None,
        max_repair_attempts: int | None = None,
        max_attempts: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> AsyncTurn:
        """Posts a turn, once, however often it has to be sent: without a key of yours it gets a random one.

        With a key of yours the same turn comes back after a crash of the app too (`replayed`). `extra` has members
        that this version does not know. Raises `Conflict` (`session_busy`, `session_closed`), `TooMany`, and the rest.
        """
        body = turn_body(
            input,
            output_schema=output_schema,
            metadata=metadata,
            budget=budget,
            on_busy=on_busy,
            start_by=start_by,
            max_repair_attempts=max_repair_attempts,
            max_attempts=max_attempts,
            extra=extra,
        )
        answer = await self._connection.ask(making(self._path("turns"), body, idempotency_key))
        return posted_turn(answer, self._connection)

    async def turns(
        self,
        *,
        status: str | None = None,
        stop_reason: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
        order: Literal["asc", "desc"] = "desc",
    ) -> AsyncIterator[AsyncTurn]:
        """The session's turns that fit every filter given, newest first unless `order` says otherwise.

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
        call = Call("GET", self._path("turns"), query=query, repeatable=True)
        async for members in listed(self._connection, call, limit=limit):
            yield AsyncTurn(members, self._connection)

    async def events(self, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """The stored events so far, in their order."""
        call = Call("GET", self._path("events"), query=_event_query(types) | {"after": str(after)}, repeatable=True)
        async for members in listed(self._connection, call, page=EVENTS_PAGE):
            yield Event(members)

    def stream(
        self, *, after: int | None = None, types: Sequence[str] = (), deltas: bool | None = None
    ) -> AsyncEventStream:
        """The events behind `after` (behind those this handle knows of, if it is None), until the session is closed.

        `deltas`: whether unfinished text comes too, where it may be shown.
        """
        start = self.last_sequence if after is None else after
        path, query = self._path("events", "stream"), _event_query(types, deltas)
        return AsyncEventStream(self._connection, path, after=start, query=query, gapless=not types)

    async def snapshot(self) -> SessionSnapshot:
        """The session with its turns and open questions, all as of one event: stream on with `after=as_of`."""
        call = Call("GET", self._path("snapshot"), repeatable=True)
        return SessionSnapshot((await self._connection.ask(call)).members)

    async def stream_token(self, *, ttl_s: int | None = None) -> StreamToken:
        """A token that lets a browser open streams of this session."""
        call = Call("POST", self._path("stream_tokens"), given(ttl_s=ttl_s), repeatable=True)
        return StreamToken((await self._connection.ask(call)).members)

    async def approval_rules(self) -> Sequence[ApprovalRule]:
        """The answers that hold for the same input until the session ends."""
        call = Call("GET", self._path("approval_rules"), repeatable=True)
        return [ApprovalRule(members) async for members in listed(self._connection, call, page=None)]

    async def remove_approval_rule(self, rule_id: str) -> None:
        """Takes a remembered answer back."""
        await self._connection.ask(Call("DELETE", self._path("approval_rules", rule_id)))

    async def change(self, changes: Mapping[str, Any]) -> "AsyncSession":
        """Changes `title`, `metadata` or `retention_days`; what is left out stays."""
        return await self._asked(Call("PATCH", self._path(), changes, repeatable=True))

    async def delete(self) -> None:
        """Has the session's content erased; ids, times and usage remain."""
        await self._connection.ask(Call("DELETE", self._path(), repeatable=True))

    async def close(self, *, mode: Literal["drain", "cancel"] = "drain") -> "AsyncSession":
        """Takes no more turns; `drain` works off the queue first, `cancel` cancels it."""
        return await self._asked(Call("POST", self._path("close"), {"mode": mode}, repeatable=True))

    def _path(self, *verbs: str) -> str:
        return path_of("sessions", self.id, *verbs)

    async def _asked(self, call: Call) -> "AsyncSession":
        return AsyncSession((await self._connection.ask(call)).members, self._connection)


def posted_turn(answer: Answer, connection: AsyncConnection) -> AsyncTurn:
    """The turn that was accepted, or that the key already had."""
    after = answer.headers.get("events-after", "")
    return AsyncTurn(
        answer.members,
        connection,
        events_after=int(after) if after.isdecimal() else None,
        replayed=answer.headers.get("idempotent-replayed") == "true",
    )


def _event_query(types: Sequence[str], deltas: bool | None = None) -> dict[str, str]:
    shown = None if deltas is None else str(deltas).lower()
    return given(types=",".join(types) or None, deltas=shown)
