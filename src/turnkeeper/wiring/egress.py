"""Joins the egress proxy to what a worker asks of boxes. No rule of its own."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import structlog

from turnkeeper.addresses import parse_networks
from turnkeeper.clock import Clock
from turnkeeper.datadir import DataDir
from turnkeeper.destinations import parse_rules, parse_secret_host
from turnkeeper.sandbox.boxes import SandboxUnavailable, ToolBox, ToolBoxOrder
from turnkeeper.sandbox.egress import EgressProxy, EgressSocketRefused
from turnkeeper.sandbox.egress_admission import Admission, EgressLimits, EgressPolicy, SystemResolver
from turnkeeper.sandbox.egress_exchange import NO_VAULT, Vault
from turnkeeper.sandbox.egress_secrets import BoxSecret, BoxSecrets
from turnkeeper.sandbox.egress_tls import BoxAuthority
from turnkeeper.sandbox.state_dir import StateDir, remove_tree
from turnkeeper.sandbox.web import Web
from turnkeeper.settings import EgressSettings, SandboxSettings
from turnkeeper.turns.box_ports import NetworkOrder, NetworkSecret

_log = structlog.get_logger(__name__)


class EgressDoors:
    """Where the proxies of one worker's boxes come from."""

    def __init__(self, settings: EgressSettings, state: StateDir, resolver: SystemResolver, clock: Clock) -> None:
        self._clock = clock
        self._resolver = resolver
        self._allow = parse_rules(settings.allow)
        self._networks = parse_networks(settings.networks)
        self._limits = _limits(settings)
        self._state = state

    def web(self, network: NetworkOrder) -> Web:
        """Requests that are made from here, by the rules for a box."""
        admission = Admission(self._policy(network), network.gate, self._resolver, self._limits)
        return Web(admission, self._limits, _vault(network.secrets, self._clock))

    async def door(self, network: NetworkOrder) -> "EgressDoor":
        """A proxy for one box, which waits for it. Raises `SandboxUnavailable`."""
        folder = self._state.socket_dir()
        proxy = EgressProxy(
            folder,
            self._policy(network),
            network.gate,
            resolver=self._resolver,
            limits=self._limits,
            vault=_vault(network.secrets, self._clock),
        )
        try:
            await proxy.open()
        except OSError as error:
            await proxy.close()
            remove_tree(folder)
            raise SandboxUnavailable(f"the egress proxy cannot listen in {folder}: {error.strerror}") from error
        return EgressDoor(proxy, folder)

    def _policy(self, network: NetworkOrder) -> EgressPolicy:
        return EgressPolicy((self._allow, *map(parse_rules, network.lists)), self._networks)


class EgressDoor:
    """The proxy of one box, closed with it."""

    def __init__(self, proxy: EgressProxy, folder: Path) -> None:
        self._proxy = proxy
        self._folder = folder

    def added_to(self, order: ToolBoxOrder) -> ToolBoxOrder:
        """The order with what the box needs of the proxy."""
        own = self._proxy.order
        return replace(
            order,
            read_only=(*order.read_only, *own.read_only),
            environment={**order.environment, **own.environment},
        )

    async def attach(self, box: ToolBox) -> ToolBox:
        """The box once its programs can reach the proxy. Raises `SandboxUnavailable`."""
        try:
            await self._proxy.attached()
        except (EgressSocketRefused, TimeoutError, OSError) as error:
            await box.kill()
            raise SandboxUnavailable(f"the box could not be given its proxy: {error}") from error
        return box

    async def close(self) -> None:
        """Ends every connection. Safe to call again."""
        await self._proxy.close()
        remove_tree(self._folder)
        traffic = self._proxy.traffic
        if traffic.sent or traffic.received:
            _log.info("egress_closed", sent_bytes=traffic.sent, received_bytes=traffic.received)


def open_egress(
    stack: AsyncExitStack, settings: SandboxSettings, data_dir: DataDir, clock: Clock
) -> EgressDoors | None:
    """The proxies of a worker; `None` where the operator lends no egress, or there are no walls to have doors in."""
    if settings.kind == "none" or not settings.egress.allow:
        return None
    state = StateDir(data_dir.boxes)
    state.open()
    stack.callback(state.close)
    resolver = SystemResolver()
    stack.callback(resolver.close)
    return EgressDoors(settings.egress, state, resolver, clock)


def _vault(secrets: Sequence[NetworkSecret], clock: Clock) -> Vault:
    if not secrets:
        return NO_VAULT
    boxed = BoxSecrets(
        [
            BoxSecret(secret.variable, secret.placeholder, tuple(map(parse_secret_host, secret.hosts)), secret.value)
            for secret in secrets
        ]
    )
    return Vault(boxed, BoxAuthority(boxed.rules, clock.now()))


def _limits(settings: EgressSettings) -> EgressLimits:
    return EgressLimits(
        max_connections=settings.connections,
        max_bytes=settings.max_bytes,
        head_timeout_ms=settings.head_timeout_ms,
        resolve_timeout_ms=settings.resolve_timeout_ms,
        connect_timeout_ms=settings.connect_timeout_ms,
        idle_timeout_ms=settings.idle_timeout_ms,
        max_connection_ms=settings.connection_ms,
    )
