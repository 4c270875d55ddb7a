"""Waiting for a turn's end in a request (contract 2.3, `wait_ms`).

Answers for an answer within the time asked for, at the end at once. Losing the connection ends the wait and nothing
else.
"""

from fastapi import Request

from turnkeeper.api.deps import ApiDeps
from turnkeeper.turns.model import Turn


async def wait_for_end(turn: Turn, deps: ApiDeps, request: Request, *, wait_ms: int) -> Turn:
    """The turn once it has ended, or as it is when the time is up, the client has gone or the server stops."""
    until_ms = deps.clock.monotonic_ms() + wait_ms
    with deps.news.watch(turn.session_id) as watch, deps.streams.attach(watch):
        while True:
            turn = await deps.store.turn(turn.id)
            left_ms = until_ms - deps.clock.monotonic_ms()
            if turn.status.terminal or left_ms <= 0 or deps.streams.draining.is_set():
                return turn
            if await request.is_disconnected():
                return turn
            # News of other processes may never come here, hence the look once in a while.
            await watch.wait(timeout_ms=min(left_ms, deps.settings.poll_ms))
