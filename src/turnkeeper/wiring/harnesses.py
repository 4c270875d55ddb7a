"""What runs an agent's loop, as an order to the sandbox driver. No rule of its own."""

from pathlib import Path

from turnkeeper.api.agent_harness import HarnessOffer
from turnkeeper.sandbox.boxes import HostPath, LoopBoxOrder, SandboxUnavailable
from turnkeeper.settings import HarnessSettings
from turnkeeper.turns.box_ports import LoopOrder


def harness_offer(settings: HarnessSettings) -> HarnessOffer:
    """What agents may choose beside the built-in loop."""
    return HarnessOffer(frozenset(settings.programs))


class BoxOrders:
    """Loop boxes for agents whose loop is not the built-in one."""

    def __init__(self, settings: HarnessSettings) -> None:
        self._settings = settings

    def order_for(self, order: LoopOrder) -> LoopBoxOrder | None:
        """What to order; None for the usual box. Raises `SandboxUnavailable` for what is not lent any more."""
        if order.harness.kind == "builtin":
            return None
        return self._command(order.harness.command)

    def _command(self, command: tuple[str, ...]) -> LoopBoxOrder:
        if not command or command[0] not in self._settings.programs:
            raise SandboxUnavailable(f"harness.programs does not name {command[:1]} any more")
        paths = (Path(text) for text in (command[0], *self._settings.read_only))
        return LoopBoxOrder(command, tuple(HostPath(path, path) for path in paths if not _is_system(path)))


def _is_system(path: Path) -> bool:
    # Every box has the host's /usr, and /bin and its like lead there.
    return path.is_relative_to("/usr") or path.resolve().is_relative_to("/usr")
