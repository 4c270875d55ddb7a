"""Which addresses a webhook may be sent to (contract 12, safety).

Pure. A server that posts to addresses it is given is a way into the network it stands in: so private, loopback,
link-local, metadata and other special ranges are refused, also when they come wrapped in an IPv6 address. What a name
resolves to is checked, and the connection goes to the very address that was.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from turnkeeper.addresses import (
    Address,
    AddressNotPublic,
    Network,
    check_public,
    literal_address,
    parse_networks,
    pick_public,
)
from turnkeeper.events.webhooks.endpoints import MAX_URL_CHARACTERS, WebhookInvalid

__all__: Final = [
    "Address",
    "AddressRefused",
    "Network",
    "check_address",
    "check_url",
    "parse_networks",
    "pick_address",
]


class AddressRefused(WebhookInvalid):
    """The endpoint's host is, or resolves to, an address that webhooks may not be sent to."""

    code = "webhook_address_refused"


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
    literal = literal_address(host)
    if literal is not None:
        check_address(literal, allowed=allowed)
    return parts


def check_address(address: Address, *, allowed: Sequence[Network]) -> None:
    """Raises `AddressRefused` unless the address is public or lies in a network that is allowed."""
    try:
        check_public(address, allowed=allowed)
    except AddressNotPublic as error:
        raise AddressRefused(error.message, hint=error.hint) from error


def pick_address(addresses: Sequence[str], *, allowed: Sequence[Network]) -> str:
    """The address to connect to. Raises `AddressRefused` when any of them is refused."""
    try:
        return pick_public(addresses, allowed=allowed)
    except AddressNotPublic as error:
        raise AddressRefused(error.message, hint=error.hint) from error
