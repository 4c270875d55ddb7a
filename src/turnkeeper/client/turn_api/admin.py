"""What operators ask a server (contract 2.12); the key needs the scope `admin`."""

from turnkeeper.client.turn_api.bodies import path_of
from turnkeeper.client.turn_api.connection import AsyncConnection
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import QueueState


class AsyncAdmin:
    """All projects of a server."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def queue(self) -> QueueState:
        """How many turns are not over, by status."""
        return QueueState((await self._connection.ask(Call("GET", path_of("admin", "queue"), repeatable=True))).members)
