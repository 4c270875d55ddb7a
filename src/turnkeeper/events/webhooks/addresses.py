"""Which addresses a webhook may be sent to (contract 12, safety).

Pure. A server that posts to addresses it is given is a way into the network it stands in: so private, loopback,
link-local, metadata and other special ranges are refused, also when they come wrapped in an IPv6 address. What a name
resolves to is checked, and the connection goes to the very address that was.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from turnkeeper.events.webhooks.endpoints import MAX_URL_CHARACTERS, WebhookInvalid

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_NAT64: Final = IPv6Network("64:ff9b::/96")
_SITE_LOCAL: Final = IPv6Network("fec0::/10")
"""Given up by the standard and global to the standard library."""
_LOW_32: Final = 0xFFFFFFFF


class AddressRefused(WebhookInvalid):
    """The endpoint's host is, or resolves to, an address that webhooks may not be sent to."""

    code = "webhook_address_refused"


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks that an operator lists. Raises `ValueError`."""
    return tuple(ip_network(text) for text in texts)


def check_url(url: str, *, allow_http: bool, allowed: Sequence[Network]) -> SplitResult:
    """The parts of an endpoint's URL. Raises `WebhookInvalid`; an address written out is checked at once."""
    if len(url) > MAX_URL_CHARACTERS:
        raise WebhookInvalid(f"the url is longer than {MAX_URL_CHARACTERS} characters")
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise WebhookInvalid("the url has characters that must be percent-encoded")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise WebhookInvalid("the url is malformed") from error
    if parts.scheme not in {"https", "http"} or not host:
        raise WebhookInvalid("the url is not https://host/path")
    if parts.scheme == "http" and not allow_http:
        raise WebhookInvalid("the url is http; the operator allows https alone")
    if parts.username is not None or parts.fragment:
        raise WebhookInvalid("the url has a user name or a fragment")
    literal = _literal(host)
    if literal is not None:
        check_address(literal, allowed=allowed)
    return parts


def check_address(address: Address, *, allowed: Sequence[Network]) -> None:
    """Raises `AddressRefused` unless the address is public or lies in a network that is allowed."""
    if any(address in network for network in allowed):
        return
    inner = _inner(address)
    if any(inner in network for network in allowed):
        return
    if not inner.is_global or inner.is_multicast or inner.is_reserved or inner in _SITE_LOCAL:
        raise AddressRefused(f"{address} is not a public address", hint="An operator may list its network.")


def pick_address(addresses: Sequence[str], *, allowed: Sequence[Network]) -> str:
    """The address to connect to. Raises `AddressRefused` when any of them is refused: a name that resolves to a
    public and a private address is an attempt to have one checked and the other used."""
    if not addresses:
        raise AddressRefused("the host resolves to no address")
    for text in addresses:
        check_address(ip_address(text), allowed=allowed)
    return addresses[0]


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


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
