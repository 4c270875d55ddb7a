"""The `mcp_servers` of an agent that is created (contract 2.1): programs in its tool box, addresses beyond its egress.

Answers for names that make names of tools, for addresses that the operator and the agent's own network allow, and for
headers that hold no secret: a value's place is among the secrets of a project, and a header says which one it wants.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast
from urllib.parse import urlsplit

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.fields import Fields
from turnkeeper.destinations import Destination, DestinationInvalid, HostRule, any_allows, parse_host, parse_rule
from turnkeeper.turns.mcp_server import SERVER_NAME, McpServer
from turnkeeper.turns.model import Network

MAX_SERVERS: Final = 8
MAX_WORDS: Final = 64
MAX_TEXT_CHARACTERS: Final = 4_096
MAX_VARIABLES: Final = 32
MAX_HEADERS: Final = 16
MAX_SERVER_TOOLS: Final = 64
MAX_NAME_CHARACTERS: Final = 200
PORTS: Final = {"https": 443, "http": 80}
OWN_HEADERS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""What we say ourselves."""
SECRET_BEARERS: Final = re.compile(r".*(auth|key|token|secret|cookie|password).*", re.IGNORECASE)
"""Headers whose value is a secret by their name: it names one of the session's, and does not hold it."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_VALUE = re.compile(r"[\x20-\x7e]{1,1024}\Z")
_PLACEHOLDER = re.compile(r"\$\{[A-Z][A-Z0-9_]*\}")


def parse_mcp_servers(agent: Fields, lent: Sequence[HostRule], network: Network) -> tuple[McpServer, ...]:
    """The servers that the agent asks for; what is wrong with them, or not lent, is noted."""
    if not agent.has("mcp_servers"):
        return ()
    servers = [_server(fields, lent, network) for fields in agent.objects("mcp_servers", max_items=MAX_SERVERS)]
    if len({server.name for server in servers}) < len(servers):
        agent.note("mcp_servers", "invalid_field", "/mcp_servers names a server twice")
    return tuple(servers)


def mcp_server_document(server: McpServer) -> JsonObject:
    """A server as it is shown, which is also how it may be sent."""
    tools = None if server.tools is None else list(server.tools)
    if server.command:
        return {
            "name": server.name,
            "command": list(server.command),
            "env": dict(server.environment),
            "tools": cast("JsonObject", tools),
        }
    return {"name": server.name, "url": server.url, "headers": dict(server.headers), "tools": cast("JsonObject", tools)}


def _server(fields: Fields, lent: Sequence[HostRule], network: Network) -> McpServer:
    fields.close({"name", "command", "env", "url", "headers", "tools"}, {})
    name = fields.required_text("name", max_characters=MAX_NAME_CHARACTERS)
    if name and SERVER_NAME.match(name) is None:
        what = "is not 1 to 24 small letters, digits and - with a letter or digit at both ends"
        fields.note("name", "invalid_field", f"{fields.pointer('name')} {what}")
    if fields.has("command") == fields.has("url"):
        fields.note_whole("invalid_field", "has either a command or a url")
    for member, other in (("env", "url"), ("headers", "command")):
        if fields.has(member) and fields.has(other):
            fields.note(member, "invalid_field", f"{fields.pointer(member)} does not go with {other}")
    tools = fields.texts("tools", max_items=MAX_SERVER_TOOLS) if fields.has("tools") else None
    if fields.has("url"):
        url = _url(fields, lent, network)
        return McpServer(name, url=url, headers=_headers(fields), tools=tools)
    return McpServer(name, _command(fields), _environment(fields), tools=tools)


def _command(fields: Fields) -> tuple[str, ...]:
    value = fields.value("command")
    if value is None:
        return ()
    words = value if isinstance(value, list) else []
    texts = tuple(word for word in words if isinstance(word, str) and "\0" not in word)
    if not texts or len(texts) < len(words) or len(texts) > MAX_WORDS or max(map(len, texts)) > MAX_TEXT_CHARACTERS:
        what = f"is not a list of 1 to {MAX_WORDS} words of at most {MAX_TEXT_CHARACTERS} characters"
        fields.note("command", "invalid_field", f"{fields.pointer('command')} {what}")
    return texts


def _environment(fields: Fields) -> Mapping[str, str]:
    found = _texts(fields, "env", MAX_VARIABLES)
    for name, value in found.items():
        if not _VARIABLE.match(name) or "\0" in value or len(value) > MAX_TEXT_CHARACTERS:
            fields.note("env", "invalid_field", f"{fields.pointer('env')}: {name[:100]!r} is no variable with a text")
    return found


def _headers(fields: Fields) -> Mapping[str, str]:
    found = {name.lower(): value for name, value in _texts(fields, "headers", MAX_HEADERS).items()}
    for name, value in found.items():
        at = f"{fields.pointer('headers')}: {name[:100]!r}"
        if not _HEADER.match(name) or name in OWN_HEADERS or not _VALUE.match(value):
            fields.note("headers", "invalid_field", f"{at} may not be set, or its value is not visible")
        elif SECRET_BEARERS.match(name) and not _PLACEHOLDER.search(value):
            fields.note("headers", "invalid_field", f"{at} is to name a secret of the session, as in ${{NAME}}")
    return found


def _url(fields: Fields, lent: Sequence[HostRule], network: Network) -> str:
    url = fields.required_text("url", max_characters=MAX_TEXT_CHARACTERS)
    at = fields.pointer("url")
    destination = destination_of(url)
    if destination is None:
        fields.note("url", "invalid_field", f"{at} is no address http(s)://host/path without user, query and fragment")
    elif not any_allows(lent, destination):
        fields.note("url", "egress_not_lent", f"{at}: the operator lends no egress to {destination}")
    elif not any_allows(_rules(network), destination):
        fields.note("url", "egress_not_lent", f"{at}: the agent's sandbox.network does not allow {destination}")
    return url


def destination_of(url: str) -> Destination | None:
    """Where an address leads; None for one that is not plain."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme)
        odd = parts.username or parts.password or parts.query or parts.fragment or not url.isascii()
        if port is None or not parts.hostname or odd:
            return None
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return Destination(parse_host(host), port)
    except (ValueError, DestinationInvalid):
        return None


def _rules(network: Network) -> tuple[HostRule, ...]:
    rules: list[HostRule] = []
    for text in network.allow:
        try:
            rules.append(parse_rule(text))
        except DestinationInvalid:
            # It is noted where the network is read.
            continue
    return tuple(rules)


def _texts(fields: Fields, name: str, most: int) -> dict[str, str]:
    found = fields.object(name)
    if found is None:
        return {}
    members = found.members()
    texts = {key: value for key, value in members.items() if isinstance(value, str)}
    if len(texts) < len(members) or len(texts) > most:
        fields.note(name, "invalid_field", f"{fields.pointer(name)} is not an object of at most {most} texts")
    return texts
