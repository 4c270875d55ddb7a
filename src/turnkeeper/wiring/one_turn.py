"""One turn from posting to its end, watched from inside the process: what `run` and `demo` have in common."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from turnkeeper.turns.model import Budget, CanceledBy, Step, Turn
from turnkeeper.turns.ports import NewAgent, NewSession, NewTurn
from turnkeeper.wiring.platform import Platform

POLL_MS: Final = 1_000
LAST_STEP_TIMEOUT_MS: Final = 15_000
BY_OPERATOR: Final = CanceledBy("user", None, "canceled in the terminal")


@dataclass(frozen=True, slots=True)
class Posted:
    """A turn that was accepted."""

    session_id: str
    turn_id: str


class TurnDesk:
    """Posts turns, reports their steps as they are settled, closes sessions."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._shown: dict[str, int] = {}

    async def open_session(self, agent: NewAgent, budget: Budget | None = None) -> str:
        """A new agent's new session."""
        created = await self._platform.store.create_agent(agent)
        session = await self._platform.store.create_session(NewSession(created.id, None, "{}", budget))
        return session.id

    async def post(self, new: NewTurn, *, last: bool = False) -> Posted:
        """Accepts a turn; after the `last` one the session closes by itself.

        Raises `OutputSchemaInvalid` for a schema that cannot be used.
        """
        if new.output_schema_json is not None:
            await self._platform.api.schema_checker.compile(new.output_schema_json)
        accepted = await self._platform.store.accept_turn(new)
        if last:
            await self._platform.store.close_session(new.session_id, mode="drain", by=BY_OPERATOR)
        return Posted(new.session_id, accepted.turn.id)

    async def steps(self, posted: Posted) -> AsyncGenerator[Step, None]:
        """The session's steps in order, each once, as soon as its fate is known, until the turn's last one.

        A Guardian that does not take the turn's end is waited for no longer than `LAST_STEP_TIMEOUT_MS`.
        """

        async def ended() -> bool:
            return (await self.turn(posted)).status.terminal

        async for step in self._until(posted.session_id, ended):
            yield step

    async def cancel(self, posted: Posted, *, immediate: bool) -> None:
        """Asks a turn to stop."""
        mode = "immediate" if immediate else "graceful"
        await self._platform.store.cancel_turn(posted.turn_id, mode=mode, by=BY_OPERATOR)

    async def turn(self, posted: Posted) -> Turn:
        """The turn as it is."""
        return await self._platform.store.turn(posted.turn_id)

    async def last_steps(self, session_id: str) -> AsyncGenerator[Step, None]:
        """What a closing session still has to say, waited for as in `steps`."""

        async def closed() -> bool:
            return (await self._platform.store.session(session_id)).status == "closed"

        async for step in self._until(session_id, closed):
            yield step

    async def _until(self, session_id: str, over: Callable[[], Awaitable[bool]]) -> AsyncGenerator[Step, None]:
        idle_ms = 0
        while True:
            with self._platform.wakeups.watch(session_id) as watch:
                is_over = await over()
                async for step in self._news(session_id):
                    yield step
                if is_over and (idle_ms >= LAST_STEP_TIMEOUT_MS or not await self._pending(session_id)):
                    return
                heard = await watch.wait(timeout_ms=POLL_MS)
                idle_ms = idle_ms + POLL_MS if is_over and not heard else 0

    async def _news(self, session_id: str) -> AsyncGenerator[Step, None]:
        for step in await self._platform.store.steps(session_id):
            if step.ordinal <= self._shown.get(session_id, 0):
                continue
            if step.state == "pending":
                return
            self._shown[session_id] = step.ordinal
            yield step

    async def _pending(self, session_id: str) -> bool:
        return bool(await self._platform.store.pending_steps(session_id))
