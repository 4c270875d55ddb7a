"""Secrets from the bodies of requests: what is kept, and what a session may use (contract 2.13 and 2.2)."""

import re
from typing import Final

from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.fields import Fields
from turnkeeper.destinations import DestinationInvalid, parse_secret_host
from turnkeeper.turns.model import SecretRef
from turnkeeper.turns.secrets import (
    MAX_SECRET_HOSTS,
    MAX_SESSION_SECRETS,
    MAX_VALUE_CHARACTERS,
    MIN_VALUE_CHARACTERS,
    NewSecret,
)

MAX_NAME_CHARACTERS: Final = 64
NAME_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
VARIABLE_PATTERN: Final = r"^[A-Z_][A-Z0-9_]{0,63}$"
VALUE_PATTERN: Final = r"^[\x21-\x7e]+$"

_OF_THE_BOX: Final = re.compile(
    r"(LD|PYTHON|NODE|GIT|MALLOC|SSL|CURL|REQUESTS|PIP|AWS_CA|BASH)_.*|PATH|HOME|LANG|ENV|IFS|NODE_OPTIONS|.*_?PROXY"
)
"""Variables that mean something to the box or to what starts programs in it."""


def parse_secret(body: JsonBody, project_id: str) -> NewSecret:
    """The secret to keep. Raises `RequestRefused`, which does not repeat the value."""
    fields = Fields(body.members)
    fields.close({"name", "value", "hosts"}, {})
    name = fields.required_text("name", max_characters=MAX_NAME_CHARACTERS)
    if name and not re.fullmatch(NAME_PATTERN, name):
        fields.note("name", "invalid_field", "/name is not letters, digits, `_`, `.` and `-`")
    value = fields.required_text("value", max_characters=MAX_VALUE_CHARACTERS)
    if value and (len(value) < MIN_VALUE_CHARACTERS or not re.fullmatch(VALUE_PATTERN, value)):
        fields.note("value", "invalid_field", f"/value is not at least {MIN_VALUE_CHARACTERS} visible ASCII characters")
    hosts = _hosts(fields)
    fields.finish()
    return NewSecret(project_id, name, hosts, value)


def parse_session_secrets(fields: Fields) -> tuple[SecretRef, ...]:
    """What a session may use; what is wrong with it is noted. Whether there are such secrets is not looked up."""
    if not fields.has("secrets"):
        return ()
    refs = [_ref(item) for item in fields.objects("secrets", max_items=MAX_SESSION_SECRETS)]
    if len({ref.name for ref in refs}) < len(refs):
        fields.note("secrets", "invalid_field", "/secrets names a variable twice")
    return tuple(refs)


def _ref(fields: Fields) -> SecretRef:
    fields.close({"name", "ref"}, {})
    name = fields.required_text("name", max_characters=MAX_NAME_CHARACTERS)
    if name and (not re.fullmatch(VARIABLE_PATTERN, name) or _OF_THE_BOX.fullmatch(name)):
        fields.note(
            "name", "invalid_field", f"{fields.pointer('name')} is not a variable of capital letters that is yours"
        )
    return SecretRef(name, fields.required_text("ref", max_characters=MAX_NAME_CHARACTERS))


def _hosts(fields: Fields) -> tuple[str, ...]:
    hosts = fields.texts("hosts", max_items=MAX_SECRET_HOSTS)
    if not hosts:
        fields.note("hosts", "invalid_field", "/hosts is required: the hosts that may get the value")
    for host in hosts:
        try:
            parse_secret_host(host)
        except DestinationInvalid as error:
            fields.note("hosts", "invalid_field", f"/hosts: {error.message}")
    return hosts
