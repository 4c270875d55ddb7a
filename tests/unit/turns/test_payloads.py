"""The payloads of our steps against the standard's schemas."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import METHODS, JsonValue, Lineage, canonicalize, provenance_objects, validator
from turnkeeper.acs.lineage import carries_data
from turnkeeper.acs.values import signable
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import payload_schema
from turnkeeper.ids import RandomIds
from turnkeeper.inspect.agbom import ServedTool, ServerComponent
from turnkeeper.turns import payloads
from turnkeeper.turns.model import Agent, AgentLimits, ModelChoice, StepCounts

AGENT = Agent(
    "agt_1", 1, "name", ModelChoice("p", "m", {"n": 2**60}), "", ("shell",), AgentLimits(), "{}", SystemClock().now()
)
SERVER = ServerComponent("notes", version="1", tools=(ServedTool("mcp__notes__add", "ab"),))
IDS = RandomIds(SystemClock())
MARKS = Lineage(IDS, produces=True, sources=("seen",)).marks()
REQUEST_ID = "7d4d1e1c-0000-4000-8000-000000000000"
PAYLOADS = {
    payloads.SESSION_START: payloads.session_start(sandbox_kind="bwrap"),
    payloads.AGBOM_SNAPSHOT: payloads.agbom_snapshot(AGENT),
    payloads.AGBOM_CHANGED: payloads.agbom_changed(AGENT, [SERVER], reason="discovery"),
    payloads.AGENT_TRIGGER: payloads.agent_trigger(),
    payloads.TURN_START: payloads.turn_start("trn_1"),
    payloads.USER_MESSAGE: payloads.user_message(MARKS, "hello"),
    payloads.TOOL_CALL_REQUEST: payloads.tool_call_request(MARKS, "shell", {"command": "ls", "big": 2**70}),
    payloads.TOOL_CALL_RESULT: payloads.tool_call_result(
        MARKS, "shell", exit_status="success", output="x", request_id_ref=REQUEST_ID, duration_ms=1
    ),
    payloads.AGENT_RESPONSE: payloads.agent_response(MARKS, "text", '{"n":1}'),
    payloads.PRE_COMPACT: payloads.pre_compact(["s1"], estimated_tokens=9),
    payloads.POST_COMPACT: payloads.post_compact(MARKS, "short", ["s1"], ["a"], "0" * 64),
    payloads.TURN_END: payloads.turn_end(MARKS, "trn_1", "completed", StepCounts(3, 1), ["a", "b"]),
    payloads.SESSION_END: payloads.session_end("cancelled"),
}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_every_step_we_send_has_a_payload_here() -> None:
    assert set(PAYLOADS) == set(payloads.OWN_METHODS)


@pytest.mark.parametrize("method", payloads.OWN_METHODS)
def test_a_payload_is_what_its_hook_asks_for_and_can_be_signed(method: str) -> None:
    schema = METHODS[method].schema
    assert schema is not None
    document = orjson.loads(PAYLOADS[method])
    validator(payload_schema(schema, strict=True)).check(document)
    assert canonicalize(document)


@pytest.mark.parametrize("method", [method for method in PAYLOADS if carries_data(method)])
def test_every_value_says_where_it_came_from(method: str) -> None:
    told = {
        (label["origin"], label.get("source_id"))
        for label in provenance_objects(method, orjson.loads(PAYLOADS[method]))
    }
    expected = {
        payloads.USER_MESSAGE: ("user_input", "turn_api"),
        payloads.TOOL_CALL_RESULT: ("tool_output", "shell"),
    }
    assert told == {expected.get(method, ("agent_generated", None))}


def test_a_text_that_the_platform_put_in_a_tools_place_is_no_tool_output() -> None:
    document = orjson.loads(
        payloads.tool_call_result(
            MARKS, "shell", exit_status="failure", output="", request_id_ref=REQUEST_ID, duration_ms=1, by_platform=True
        )
    )
    (label,) = provenance_objects(payloads.TOOL_CALL_RESULT, document)
    assert (label["origin"], label["source_id"]) == ("system", "turnkeeper")


def test_the_summary_of_a_turn_derives_from_what_it_showed_and_quotes_nothing() -> None:
    summary = orjson.loads(PAYLOADS[payloads.TURN_END])["summary"]
    assert summary["provenance"]["derived_from"] == ["a", "b"]
    assert summary["value"] == "the turn ended: completed"


def test_a_count_that_is_not_known_is_left_out() -> None:
    assert orjson.loads(payloads.turn_end(MARKS, "trn_1", "error", StepCounts(None, None))) == {
        "turn_id": "trn_1",
        "outcome": "error",
    }


@given(value=values)
def test_every_argument_becomes_something_a_signature_covers(value: JsonValue) -> None:
    canonicalize(signable(value))  # type: ignore[arg-type]


@given(value=st.integers() | st.text() | st.lists(st.integers(-(2**53) + 1, 2**53 - 1)))
def test_what_can_be_signed_goes_as_it_is(value: JsonValue) -> None:
    sent = signable(value)
    safe = not isinstance(value, int) or abs(value) < 2**53
    # Beyond that, an integer that a double spells the same way can be signed as well.
    assert sent == value if safe else sent in (value, str(value))
