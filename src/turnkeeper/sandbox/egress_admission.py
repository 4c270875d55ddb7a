"""Whether a box may reach a destination, and the connection to it (contract 2.1 `sandbox.network`).

Answers for the order: the allow lists, then the Guardian, then the name, then every address it has, then the
connection to one of these very addresses. A name is not even looked up before both have said yes, because a look-up
itself tells somebody something. Must never connect by name, nor to an address that was not checked.
"""

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from turnkeeper.addresses import AddressNotPublic, Network, pick_public
from turnkeeper.destinations import Destination, HostRule, any_allows
from turnkeeper.sandbox.egress_http import EgressRefused

STREAM_BYTES: Final = 256 * 1024
MAX_ADDRESSES_TRIED: Final = 4
RESOLVER_THREADS: Final = 8

Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Resolver(Protocol):
    """Where names become addresses."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a name, best first. Raises `OSError`."""
        ...


class EgressDesk(Protocol):
    """Who decides about a destination that the lists allow, and hears of those that were refused."""

    async def ask(self, host: str, port: int, via: str) -> str | None:
        """Why not; `None` where the box may. Once per destination and turn it is the Guardian who says so."""
        ...

    async def refused(self, host: str, port: int) -> None:
        """A connection was refused as a matter of policy."""
        ...


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """What a box may reach: a destination that some rule of each list allows. Without lists it is nothing.

    `networks` are those that may be connected to although they are not public.
    """

    lists: tuple[tuple[HostRule, ...], ...] = ()
    networks: tuple[Network, ...] = ()

    def allows(self, destination: Destination) -> bool:
        """Whether every list does."""
        return bool(self.lists) and all(any_allows(rules, destination) for rules in self.lists)


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """What one box may use of the proxy.

    `max_bytes` are those of all its connections, both ways together. `idle_timeout_ms` ends a connection on which
    nothing moves, `max_connection_ms` every one.
    """

    max_connections: int = 32
    max_bytes: int = 1 << 30
    head_timeout_ms: int = 10_000
    resolve_timeout_ms: int = 5_000
    connect_timeout_ms: int = 10_000
    idle_timeout_ms: int = 60_000
    max_connection_ms: int = 600_000


class SystemResolver:
    """The resolver of this machine, in threads of its own: a name server that is silent holds up nobody else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="egress-names")

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a name. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _addresses_of, host, port)

    def close(self) -> None:
        """Takes no more names."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Admission:
    """Says who may connect where, for one box."""

    def __init__(self, policy: EgressPolicy, desk: EgressDesk, resolver: Resolver, limits: EgressLimits) -> None:
        self._policy = policy
        self._desk = desk
        self._resolver = resolver
        self._limits = limits

    async def connect(self, destination: Destination, via: str) -> Connection:
        """A connection to it. Raises `EgressRefused`; the desk has been told of what was a matter of policy."""
        try:
            return await self._connected(destination, via)
        except EgressRefused as refused:
            if refused.is_denial:
                await self._desk.refused(destination.host, destination.port)
            raise

    async def _connected(self, destination: Destination, via: str) -> Connection:
        if not self._policy.allows(destination):
            raise EgressRefused(403, f"{destination} is not on the allow list", is_denial=True)
        reason = await self._desk.ask(destination.host, destination.port, via)
        if reason is not None:
            raise EgressRefused(403, f"{destination} is not allowed: {reason}", is_denial=True)
        addresses = await self._resolved(destination)
        try:
            pick_public(addresses, allowed=self._policy.networks)
        except AddressNotPublic as error:
            # Which address it is would tell the box about our network.
            raise EgressRefused(403, f"{destination} has no public address", is_denial=True) from error
        return await self._opened(destination, addresses)

    async def _resolved(self, destination: Destination) -> Sequence[str]:
        if destination.address is not None:
            return [destination.host]
        try:
            async with asyncio.timeout(self._limits.resolve_timeout_ms / 1000):
                found = await self._resolver.resolve(destination.host, destination.port)
        except TimeoutError as error:
            raise EgressRefused(504, f"{destination.host} could not be resolved in time") from error
        except (OSError, UnicodeError) as error:
            raise EgressRefused(502, f"{destination.host} could not be resolved") from error
        if not found:
            raise EgressRefused(502, f"{destination.host} could not be resolved")
        return found

    async def _opened(self, destination: Destination, addresses: Sequence[str]) -> Connection:
        try:
            async with asyncio.timeout(self._limits.connect_timeout_ms / 1000):
                for address in addresses[:MAX_ADDRESSES_TRIED]:
                    try:
                        return await asyncio.open_connection(address, destination.port, limit=STREAM_BYTES)
                    except OSError:
                        continue
        except TimeoutError as error:
            raise EgressRefused(504, f"{destination} did not answer in time") from error
        raise EgressRefused(502, f"{destination} could not be connected to")


def _addresses_of(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
