"""One port, two products: `/acs` and `/guardian/v1` are the Guardian's as plain ASGI, `/worker/v1` is for
runners elsewhere, all else is the turn API's.

And the door that has no port: the in-process link from the platform to its own Guardian, which carries the same signed
bytes as the other one.
"""

import asyncio
from typing import Final

from turnkeeper.guardian.admin import ADMIN_PREFIX
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.http import AsgiApp, Receive, Scope, Send
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.runners.app import PREFIX as RUNNERS_PREFIX
from turnkeeper.turns.ports import GuardianUnreachable

ACS_PATH: Final = "/acs"


def dispatch(
    api: AsgiApp, acs: AsgiApp | None, admin: AsgiApp | None = None, runners: AsgiApp | None = None
) -> AsgiApp:
    """An application that serves all. Without a Guardian of ours its paths are the API's business (404)."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if acs is not None and scope["type"] == "http" and scope["path"] == ACS_PATH:
            await acs(scope, receive, send)
        elif admin is not None and scope["type"] == "http" and _is_below(ADMIN_PREFIX, scope["path"]):
            await admin(scope, receive, send)
        elif runners is not None and scope["type"] == "http" and _is_below(RUNNERS_PREFIX, scope["path"]):
            await runners(scope, receive, send)
        else:
            await api(scope, receive, send)

    return app


def _is_below(prefix: str, path: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


class InProcessLink:
    """`turns.ports.GuardianLink` to the Guardian in this process."""

    def __init__(self, guardian: Guardian, door: Door) -> None:
        self._guardian = guardian
        self._door = door
        self._deciding: set[asyncio.Task[bytes]] = set()

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        """One request and its answer. Raises `GuardianUnreachable` at the deadline.

        A step that was given up on is decided all the same, as it would be at the end of a cut connection.
        """
        answer = asyncio.create_task(self._guardian.answer(body, self._door))
        self._deciding.add(answer)
        answer.add_done_callback(self._deciding.discard)
        done, _ = await asyncio.wait({answer}, timeout=timeout_ms / 1000)
        if not done:
            raise GuardianUnreachable(f"the Guardian did not answer within {timeout_ms} ms")
        return answer.result()
