"""The founding documents: what is wrong with them, and the one mapping between them."""

import copy
from typing import Any

import pytest

from turnkeeper.acs import validator
from turnkeeper.events.founding import (
    FindingKind,
    FoundingInvalid,
    FoundingUnrecognized,
    NoTurnEnd,
    check_founding,
    identify,
    turn_end_from,
    validate_turn_completed,
    validate_turn_end,
)

_TURN_ID = "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
_MODEL: dict[str, Any] = {
    "model": "example/large-1",
    "input_tokens": 100,
    "cached_input_tokens": 60,
    "cache_write_tokens": 40,
    "output_tokens": 20,
    "reasoning_tokens": 20,
    "model_calls": 2,
    "cost": {"amount": "0.30", "currency": "USD"},
}
_USED: dict[str, Any] = {
    "input_tokens": 100,
    "cached_input_tokens": 60,
    "cache_write_tokens": 40,
    "output_tokens": 20,
    "reasoning_tokens": 20,
    "total_tokens": 120,
    "model_calls": 2,
    "tool_calls": 3,
    "sandbox_ms": 41200,
    "cost": {"amount": "0.3", "currency": "USD"},
    "by_model": [_MODEL],
    "estimated": False,
}
_NOTHING_USED: dict[str, Any] = {
    name: 0 for name, value in _USED.items() if isinstance(value, int) and name != "estimated"
} | {"cost": {"amount": "0", "currency": "USD"}, "by_model": [], "estimated": False}


def _completed(**members: Any) -> dict[str, Any]:
    return {
        "turn_id": _TURN_ID,
        "idempotency_key": None,
        "status": "completed",
        "stop_reason": "end_turn",
        "output": {"text": "done"},
        "result": None,
        "result_error": None,
        "usage": copy.deepcopy(_USED),
        "metadata": {},
        "duration_ms": 41733,
    } | members


def _event(data: dict[str, Any], source: str = "sandbox", **members: Any) -> dict[str, Any]:
    return {"type": "turn.completed", "source": source, "turn_id": _TURN_ID, "data": data} | members


def _request(payload: Any, turn_id: str = _TURN_ID) -> dict[str, Any]:
    params = {"metadata": {"turn_id": turn_id}, "payload": payload}
    return {"jsonrpc": "2.0", "id": 1, "method": "steps/turnEnd", "params": params}


def _with_usage(**members: Any) -> dict[str, Any]:
    return _completed(usage=copy.deepcopy(_USED) | members)


def _from_platform(**members: Any) -> dict[str, Any]:
    unused: dict[str, Any] = {
        "stop_reason": "budget_reached",
        "output": {"text": ""},
        "usage": _NOTHING_USED,
        "duration_ms": 0,
    }
    return _event(_completed(**(unused | members)), "platform")


def _found(document: object) -> list[tuple[str, str]]:
    return [(finding.pointer, finding.code) for finding in check_founding(document)]


@pytest.mark.parametrize("stop_reason", ["end_turn", "budget_reached"])
@pytest.mark.parametrize(
    ("result", "result_error"),
    [(None, None), ({"a": 1}, None), (False, None), (None, "not_submitted"), (None, "invalid")],
)
def test_every_ending_that_a_sandbox_may_report_is_legal(
    stop_reason: str, result: object, result_error: str | None
) -> None:
    data = _completed(stop_reason=stop_reason, result=result, result_error=result_error)
    assert check_founding(data) == []
    validate_turn_completed(data)
    validate_turn_completed(_event(data))


@pytest.mark.parametrize("result_error", [None, "not_submitted"])
def test_the_platforms_own_endings_are_legal(result_error: str | None) -> None:
    validate_turn_completed(_from_platform(result_error=result_error))


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"stop_reason": "end_turn"}, "/data/stop_reason"),
        ({"output": {"text": "x"}}, "/data/output/text"),
        ({"result": 1}, "/data/result"),
        ({"result_error": "invalid"}, "/data/result_error"),
        ({"usage": _NOTHING_USED | {"tool_calls": 1}}, "/data/usage"),
        ({"duration_ms": 1}, "/data/duration_ms"),
    ],
)
def test_the_platform_ends_nothing_that_ran(members: dict[str, Any], pointer: str) -> None:
    assert _found(_from_platform(**members)) == [(pointer, "platform_ending")]


def test_a_result_beside_a_reason_for_none_is_a_contradiction() -> None:
    document = _completed(result={"a": 1}, result_error="invalid")
    assert _found(document) == [("/result_error", "result_contradicts_error")]
    assert check_founding(document)[0].kind is FindingKind.RULE
    with pytest.raises(FoundingInvalid) as refused:
        validate_turn_completed(document)
    assert refused.value.detail == {"pointer": "/result_error", "rule": "result_contradicts_error"}


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"total_tokens": 121}, [("/usage/total_tokens", "total_differs")]),
        ({"model_calls": 3}, [("/usage/model_calls", "sum_differs")]),
        (
            {"cached_input_tokens": 61},
            [("/usage/input_tokens", "parts_exceed_whole"), ("/usage/cached_input_tokens", "sum_differs")],
        ),
        (
            {"reasoning_tokens": 21},
            [("/usage/reasoning_tokens", "parts_exceed_whole"), ("/usage/reasoning_tokens", "sum_differs")],
        ),
        ({"cost": {"amount": "0.31", "currency": "USD"}}, [("/usage/cost/amount", "sum_differs")]),
        ({"cost": {"amount": "0.3", "currency": "EUR"}}, [("/usage/cost/currency", "currency_differs")]),
        ({"cost": None}, []),
        ({"by_model": [_MODEL | {"cost": None}]}, [("/usage/cost", "cost_not_known")]),
        (
            {
                "by_model": [_MODEL, _MODEL | dict.fromkeys(_MODEL.keys() - {"model", "cost"}, 0) | {"cost": None}],
            },
            [("/usage/by_model", "not_sorted")],
        ),
        ({"input_tokens": 100.0}, []),
    ],
)
def test_usage_adds_up(usage: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert _found(_with_usage(**usage)) == found


@pytest.mark.parametrize(
    ("members", "pointer", "code"),
    [
        ({"turn_id": "trn_short"}, "/turn_id", "pattern"),
        ({"turn_id": _TURN_ID + "\n"}, "/turn_id", "pattern"),
        ({"status": "failed"}, "/status", "const"),
        ({"stop_reason": "stop"}, "/stop_reason", "enum"),
        ({"output": {"text": "x", "more": 1}}, "/output", "additionalProperties"),
        ({"result_error": "withheld"}, "/result_error", "enum"),
        ({"duration_ms": -1}, "/duration_ms", "minimum"),
        ({"duration_ms": 1.5}, "/duration_ms", "type"),
        ({"usage": {}}, "/usage", "required"),
        ({"usage": _USED | {"cost": {"amount": "1e3", "currency": "USD"}}}, "/usage/cost", "anyOf"),
        ({"extra": 1}, "", "additionalProperties"),
    ],
)
def test_a_broken_member_is_named_by_its_pointer(members: dict[str, Any], pointer: str, code: str) -> None:
    findings = check_founding(_completed(**members))
    assert (findings[0].pointer, findings[0].code, findings[0].kind) == (pointer, code, FindingKind.SCHEMA)
    assert check_founding(_event(_completed(**members)))[0].pointer == f"/data{pointer}"


@pytest.mark.parametrize("name", list(_completed()))
def test_none_of_the_ten_keys_may_be_missing(name: str) -> None:
    document = _completed()
    del document[name]
    with pytest.raises(FoundingInvalid, match=name):
        validate_turn_completed(document)


def test_rules_are_looked_at_only_where_the_schema_holds() -> None:
    document = _completed(result=1, result_error="invalid", duration_ms=None)
    assert _found(document) == [("/duration_ms", "type")]


@pytest.mark.parametrize("outcome", ["completed", "deferred", "error", "interrupted", "denied_at_start"])
def test_a_turn_end_of_any_producer_is_accepted_bare_or_in_its_request(outcome: str) -> None:
    payload = {"turn_id": "any text", "outcome": outcome, "step_count": 0, "x_vendor": 1}
    validate_turn_end(payload)
    validate_turn_end(_request(payload, "any text"))
    assert check_founding(payload) == []


def test_a_broken_turn_end_is_named_by_its_pointer() -> None:
    with pytest.raises(FoundingInvalid) as refused:
        validate_turn_end({"turn_id": "t", "outcome": "done", "summary": {"value": "v"}})
    found = {(finding.pointer, finding.code) for finding in refused.value.findings}
    assert found == {("/outcome", "enum"), ("/summary", "required")}
    assert _found(_request({"turn_id": "t", "outcome": "done"})) == [("/params/payload/outcome", "enum")]


def test_an_envelope_names_the_turn_that_its_document_names() -> None:
    other = "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AC"
    assert _found(_request({"turn_id": _TURN_ID, "outcome": "error"}, other)) == [
        ("/params/payload/turn_id", "turn_id_mismatch")
    ]
    assert _found(_event(_completed(), turn_id=other)) == [("/data/turn_id", "turn_id_mismatch")]


def test_a_document_is_known_by_its_envelope_or_its_members() -> None:
    assert identify(_completed()) == identify(_event({})) == identify({"stop_reason": 1}) == "turn.completed"
    assert identify({"outcome": "completed"}) == identify(_request(None)) == "turnEnd"


@pytest.mark.parametrize(
    "document", [{}, [], None, "x", {"type": "turn.failed", "data": {}}, {"method": "steps/turnStart"}]
)
def test_another_document_is_not_recognized(document: object) -> None:
    with pytest.raises(FoundingUnrecognized):
        check_founding(document)


def test_a_request_without_params_is_not_a_turn_end() -> None:
    with pytest.raises(FoundingUnrecognized):
        identify({"method": "steps/turnEnd", "params": []})
    assert _found({"method": "steps/turnEnd", "params": {"metadata": 1}}) == [("/params/payload", "type")]


def test_a_completed_turn_maps_to_a_completed_turn_end() -> None:
    expected = {"turn_id": _TURN_ID, "outcome": "completed", "step_count": 4, "tool_call_count": 0}
    for stop_reason in ("end_turn", "budget_reached"):
        document = _completed(stop_reason=stop_reason, result_error="invalid")
        assert turn_end_from(document, step_count=4, tool_call_count=0) == expected
        assert turn_end_from(_event(document)) == {"turn_id": _TURN_ID, "outcome": "completed"}


def _ended(status: str, stop_reason: str, **members: Any) -> dict[str, Any]:
    return _completed(status=status, stop_reason=stop_reason, **members)


@pytest.mark.parametrize(
    ("document", "outcome"),
    [
        (_ended("failed", "agent_error"), "error"),
        (_ended("failed", "denied_input"), "error"),
        (_ended("failed", "sandbox_lost", error=None), "error"),
        (_ended("failed", "denied_at_start", error={"code": "denied"}), "denied_at_start"),
        (_ended("failed", "denied_at_start"), "denied_at_start"),
        (_ended("failed", "denied_at_start", error={"code": "disposition_not_permitted"}), "error"),
        (_ended("canceled", "superseded"), "interrupted"),
        (_event(_ended("canceled", "operator"), type="turn.canceled"), "interrupted"),
    ],
)
def test_other_endings_map_by_their_reason(document: dict[str, Any], outcome: str) -> None:
    payload = turn_end_from(document, step_count=1)
    validator("hooks/turn-end").check(payload)
    assert payload == {"turn_id": _TURN_ID, "outcome": outcome, "step_count": 1}


@pytest.mark.parametrize("stop_reason", ["queue_expired", "denied_before_start"])
def test_a_turn_that_never_started_has_no_turn_end(stop_reason: str) -> None:
    with pytest.raises(NoTurnEnd):
        turn_end_from(_ended("failed", stop_reason))


def test_a_turn_canceled_in_the_queue_has_no_turn_end() -> None:
    with pytest.raises(NoTurnEnd):
        turn_end_from(_ended("canceled", "canceled"), turn_started=False)


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ([], ""),
        ({}, "/turn_id"),
        (_ended("running", "x"), "/status"),
        (_ended("failed", "x") | {"stop_reason": None}, "/stop_reason"),
        (_event(_ended("paused", "x")), "/data/status"),
        (_completed(duration_ms="1"), "/duration_ms"),
    ],
)
def test_a_document_that_is_no_ending_maps_to_nothing(document: object, pointer: str) -> None:
    with pytest.raises(FoundingInvalid) as refused:
        turn_end_from(document)
    assert refused.value.findings[0].pointer == pointer
