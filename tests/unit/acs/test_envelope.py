"""Requests as views, and the three documents that are built."""

from typing import Any

import pytest
from tests.unit.acs.samples import AT, REQUEST_ID, SESSION_ID, request, tool_call

from turnkeeper.acs import (
    AcsError,
    AcsErrorCode,
    EnvelopeMalformed,
    RequestEnvelope,
    build_error,
    build_result,
    rpc_id_of,
    same_major,
    validator,
)


def test_a_built_request_obeys_the_schema_and_leaves_out_what_has_no_value() -> None:
    document = request(nonce=None)
    validator("request-envelope").check(document)
    assert document["params"] == {
        "acs_version": "0.1.0",
        "request_id": REQUEST_ID,
        "timestamp": AT,
        "metadata": {"agent_id": "agt", "session_id": SESSION_ID},
        "payload": tool_call(),
    }


def test_a_view_shows_the_members_and_keeps_the_document() -> None:
    document: dict[str, Any] = request(
        turn_id="trn", tenant_id="prj", chain_hash="ab" * 32, metadata={"platform": "test", "agent_id": "overruled"}
    )
    document["params"]["x_vendor"] = {"kept": True}
    view = RequestEnvelope.of(document)
    assert view.document is document
    assert view.params is document["params"]
    assert (view.id, view.method, view.request_id) == ("call-1", "steps/toolCallRequest", REQUEST_ID)
    assert (view.agent_id, view.session_id, view.turn_id, view.tenant_id) == ("agt", SESSION_ID, "trn", "prj")
    assert (view.nonce, view.timestamp, view.acs_version) == ("n" * 16, AT, "0.1.0")
    assert view.client_chain_hash == "ab" * 32
    assert view.payload == tool_call()


def test_what_a_request_leaves_out_is_none() -> None:
    view = RequestEnvelope.of(request(nonce=None))
    assert (view.nonce, view.turn_id, view.tenant_id, view.client_chain_hash) == (None, None, None, None)


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/params", []),
        ("/id", True),
        ("/id", None),
        ("/method", 1),
        ("/params/request_id", 7),
        ("/params/nonce", None),
        ("/params/metadata", "x"),
        ("/params/metadata/agent_id", None),
        ("/params/metadata/turn_id", 5),
        ("/params/metadata/session_state", []),
        ("/params/payload", None),
    ],
)
def test_a_view_over_something_else_is_refused_with_the_place(pointer: str, value: object) -> None:
    document: Any = request()
    *parents, last = pointer.split("/")[1:]
    node = document
    for name in parents:
        node = node[name]
    node[last] = value
    with pytest.raises(EnvelopeMalformed) as refused:
        RequestEnvelope.of(document)
    assert refused.value.detail == {"pointer": pointer}


def test_a_client_chain_hash_is_text_or_absent() -> None:
    document: Any = request(metadata={"session_state": {}})
    assert RequestEnvelope.of(document).client_chain_hash is None
    document["params"]["metadata"]["session_state"]["chain_hash"] = 1
    with pytest.raises(EnvelopeMalformed):
        RequestEnvelope.of(document)


def test_a_root_that_is_no_object_has_no_view_and_no_id() -> None:
    with pytest.raises(EnvelopeMalformed, match="the root"):
        RequestEnvelope.of([])
    assert rpc_id_of([]) is None


@pytest.mark.parametrize(
    ("given_id", "echoed"), [("a", "a"), (0, 0), (1.5, 1.5), (True, None), (None, None), ({}, None)]
)
def test_an_id_is_echoed_where_it_is_one(given_id: object, echoed: object) -> None:
    assert rpc_id_of({"id": given_id}) == echoed


def test_answers_have_the_shape_of_json_rpc() -> None:
    assert build_result(1, {"a": 1}) == {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}
    assert build_error(None, -32700, "m") == {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "m"}}


def test_an_error_says_its_reason_and_message_and_what_its_code_adds() -> None:
    error = AcsError(AcsErrorCode.CAPABILITY_NOT_NEGOTIATED, "no_session", "no such session", {"method": "steps/x"})
    document = error.to_document("call-1")
    validator("response-envelope").check(document)
    assert document["error"] == {
        "code": -32003,
        "message": "capability not negotiated",
        "data": {"reason": "no_session", "message": "no such session", "method": "steps/x"},
    }
    assert error.error_code == "no_session"


@pytest.mark.parametrize(("version", "same"), [("0.9.7", True), ("0.1.0", True), ("1.0.0", False), ("00.1.0", False)])
def test_a_version_with_the_negotiated_major_is_accepted(version: str, same: bool) -> None:
    assert same_major(version, "0.1.0") is same


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"turn_id": "trn", "tenant_id": "prj", "chain_hash": "ab" * 32},
        {"nonce": None, "metadata": {"session_state": {}}},
    ],
)
def test_a_view_without_checks_over_a_valid_document_is_the_view_with_them(members: dict[str, Any]) -> None:
    document = request(**members)
    validator("request-envelope").check(document)
    assert RequestEnvelope.of_valid(document) == RequestEnvelope.of(document)
