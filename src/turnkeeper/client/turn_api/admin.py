"""What operators ask of a server (contract 2.12); the key needs the scope `admin`."""

from turnkeeper.client.turn_api.bodies import given, path_of
from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.handles import AsyncTurn, CancelMode
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import Drain, QueueState


class AsyncAdmin:
    """All projects of a server."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def queue(self) -> QueueState:
        """How many turns are not over, by status."""
        return QueueState((await self._connection.ask(Call("GET", path_of("admin", "queue"), repeatable=True))).members)

    async def requeue(self, turn_id: str) -> AsyncTurn:
        """Takes a turn from its worker, so that another one takes it. Raises `Conflict` (`attempts_used`)."""
        return await self._turn(turn_id, "requeue", None)

    async def fail(self, turn_id: str, *, reason: str | None = None) -> AsyncTurn:
        """Ends a turn at once as `internal_error`, whoever holds it. Raises `Conflict` (`turn_ended`)."""
        return await self._turn(turn_id, "fail", {"reason": reason} if reason is not None else {})

    async def cancel(self, turn_id: str, *, mode: CancelMode = "graceful", reason: str | None = None) -> AsyncTurn:
        """Cancels a turn as an app does, with the stop reason `operator`."""
        return await self._turn(turn_id, "cancel", given(mode=mode, reason=reason))

    async def drain(self) -> Drain:
        """Whether the platform is drained, and which turns are not over."""
        return await self._drain(Call("GET", path_of("admin", "drain"), repeatable=True))

    async def begin_drain(self, *, reason: str | None = None) -> Drain:
        """Has no turn accepted or begun from now on, in any process."""
        return await self._drain(Call("POST", path_of("admin", "drain"), given(reason=reason), repeatable=True))

    async def end_drain(self) -> Drain:
        """Has turns accepted and begun again."""
        return await self._drain(Call("DELETE", path_of("admin", "drain"), repeatable=True))

    async def _turn(self, turn_id: str, verb: str, body: dict[str, str] | None) -> AsyncTurn:
        call = Call("POST", path_of("admin", "turns", turn_id, verb), body)
        return AsyncTurn((await self._connection.ask(call)).members, self._connection)

    async def _drain(self, call: Call) -> Drain:
        return Drain((await self._connection.ask(call)).members)
