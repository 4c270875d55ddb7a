"""What the contract has and this version has not (house rule 12), as data.

Fields map to the values that mean what happens anyway; those are taken. Anything else is 422 `not_supported_yet`.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from turnkeeper.acs.strictjson import JsonValue

UnbuiltFields: TypeAlias = Mapping[str, tuple[JsonValue, ...]]

AGENT_FIELDS: Final[UnbuiltFields] = {}
SUBAGENT_FIELDS: Final[UnbuiltFields] = {
    "model": (),
    "limits": (),
    "budget": (),
}
# A version has no budget of its own: the one that an agent was made with is changed as a budget.
AGENT_CHANGE_FIELDS: Final[UnbuiltFields] = {**AGENT_FIELDS, "budget": ()}
GUARDIAN_FIELDS: Final[UnbuiltFields] = {
    "policy": (),
    "on_decision_failure": (),
}
SANDBOX_FIELDS: Final[UnbuiltFields] = {
    "image": (),
}
LIMITS_FIELDS: Final[UnbuiltFields] = {}
SESSION_FIELDS: Final[UnbuiltFields] = {
    "workspace": ({"mode": "persistent"},),
}
TURN_FIELDS: Final[UnbuiltFields] = {
    "priority": ("interactive",),
}

ENDPOINTS: Final[tuple[tuple[str, str], ...]] = (
    ("POST", "/v1/sessions/{}/fork"),
    ("POST", "/v1/sessions/{}/workspace_snapshots"),
    ("POST", "/v1/turns/{}/pause"),
    ("POST", "/v1/turns/{}/resume"),
    ("POST", "/v1/turns/{}/messages"),
    ("GET", "/v1/events"),
)
RESOURCES: Final = (
    "connections",
    "schedules",
)

_ENDPOINT_PATTERNS = tuple(
    (method, re.compile(re.escape(path).replace(re.escape("{}"), "[^/]+") + r"\Z")) for method, path in ENDPOINTS
)


def is_unbuilt_endpoint(method: str, path: str) -> bool:
    """Whether the contract has this endpoint and this version has not."""
    if path.split("/")[2:3] and path.split("/")[2] in RESOURCES:
        return True
    return any(method == known and pattern.match(path) for known, pattern in _ENDPOINT_PATTERNS)
