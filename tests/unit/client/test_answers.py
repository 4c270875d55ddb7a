"""Bytes that come back: whatever they are, they are a decision that is proven or a failure with a name."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.rig import KEYRING, SESSION

from turnkeeper.acs import (
    AcsErrorCode,
    ObservedSession,
    Refusal,
    ServerHello,
    Verdict,
    build_error,
    build_result,
    sign_response,
)
from turnkeeper.client.answers import read_answer
from turnkeeper.client.posture import Failure, FailureKind
from turnkeeper.client.recovery import Move, leaves_doubt, next_move

REQUEST = "7d0d8f2a-0d5c-4a1b-9f9e-0a1b2c3d4e5f"
OBSERVED = ObservedSession.open(agent_id="a", session_id=SESSION, keyring=KEYRING, key_id="default")
ALLOW: dict[str, Any] = {"type": "final", "acs_version": "0.1.0", "request_id": REQUEST, "decision": "allow"}
BROKEN_MODIFY: dict[str, Any] = ALLOW | {
    "decision": "modify",
    "reasoning": "both",
    "modifications": {"modified_content": "x", "redactions": []},
}


def signed(document: dict[str, object]) -> bytes:
    """The document as the Guardian signs it."""
    return orjson.dumps(sign_response(document, OBSERVED.key))


def read(raw: bytes) -> object:
    """What the agent makes of bytes."""
    return read_answer(OBSERVED, raw, REQUEST)


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_failure_with_a_name(raw: bytes) -> None:
    assert isinstance(read(raw), Failure)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["result", "error", "id", "jsonrpc", "extra"]),
)
def test_any_change_of_an_answer_is_a_failure_or_the_same_answer(value: object, member: str) -> None:
    """A law: without the key nobody makes a decision out of a decision."""
    document = orjson.loads(signed(build_result(REQUEST, ALLOW)))
    try:
        changed = orjson.dumps(document | {member: value})
    except (TypeError, orjson.JSONEncodeError):
        return
    told = read(changed)
    assert isinstance(told, Failure) or document[member] == value


def test_a_broken_modify_is_a_decision_only_where_it_is_proven() -> None:
    """CORE-MOD-03: a denial must not be forged into being either."""
    document = build_result(REQUEST, BROKEN_MODIFY)
    told = read(signed(document))
    assert isinstance(told, Verdict)
    assert told.decision == "modify"
    for forged in (
        orjson.dumps(document),
        orjson.dumps(orjson.loads(signed(document)) | {"id": "another"}),
        signed(build_result(REQUEST, BROKEN_MODIFY | {"request_id": SESSION})),
        signed(build_result(REQUEST, BROKEN_MODIFY | {"reasoning": 1})),
        signed(
            build_result(REQUEST, {name: value for name, value in BROKEN_MODIFY.items() if name != "modifications"})
        ),
    ):
        assert isinstance(read(forged), Failure)


@pytest.mark.parametrize("modifications", ["text", 1, [], None])
def test_modifications_that_are_no_object_have_no_meaning(modifications: object) -> None:
    told = read(signed(build_result(REQUEST, BROKEN_MODIFY | {"modifications": modifications})))
    assert isinstance(told, Verdict)
    assert told.details is None


@pytest.mark.parametrize("rpc_id", [REQUEST, None])
def test_an_unsigned_error_is_a_failure_that_names_its_code(rpc_id: str | None) -> None:
    told = read(orjson.dumps(build_error(rpc_id, AcsErrorCode.SIGNATURE_INVALID, "secret text")))
    assert told == Failure(FailureKind.ERROR, "the Guardian answered with error -32004, unsigned", -32004)


def test_a_gateways_error_is_none_of_the_guardians() -> None:
    """CORE-HON-08."""
    told = read(b'{"error":"bad gateway","status":502}')
    assert isinstance(told, Failure)
    assert told.kind is FailureKind.MALFORMED


@pytest.mark.parametrize(
    ("answer", "repeated", "move"),
    [
        (Failure(FailureKind.TRANSPORT, ""), False, Move.REPEAT),
        (Failure(FailureKind.MALFORMED, ""), True, Move.REPEAT),
        (Failure(FailureKind.SIGNATURE, ""), False, Move.REPEAT),
        (Failure(FailureKind.TIMEOUT, ""), False, Move.STOP),
        (Failure(FailureKind.UNSENDABLE, ""), False, Move.STOP),
        (Failure(FailureKind.ERROR, "", -32004), False, Move.REPEAT),
        (Failure(FailureKind.ERROR, "", -32600), False, Move.STOP),
        (Failure(FailureKind.ERROR, "", -31999), False, Move.STOP),
        (Refusal(-32603, None, "", None), False, Move.REPEAT),
        (Refusal(-32602, None, "", None), False, Move.STOP),
        (Refusal(-32006, None, "", None), False, Move.CLOCK),
        (Refusal(-32005, None, "", None), False, Move.REPEAT),
        (Refusal(-32005, None, "", None), True, Move.ANEW),
        (Refusal(-32005, None, "", {"recorded": {"decision": "allow", "chain_hash": None}}), False, Move.STOP),
        (Refusal(-32005, None, "", {"recorded": {"decision": "deny", "chain_hash": None}}), True, Move.STOP),
        # What it had decided cannot be obeyed without its details.
        (Refusal(-32005, None, "", {"recorded": {"decision": "modify", "chain_hash": None}}), False, Move.ANEW),
        (Refusal(-32005, None, "", {"recorded": {"decision": "ask", "chain_hash": None}}), True, Move.ANEW),
    ],
)
def test_what_may_still_bring_a_decision_is_a_table(answer: Failure | Refusal, repeated: bool, move: Move) -> None:
    """CORE-HON-06."""
    assert next_move(answer, repeated=repeated) is move


def test_doubt_is_what_a_broken_wire_or_a_replay_leaves() -> None:
    assert leaves_doubt(Failure(FailureKind.TIMEOUT, ""))
    assert leaves_doubt(Refusal(-32005, None, "", None))
    assert not leaves_doubt(Failure(FailureKind.UNSENDABLE, ""))
    assert not leaves_doubt(Refusal(-32602, None, "", None))


def test_terms_are_read_as_terms() -> None:
    hello: dict[str, object] = {
        "negotiated_version": "0.1.0",
        "methods_evaluated": [],
        "selected_transport": "http",
        "timeout_config": {"default_ms": 5},
    }
    assert isinstance(read(signed(build_result(REQUEST, hello))), ServerHello)
