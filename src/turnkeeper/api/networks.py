"""The `network` of an agent's sandbox and of a session (contract 2.1, 2.2): which hosts its tools may reach.

Answers for rules that mean something and lie within what the operator lends. Whether a connection is made is not
decided here: the proxy looks at the same lists once more, and asks the Guardian.
"""

from collections.abc import Sequence
from typing import Final

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.fields import Fields
from turnkeeper.destinations import DestinationInvalid, HostRule, parse_rule
from turnkeeper.turns.model import Network

MAX_RULES: Final = 100
NONE: Final = "none"
LISTED: Final = "listed"
"""`egress`: nothing, or what `allow` lists. Without `egress` it is what `allow` says."""


def parse_network(fields: Fields | None, lent: Sequence[HostRule]) -> Network | None:
    """What is asked for, `None` where nothing is said; what is wrong with it, or beyond what is `lent`, is noted."""
    if fields is None:
        return None
    fields.close({"egress", "allow"}, {})
    allow = fields.texts("allow", max_items=MAX_RULES)
    egress = fields.choice("egress", (NONE, LISTED), LISTED if allow else NONE)
    if egress == NONE and allow:
        fields.note("allow", "invalid_field", f"{fields.pointer('allow')} lists hosts, and egress is {NONE}")
    for text in allow:
        _check(fields, text, lent)
    return Network(allow)


def network_document(network: Network) -> JsonObject:
    """A network as it is shown, which is also how it may be sent."""
    return {"egress": LISTED if network.allow else NONE, "allow": list(network.allow)}


def _check(fields: Fields, text: str, lent: Sequence[HostRule]) -> None:
    try:
        rule = parse_rule(text)
    except DestinationInvalid as error:
        fields.note("allow", "invalid_field", f"{fields.pointer('allow')}: {error.message}")
        return
    if not any(other.covers(rule) for other in lent):
        fields.note("allow", "invalid_field", f"{fields.pointer('allow')}: the operator lends no egress to {text!r}")
