"""The payloads of our steps against the standard's schemas."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import METHODS, JsonValue, canonicalize, validator
from turnkeeper.clock import SystemClock
from turnkeeper.turns import payloads
from turnkeeper.turns.model import Agent, AgentLimits, ModelChoice, StepCounts
from turnkeeper.turns.payloads import as_data

AGENT = Agent(
    "agt_1", 1, "name", ModelChoice("p", "m", {"n": 2**60}), "", ("shell",), AgentLimits(), "{}", SystemClock().now()
)
REQUEST_ID = "7d4d1e1c-0000-4000-8000-000000000000"
PAYLOADS = {
    payloads.SESSION_START: payloads.session_start(sandbox_kind="bwrap"),
    payloads.AGBOM_SNAPSHOT: payloads.agbom_snapshot(AGENT),
    payloads.AGENT_TRIGGER: payloads.agent_trigger(),
    payloads.TURN_START: payloads.turn_start("trn_1"),
    payloads.USER_MESSAGE: payloads.user_message("hello"),
    payloads.TOOL_CALL_REQUEST: payloads.tool_call_request("shell", {"command": "ls", "big": 2**70}),
    payloads.TOOL_CALL_RESULT: payloads.tool_call_result(
        "shell", exit_status="success", output="x", request_id_ref=REQUEST_ID, duration_ms=1
    ),
    payloads.AGENT_RESPONSE: payloads.agent_response("text", '{"n":1}'),
    payloads.TURN_END: payloads.turn_end("trn_1", "completed", StepCounts(3, 1)),
    payloads.SESSION_END: payloads.session_end("cancelled"),
}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_every_step_we_send_has_a_payload_here() -> None:
    assert set(PAYLOADS) == set(payloads.METHODS_IMPLEMENTED)


@pytest.mark.parametrize("method", payloads.METHODS_IMPLEMENTED)
def test_a_payload_is_what_its_hook_asks_for_and_can_be_signed(method: str) -> None:
    schema = METHODS[method].schema
    assert schema is not None
    document = orjson.loads(PAYLOADS[method])
    validator(schema).check(document)
    assert canonicalize(document)


def test_a_count_that_is_not_known_is_left_out() -> None:
    assert orjson.loads(payloads.turn_end("trn_1", "error", StepCounts(None, None))) == {
        "turn_id": "trn_1",
        "outcome": "error",
    }


@given(value=values)
def test_every_argument_becomes_something_a_signature_covers(value: JsonValue) -> None:
    canonicalize(as_data(value))  # type: ignore[arg-type]


@given(value=st.integers() | st.text() | st.lists(st.integers(-(2**53) + 1, 2**53 - 1)))
def test_what_can_be_signed_goes_as_it_is(value: JsonValue) -> None:
    sent = as_data(value)
    safe = not isinstance(value, int) or abs(value) < 2**53
    assert sent == (value if safe else str(value))
