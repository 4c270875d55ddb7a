"""What operators ask of a server (contract 2.12); the key needs the scope `admin`.

Made from `turnkeeper.client.turn_api.admin` by `tests/unit/client/turn_api_half.py`; change it there.
"""

from turnkeeper.client.turn_api.bodies import given, path_of
from turnkeeper.client.turn_api.connection_blocking import Connection
from turnkeeper.client.turn_api.handles_blocking import CancelMode, Turn
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import Drain, QueueState


class Admin:
    """All projects of a server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def queue(self) -> QueueState:
        """How many turns are not over, by status."""
        return QueueState((self._connection.ask(Call("GET", path_of("admin", "queue"), repeatable=True))).members)

    def requeue(self, turn_id: str) -> Turn:
        """Takes a turn from its worker, so that another one takes it. Raises `Conflict` (`attempts_used`)."""
        return self._turn(turn_id, "requeue", None)

    def fail(self, turn_id: str, *, reason: str | None = None) -> Turn:
        """Ends a turn at once as `internal_error`, whoever holds it. Raises `Conflict` (`turn_ended`)."""
        return self._turn(turn_id, "fail", {"reason": reason} if reason is not None else {})

    def cancel(self, turn_id: str, *, mode: CancelMode = "graceful", reason: str | None = None) -> Turn:
        """Cancels a turn as an app does, with the stop reason `operator`."""
        return self._turn(turn_id, "cancel", given(mode=mode, reason=reason))

    def drain(self) -> Drain:
        """Whether the platform is drained, and which turns are not over."""
        return self._drain(Call("GET", path_of("admin", "drain"), repeatable=True))

    def begin_drain(self, *, reason: str | None = None) -> Drain:
        """Has no turn accepted or begun from now on, in any process."""
        return self._drain(Call("POST", path_of("admin", "drain"), given(reason=reason), repeatable=True))

    def end_drain(self) -> Drain:
        """Has turns accepted and begun again."""
        return self._drain(Call("DELETE", path_of("admin", "drain"), repeatable=True))

    def _turn(self, turn_id: str, verb: str, body: dict[str, str] | None) -> Turn:
        call = Call("POST", path_of("admin", "turns", turn_id, verb), body)
        return Turn((self._connection.ask(call)).members, self._connection)

    def _drain(self, call: Call) -> Drain:
        return Drain((self._connection.ask(call)).members)
