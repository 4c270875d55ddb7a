"""MCP messages before the Guardian, wrapped as `protocols/MCP/<method>` (ACS extend_mcp, MCP-01 to 07).

Answers for asking before a message takes effect, outbound before it is sent and inbound before anything is made of it,
and for going on with what the Guardian made of it and with nothing else. An ASK or a DEFER of a message is a no: what a
person is to be asked about is the tool call it belongs to.
"""

from collections.abc import Callable, Mapping

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.mcp_messages import render
from turnkeeper.turns.model import Draft, Fence, Turn
from turnkeeper.turns.payloads import WRAPPED_MCP
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.workbench import Workbench


class McpDenied(TurnkeeperError):
    """The Guardian does not let a message through."""

    code = "mcp_denied"


class McpGuard:
    """Asks for one turn."""

    def __init__(self, bench: Workbench, turn: Turn, fence: Callable[[], Fence]) -> None:
        self._bench = bench
        self._turn = turn
        self._fence = fence
        self._party = Party(turn.session_id, turn.agent_id)

    async def passed(self, method: str, message: Mapping[str, object]) -> Mapping[str, object]:
        """The message to go on with. `method` is its own, or that of the request which it answers.

        Raises `McpDenied`, `StaleFence`.
        """
        payload_json = render(message).decode()
        step = Draft(
            self._bench.ids.uuid(),
            f"{WRAPPED_MCP}{method}",
            lambda _: payload_json,
            in_window=True,
            turn_id=self._turn.id,
        )
        ruling = await self._bench.governor.ask(self._party, step, self._fence())
        if not ruling.allowed:
            raise McpDenied(_why(ruling))
        return message if ruling.changed is None else _changed(message, ruling.changed)


def _changed(sent: Mapping[str, object], changed: Mapping[str, object]) -> Mapping[str, object]:
    """What the Guardian made of it. Another method, or an answer to another question, is no change of this one."""
    for fixed in ("jsonrpc", "id", "method"):
        if sent.get(fixed) != changed.get(fixed):
            raise McpDenied(f"the Guardian would change /{fixed}, which is not done here")
    body = next((name for name in ("params", "result", "error") if name in changed), None)
    if set(sent) != set(changed) or (body is not None and not isinstance(changed[body], dict)):
        raise McpDenied("the Guardian would make no message of it")
    return changed


def _why(ruling: Ruling) -> str:
    return ruling.reasoning or "no reason given"
