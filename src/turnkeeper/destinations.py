"""Where a program may connect to: a host and a port in one spelling each, and the rules of an allow list.

Pure. A destination has exactly one spelling here, so that what is checked is what is used: lower case, no final dot, no
user, no zone, no number that only some resolvers read as an address. What a name resolves to is `addresses`' matter.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_network
from typing import Final

from turnkeeper.addresses import Address, Network, literal_address
from turnkeeper.errors import TurnkeeperError

USUAL_PORTS: Final = frozenset({80, 443})
"""What a rule without a port allows."""
SECURE_PORT: Final = 443
MAX_HOST_CHARACTERS: Final = 253
MAX_PORT: Final = 65_535

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_ENDS_IN_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_AUTHORITY: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\s%\\]+)(?::(?P<port>[0-9]{1,5}))?")


class DestinationInvalid(TurnkeeperError):
    """The text is neither `host` nor `host:port`, or its host has a spelling that means different things to others."""

    code = "destination_invalid"


@dataclass(frozen=True, slots=True)
class Destination:
    """A host, in lower case or as an address in its usual spelling, and a port."""

    host: str
    port: int

    @property
    def address(self) -> Address | None:
        """The host where it is an address and no name."""
        return literal_address(self.host)

    @property
    def shown_host(self) -> str:
        """The host as it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"{self.shown_host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HostRule:
    """One entry of an allow list: `text` as it was written, and what it means.

    `name` is a host, the suffix below which all hosts are meant (`is_suffix`), or empty for every name; `network` is
    set in its place for addresses. Without a `port` the `USUAL_PORTS` are meant.
    """

    text: str
    name: str = ""
    is_suffix: bool = False
    network: Network | None = None
    port: int | None = None

    def allows(self, destination: Destination) -> bool:
        """Whether the destination is one of those that are meant."""
        return destination.port in self._ports and self._names(destination)

    def covers(self, other: "HostRule") -> bool:
        """Whether everything that the other rule allows is allowed by this one."""
        if not other._ports <= self._ports:
            return False
        if self.network is not None or other.network is not None:
            return _contains(self.network, other.network)
        if not self.is_suffix:
            return not other.is_suffix and other.name == self.name
        return not self.name or other.name.endswith(f".{self.name}") or (other.is_suffix and other.name == self.name)

    @property
    def _ports(self) -> frozenset[int]:
        return USUAL_PORTS if self.port is None else frozenset({self.port})

    def _names(self, destination: Destination) -> bool:
        address = destination.address
        if address is not None or self.network is not None:
            return address is not None and self.network is not None and address in self.network
        if not self.is_suffix:
            return destination.host == self.name
        return not self.name or destination.host.endswith(f".{self.name}")


def parse_destination(text: str, *, default_port: int | None = None) -> Destination:
    """`host:port`, or `host` where there is a default port. Raises `DestinationInvalid`."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise DestinationInvalid(f"{text[:100]!r} is not host:port")
    port = default_port if found["port"] is None else int(found["port"])
    if port is None or not 0 < port <= MAX_PORT:
        raise DestinationInvalid(f"{text[:100]!r} has no port from 1 to {MAX_PORT}")
    return Destination(parse_host(found["host"]), port)


def parse_host(text: str) -> str:
    """A name or an address in its one spelling; an IPv6 address stands in brackets. Raises `DestinationInvalid`."""
    if text.startswith("["):
        address = literal_address(text[1:-1])
        if not isinstance(address, IPv6Address):
            raise DestinationInvalid(f"{text[:100]!r} is no IPv6 address")
        return str(address)
    host = text.lower().removesuffix(".")
    if ":" not in host and literal_address(host) is not None:
        return host
    if len(host) > MAX_HOST_CHARACTERS or not _NAME.fullmatch(host) or _ENDS_IN_NUMBER.fullmatch(host):
        raise DestinationInvalid(f"{text[:100]!r} is no host name and no address in its usual spelling")
    return host


def parse_rule(text: str) -> HostRule:
    """`host`, `*.host`, `*`, an address or a network, each with or without `:port`. Raises `DestinationInvalid`."""
    if "/" in text:
        return _network_rule(text)
    bare, port = (text, None) if text.endswith("]") else _split_port(text)
    if bare == "*":
        return HostRule(text, is_suffix=True, port=port)
    if bare.startswith("*."):
        host = parse_host(bare[2:])
        if literal_address(host) is not None:
            raise DestinationInvalid(f"{text[:100]!r}: addresses have no names below them")
        return HostRule(text, host, is_suffix=True, port=port)
    host = parse_host(bare)
    if literal_address(host) is not None:
        return HostRule(text, network=ip_network(host), port=port)
    return HostRule(text, host, port=port)


def parse_rules(texts: Sequence[str]) -> tuple[HostRule, ...]:
    """An allow list. Raises `DestinationInvalid`."""
    return tuple(parse_rule(text) for text in texts)


def parse_secret_host(text: str) -> HostRule:
    """A host that a secret may go to: `host` or `*.host`; without a port 443 is meant. Raises `DestinationInvalid`."""
    rule = parse_rule(text)
    if rule.network is not None or not rule.name:
        raise DestinationInvalid(f"{text[:100]!r}: a secret goes to hosts that are named")
    return rule if rule.port is not None else replace(rule, port=SECURE_PORT)


def any_allows(rules: Sequence[HostRule], destination: Destination) -> bool:
    """Whether one of the rules does."""
    return any(rule.allows(destination) for rule in rules)


def _network_rule(text: str) -> HostRule:
    network, slash, rest = text.partition("/")
    prefix, _, port = rest.partition(":")
    try:
        found = ip_network(f"{network.strip('[]')}{slash}{prefix}")
    except ValueError as error:
        raise DestinationInvalid(f"{text[:100]!r} is no network: {error}") from error
    return HostRule(text, network=found, port=_port(port, text) if port else None)


def _split_port(text: str) -> tuple[str, int | None]:
    bare, colon, port = text.rpartition(":")
    return (bare, _port(port, text)) if colon else (text, None)


def _port(port: str, text: str) -> int:
    if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) <= MAX_PORT:
        raise DestinationInvalid(f"{text[:100]!r} has no port from 1 to {MAX_PORT}")
    return int(port)


def _contains(outer: Network | None, inner: Network | None) -> bool:
    if outer is None or inner is None or outer.version != inner.version:
        return False
    return int(outer.network_address) <= int(inner.network_address) and int(inner.broadcast_address) <= int(
        outer.broadcast_address
    )
