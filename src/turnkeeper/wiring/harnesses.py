"""What runs an agent's loop, as an order to the sandbox driver. No rule of its own."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from turnkeeper.api.agent_harness import HarnessOffer
from turnkeeper.boxed import hook
from turnkeeper.boxed.kinds import KINDS
from turnkeeper.boxed.orders import box_needs
from turnkeeper.boxed.places import CLIENTS, HOOK_FILE
from turnkeeper.sandbox.boxes import HostPath, LoopBoxOrder, SandboxUnavailable, SharedWorkspace, ToolBoxOrder
from turnkeeper.sandbox.protocol import ModelWire
from turnkeeper.settings import HarnessSettings, ProviderSettings
from turnkeeper.turns.box_ports import LoopOrder
from turnkeeper.turns.model import BoxSize

_BOX_PATH: Final = "/usr/local/bin:/usr/bin"


def harness_offer(settings: HarnessSettings) -> HarnessOffer:
    """What agents may choose beside the built-in loop."""
    return HarnessOffer(frozenset(settings.programs), frozenset(_installed(settings.clients_dir)))


def harness_lacks(settings: HarnessSettings) -> Mapping[str, str]:
    """What of the settings' programs and clients cannot be run here, and why, by name; what can be has an empty why."""
    found = {path: "" if os.access(path, os.X_OK) else "there is no such program" for path in settings.programs}
    if settings.clients_dir is None:
        return found
    there = _installed(settings.clients_dir)
    found |= {kind: "" if kind in there else f"npm has not installed it in {settings.clients_dir}" for kind in KINDS}
    if "codex" in there and shutil.which("node", path=_BOX_PATH) is None:
        found["codex"] = "it needs node below /usr"
    return found


class BoxOrders:
    """Loop boxes for agents whose loop is not the built-in one. `order_of` turns an agent's box size into limits."""

    def __init__(
        self,
        settings: HarnessSettings,
        providers: Mapping[str, ProviderSettings],
        order_of: Callable[[BoxSize], ToolBoxOrder],
    ) -> None:
        self._settings = settings
        self._providers = providers
        self._order_of = order_of

    def order_for(self, order: LoopOrder) -> LoopBoxOrder | None:
        """What to order; None for the usual box. Raises `SandboxUnavailable` for what is not lent any more."""
        if order.harness.kind == "builtin":
            return None
        if order.harness.kind == "command":
            return self._command(order.harness.command)
        return self._client(order)

    def _command(self, command: tuple[str, ...]) -> LoopBoxOrder:
        if not command or command[0] not in self._settings.programs:
            raise SandboxUnavailable(f"harness.programs does not name {command[:1]} any more")
        paths = (Path(text) for text in (command[0], *self._settings.read_only))
        return LoopBoxOrder(command, tuple(HostPath(path, path) for path in paths if not _is_system(path)))

    def _client(self, order: LoopOrder) -> LoopBoxOrder:
        folder, kind = self._settings.clients_dir, order.harness.kind
        client = KINDS.get(kind)
        if folder is None or client is None or not (folder / client.program).exists():
            raise SandboxUnavailable(f"no client {kind} is installed in harness.clients_dir")
        self._check_wire(order, kind, client.wire)
        needs = box_needs(kind, client, python=sys.executable, model=order.model.id)
        return LoopBoxOrder(
            needs.command,
            (HostPath(folder.resolve(), Path(CLIENTS)), HostPath(Path(hook.__file__), Path(HOOK_FILE))),
            {Path(path): content for path, content in needs.files.items()},
            needs.environment,
            SharedWorkspace(order.workspace, self._order_of(order.size)),
        )

    def _check_wire(self, order: LoopOrder, kind: str, wire: ModelWire) -> None:
        provider = self._providers.get(order.model.provider)
        spoken = "anthropic" if wire == "messages" else "openai"
        if provider is None or provider.kind != spoken:
            raise SandboxUnavailable(f"{kind} needs a provider of kind {spoken}")


def _installed(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    return [kind for kind, client in KINDS.items() if (folder / client.program).exists()]


def _is_system(path: Path) -> bool:
    # Every box has the host's /usr, and /bin and its like lead there.
    return path.is_relative_to("/usr") or path.resolve().is_relative_to("/usr")
