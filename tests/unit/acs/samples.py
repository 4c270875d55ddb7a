"""Envelopes and JSON values that the tests of this package share."""

import math
from typing import Any

from hypothesis import strategies as st

from turnkeeper.acs import Keyring, ObservedSession, build_request

SESSION_ID = "6b1f2c9e-4d7a-4e3b-8a51-9c0d2e7f1a36"
REQUEST_ID = "56a78506-aa4a-489d-8171-8833ef83f7bd"
AT = "2026-06-17T12:00:00Z"
KEYRING = Keyring({"label": bytes(range(32)), "other": bytes(range(1, 33))})
KEY = KEYRING.session_key("label", SESSION_ID)
SESSION = ObservedSession(agent_id="agt", session_id=SESSION_ID, key=KEY)


def tool_call(**arguments: object) -> dict[str, Any]:
    """The payload of a toolCallRequest."""
    return {"tool": {"name": "shell"}, "arguments": {name: {"value": value} for name, value in arguments.items()}}


def request(payload: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """An unsigned request; `members` replace those of `build_request`."""
    defaults: dict[str, Any] = {
        "method": "steps/toolCallRequest",
        "rpc_id": "call-1",
        "request_id": REQUEST_ID,
        "timestamp": AT,
        "nonce": "n" * 16,
        "agent_id": "agt",
        "session_id": SESSION_ID,
        "payload": tool_call() if payload is None else payload,
    }
    return build_request(**(defaults | members))


# Where sorted orjson and RFC 8785 part: small and large exponents, integral floats, the edges of 2**53 and of the
# double, and names whose order differs between UTF-8 and UTF-16.
_AWKWARD_NUMBERS: list[int | float] = [
    0.0,
    -0.0,
    5.0,
    1e-5,
    math.nextafter(1e-5, 0),
    1e-6,
    1.5e-6,
    1e-7,
    math.nextafter(1e-7, 0),
    5e-324,
    1e16,
    6.09953377923431e16,
    1e21,
    1.7976931348623157e308,
    2**53 - 1,
    -(2**53) + 1,
    float(2**53),
]
_AWKWARD_CHARACTERS = st.sampled_from("a~\x00\x1f\x7f\u2028\ud7ff\ue000\uffff\U00010000\U0010ffff")
_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6) | st.text(_AWKWARD_CHARACTERS, max_size=4)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(_AWKWARD_NUMBERS)
    | _TEXT
)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)
JSON_OBJECTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(_TEXT, JSON_VALUES, max_size=5)
