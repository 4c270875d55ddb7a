"""Which addresses a server of ours may connect to on behalf of others: webhooks, and programs in boxes.

Pure. Whoever may name an address and have it called stands with one foot in our network: so private, loopback,
link-local, metadata, multicast and other special ranges are refused, also when they come wrapped in an IPv6 address.
What a name resolves to is checked, and the connection goes to the very address that was.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from turnkeeper.errors import TurnkeeperError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_NAT64: Final = IPv6Network("64:ff9b::/96")
_SITE_LOCAL: Final = IPv6Network("fec0::/10")
"""Given up by the standard and global to the standard library."""
_HOST_SERVICES: Final = frozenset({IPv4Address("168.63.129.16")})
"""Public by its number, and yet a service of the machine's own host: Azure answers guests there."""
_LOW_32: Final = 0xFFFFFFFF


class AddressNotPublic(TurnkeeperError):
    """The address is not one that everybody may be connected to."""

    code = "address_not_public"


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks that an operator lists. Raises `ValueError`."""
    return tuple(ip_network(text) for text in texts)


def literal_address(host: str) -> Address | None:
    """The address that a host is, where it is one and no name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def check_public(address: Address, *, allowed: Sequence[Network]) -> None:
    """Raises `AddressNotPublic` unless the address is public or lies in a network that is allowed."""
    if any(address in network for network in allowed):
        return
    inner = _inner(address)
    if any(inner in network for network in allowed):
        return
    special = inner.is_multicast or inner.is_reserved or inner in _SITE_LOCAL or inner in _HOST_SERVICES
    if special or not inner.is_global:
        raise AddressNotPublic(f"{address} is not a public address", hint="An operator may list its network.")


def pick_public(addresses: Sequence[str], *, allowed: Sequence[Network]) -> str:
    """The address to connect to. Raises `AddressNotPublic` when any of them is refused: a name that resolves to a
    public and a private address is an attempt to have one checked and the other used."""
    if not addresses:
        raise AddressNotPublic("the host resolves to no address")
    for text in addresses:
        check_public(ip_address(text), allowed=allowed)
    return addresses[0]


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one carries, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & _LOW_32)
    carried = address.ipv4_mapped or address.sixtofour
    if carried is None and address.teredo is not None:
        carried = address.teredo[1]
    return carried or address
