"""What operators ask a server (contract 2.12); the key needs the scope `admin`.

Made from `turnkeeper.client.turn_api.admin` by `tests/unit/client/turn_api_half.py`; change it there.
"""

from turnkeeper.client.turn_api.bodies import path_of
from turnkeeper.client.turn_api.connection_blocking import Connection
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import QueueState


class Admin:
    """All projects of a server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def queue(self) -> QueueState:
        """How many turns are not over, by status."""
        return QueueState((self._connection.ask(Call("GET", path_of("admin", "queue"), repeatable=True))).members)
