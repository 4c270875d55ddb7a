"""What a program in a box asks of the egress proxy, and the heads that go on in its place (RFC 9110, 9112).

Pure. A request is read strictly and written anew: what two readers could frame differently is refused, headers of the
hop stay here, and the target, the `Host` header and the connection name the same destination.
INVARIANT: no byte of the box's own head is passed on; what is passed on was parsed here first.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import h11

from turnkeeper.destinations import Destination, DestinationInvalid, parse_destination

Headers: TypeAlias = list[tuple[bytes, bytes]]

HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443
HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-authentication-info",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
_REWRITTEN: Final = frozenset({b"host", b"expect"})
_ABSOLUTE: Final = re.compile(rb"(?i:http)://(?P<authority>[^/?#]+)(?P<rest>[/?][^#]*)?")


class EgressRefused(Exception):
    """The proxy does not do that. `status` is for the program; `is_denial` says that it was a matter of policy."""

    def __init__(self, status: int, message: str, *, is_denial: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.is_denial = is_denial


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request of a box: a tunnel to a destination, or one HTTP exchange with it (`forward`)."""

    destination: Destination
    forward: h11.Request | None

    @property
    def via(self) -> str:
        """`connect` or `http`, as the Guardian is told."""
        return "connect" if self.forward is None else "http"


def read_request(request: h11.Request) -> ProxyRequest:
    """What is asked for. Raises `EgressRefused`."""
    try:
        if request.method == b"CONNECT":
            return _tunnel(request)
        return _exchange(request)
    except (DestinationInvalid, UnicodeDecodeError) as error:
        raise EgressRefused(400, "the destination is not a plain host and port") from error


def read_inner_request(request: h11.Request, destination: Destination) -> h11.Request:
    """What is asked of a host inside its TLS, written anew. Raises `EgressRefused`."""
    if not request.target.startswith(b"/") or b"#" in request.target or request.method == b"CONNECT":
        raise EgressRefused(400, "a request inside a tunnel names a path")
    _check_framing(request.headers)
    try:
        _check_host(request.headers, destination, default_port=destination.port)
    except (DestinationInvalid, UnicodeDecodeError) as error:
        raise EgressRefused(400, "the Host header is not a plain host and port") from error
    return _forward(request, destination, request.target, default_port=HTTPS_PORT)


def answer_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of an origin's answer that are the program's business."""
    return [*end_to_end(headers), (b"connection", b"close")]


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What is not of this hop alone; what `Connection` names is."""
    listed = list(headers)
    dropped = HOP_BY_HOP | _named_by_connection(listed)
    return [(name, value) for name, value in listed if name not in dropped]


def _tunnel(request: h11.Request) -> ProxyRequest:
    destination = parse_destination(request.target.decode("ascii"))
    _check_framing(request.headers)
    if any(name in {b"content-length", b"transfer-encoding"} for name, _ in request.headers):
        raise EgressRefused(400, "a CONNECT request has no body")
    # Its Host header may lack the port, and in HTTP/1.0 be missing; it may not name another host.
    if any(name == b"host" for name, _ in request.headers):
        _check_host(request.headers, destination, default_port=destination.port)
    return ProxyRequest(destination, None)


def _exchange(request: h11.Request) -> ProxyRequest:
    found = _ABSOLUTE.fullmatch(request.target)
    if found is None:
        raise EgressRefused(400, "a request to the proxy is CONNECT, or names its whole http:// URL")
    destination = parse_destination(found["authority"].decode("ascii"), default_port=HTTP_PORT)
    _check_framing(request.headers)
    _check_host(request.headers, destination, default_port=HTTP_PORT)
    rest = found["rest"] or b"/"
    target = rest if rest.startswith(b"/") else b"/" + rest
    return ProxyRequest(destination, _forward(request, destination, target))


def _forward(
    request: h11.Request, destination: Destination, target: bytes, *, default_port: int = HTTP_PORT
) -> h11.Request:
    chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
    kept = [(name, value) for name, value in end_to_end(request.headers) if name not in _REWRITTEN]
    host = destination.shown_host if destination.port == default_port else str(destination)
    framing: Headers = [(b"transfer-encoding", b"chunked")] if chunked else []
    headers = [(b"host", host.encode()), *kept, *framing, (b"connection", b"close")]
    try:
        return h11.Request(method=request.method, target=target, headers=headers)
    except h11.LocalProtocolError as error:
        raise EgressRefused(400, "the request cannot be passed on") from error


def _check_framing(headers: Iterable[tuple[bytes, bytes]]) -> None:
    listed = list(headers)
    lengths = [value for name, value in listed if name == b"content-length"]
    codings = [value for name, value in listed if name == b"transfer-encoding"]
    if len(lengths) > 1 or len(codings) > 1 or (lengths and codings):
        raise EgressRefused(400, "the request states its length more than once")
    if _named_by_connection(listed) & {b"content-length", b"host"}:
        raise EgressRefused(400, "Connection names a header that is no matter of the hop")


def _check_host(headers: Sequence[tuple[bytes, bytes]], destination: Destination, *, default_port: int) -> None:
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1:
        raise EgressRefused(400, "the request has not exactly one Host header")
    if parse_destination(hosts[0].decode("ascii"), default_port=default_port) != destination:
        raise EgressRefused(400, "the Host header names another destination than the request")


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    return {token.strip().lower() for value in values for token in value.split(b",")}
