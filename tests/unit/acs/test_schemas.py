"""The schemas decide on the wire: what they accept, what they refuse, and that they fetch nothing."""

from typing import Any

import orjson
import pytest
from tests.unit.acs.samples import REQUEST_ID, SESSION_ID, request, tool_call

from turnkeeper.acs import (
    AcsErrorCode,
    SchemaUnknown,
    SchemaUnusable,
    SchemaViolation,
    Validator,
    build_error,
    schema_paths,
    schema_text,
    validator,
)
from turnkeeper.acs.schemas import BASES, MAX_VIOLATIONS

_PROVENANCE = {"provenance_id": "p", "origin": "user_input"}
_HASH = "ab" * 32
_PAYLOADS: dict[str, dict[str, Any]] = {
    "session-start": {},
    "agent-trigger": {"trigger_type": "scheduled"},
    "turn-start": {"turn_id": "t", "triggered_by": "external_event"},
    "user-message": {"content": [{"type": "text", "value": "hi"}]},
    "agent-response": {"content": [{"type": "text", "value": "hi"}]},
    "tool-call-request": {"tool": {"name": "shell"}, "arguments": {}},
    "tool-call-result": {"tool": {"name": "shell"}, "exit_status": "blocked", "outputs": []},
    "turn-end": {"turn_id": "t", "outcome": "denied_at_start"},
    "session-end": {"reason": "abandoned"},
    "subagent-start": {
        "subagent_session_id": SESSION_ID,
        "parent_session_id": SESSION_ID,
        "parent_step_id": "s",
        "intent_derivation": "fresh",
    },
    "subagent-stop": {"subagent_session_id": SESSION_ID, "outcome": "completed"},
    "agbom-snapshot": {"agbom": {"agbom_version": "0.1.0", "agent": {"agent_id": "a"}, "components": []}},
    "agbom-changed": {"diff": {"added": []}},
    "knowledge-retrieval": {"query": {"value": "q"}, "results": []},
    "memory-context-retrieval": {"results": []},
    "memory-store": {"content": {"value": 1}},
    "pre-compact": {"entries_to_compact": ["s"], "triggered_by": "manual"},
    "post-compact": {
        "summary": {"value": "v", "provenance": _PROVENANCE},
        "entries_compacted": ["s"],
        "pre_compact_chain_hash": _HASH,
        "post_compact_chain_hash": _HASH,
    },
    "skill-register": {
        "skill_id": "k",
        "definition": {"digest": {"algorithm": "sha-256", "value": "v"}},
        "declared_capabilities": [],
    },
    "skill-load": {
        "skill_id": "k",
        "load_trigger": "user",
        "load_path": [{"skill_id": "k"}],
        "digest": {"algorithm": "sha-512", "value": "v"},
    },
    "skill-unload": {"skill_id": "k", "reason": "error"},
    "system-ping": {},
}
_WITH_PROVENANCE: dict[str, dict[str, Any]] = {
    "tool-call-request": tool_call() | {"arguments": {"a": {"value": 1}}},
    "tool-call-result": {"tool": {"name": "t"}, "exit_status": "success", "outputs": [{"value": 1}]},
    "user-message": {"content": [{"type": "text", "value": "hi"}]},
    "agent-response": {"content": [{"type": "text", "value": "hi"}]},
    "knowledge-retrieval": {"query": {"value": "q", "provenance": _PROVENANCE}, "results": [{"value": 1}]},
    "memory-context-retrieval": {"results": [{"value": 1}]},
    "memory-store": {"content": {"value": 1}},
}


def _violation_of(schema: str, document: object) -> SchemaViolation:
    with pytest.raises(SchemaViolation) as refused:
        validator(schema).check(document)
    return refused.value


@pytest.mark.parametrize("name", _PAYLOADS)
def test_the_smallest_payload_of_a_hook_is_valid_and_unknown_members_are_ignored(name: str) -> None:
    validator(f"hooks/{name}").check(_PAYLOADS[name] | {"x_vendor": 1})


@pytest.mark.parametrize("name", [name for name, payload in _PAYLOADS.items() if payload])
def test_a_payload_without_its_required_members_is_refused(name: str) -> None:
    assert not validator(f"hooks/{name}").is_valid({})


@pytest.mark.parametrize("name", _WITH_PROVENANCE)
def test_a_strict_variant_asks_for_provenance_where_its_base_does_not(name: str) -> None:
    validator(f"hooks/{name}").check(_WITH_PROVENANCE[name])
    assert not validator(f"hooks/{name}.acs-provenance").is_valid(_WITH_PROVENANCE[name])
    labelled = orjson.loads(orjson.dumps(_WITH_PROVENANCE[name]).replace(b'"value":1', b'"value":1,"provenance":0'))
    text = orjson.dumps(labelled).replace(b'"hi"', b'"hi","provenance":0')
    complete = orjson.loads(text.replace(b'"provenance":0', b'"provenance":' + orjson.dumps(_PROVENANCE)))
    validator(f"hooks/{name}.acs-provenance").check(complete)


@pytest.mark.parametrize("member", ["acs_version", "request_id", "timestamp", "metadata", "payload"])
def test_a_request_lacks_none_of_its_five_members(member: str) -> None:
    document: Any = request()
    del document["params"][member]
    violation = _violation_of("request-envelope", document).violations[0]
    assert (violation.instance_path, violation.keyword) == ("/params", "required")


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/jsonrpc", "1.0"),
        ("/id", None),
        ("/method", "foo/bar"),
        ("/extra", 1),
        ("/params/request_id", "not-a-uuid"),
        ("/params/timestamp", "2026-06-17T12:00:00"),
        ("/params/timestamp", "not a timestamp"),
        ("/params/acs_version", "0.1"),
        ("/params/acs_version", "\u0660.1.0"),
        ("/params/acs_version", "0.1.0\n"),
        ("/params/nonce", "n" * 15),
        ("/params/nonce", "n" * 65),
        ("/params/metadata/session_id", "s"),
        ("/params/signature", {"algorithm": "none", "value": "", "key_id": ""}),
    ],
    ids=ascii,
)
def test_a_request_that_breaks_the_envelope_is_refused(pointer: str, value: object) -> None:
    document: Any = request()
    *parents, last = pointer.split("/")[1:]
    node = document
    for name in parents:
        node = node[name]
    node[last] = value
    assert not validator("request-envelope").is_valid(document)


def test_one_point_zero_is_an_integer_and_true_is_not() -> None:
    payload = {"turn_id": "t", "outcome": "completed", "step_count": 1.0}
    assert validator("hooks/turn-end").is_valid(payload)
    assert not validator("hooks/turn-end").is_valid(payload | {"step_count": True})


def test_a_bare_argument_value_is_refused_with_its_place() -> None:
    payload = {"tool": {"name": "shell"}, "arguments": {"a/b~c": "bare"}}
    violation = _violation_of("hooks/tool-call-request", payload)
    assert violation.violations[0].instance_path == "/arguments/a~1b~0c"
    assert violation.detail == {"pointer": "/arguments/a~1b~0c", "keyword": "type"}


def test_violations_are_few_and_short_however_much_is_wrong() -> None:
    payload = {"tool": {"name": "shell"}, "arguments": {f"a{index}": "x" * 10_000 for index in range(1000)}}
    violations = _violation_of("hooks/tool-call-request", payload).violations
    assert len(violations) == MAX_VIOLATIONS
    assert max(len(violation.message) for violation in violations) <= 300
    assert "x" * 50 not in str(violations)


def test_an_error_may_be_signed_and_its_signature_has_the_shape_of_one() -> None:
    signature = {"algorithm": "HMAC-SHA256", "value": "v", "key_id": "k"}
    document: Any = build_error(None, AcsErrorCode.PARSE_ERROR, "parse error")
    document["error"]["signature"] = signature
    validator("response-envelope").check(document)
    document["error"]["signature"] = {"value": "v"}
    assert not validator("response-envelope").is_valid(document)


def test_an_answer_is_a_result_or_an_error_and_never_both() -> None:
    result = {"type": "final", "acs_version": "0.1.0", "request_id": REQUEST_ID, "decision": "allow"}
    answer = {"jsonrpc": "2.0", "id": 1, "result": result}
    assert validator("response-envelope").is_valid(answer)
    assert not validator("response-envelope").is_valid(answer | {"error": {"code": 1, "message": "m"}})
    assert not validator("response-envelope").is_valid(answer | {"id": None})
    assert not validator("response-envelope").is_valid({"jsonrpc": "2.0", "id": 1})


def test_a_server_hello_is_valid_as_the_result_of_a_handshake_only() -> None:
    hello: dict[str, Any] = {
        "negotiated_version": "0.1.0",
        "methods_evaluated": [],
        "selected_transport": "http",
        "timeout_config": {"default_ms": 1},
    }
    answer = {"jsonrpc": "2.0", "id": 1, "result": hello}
    assert validator("handshake/response").is_valid(answer)
    assert not validator("response-envelope").is_valid(answer)
    assert not validator("handshake/response").is_valid(answer | {"result": hello | {"signature": 1}})


def test_an_unknown_schema_is_named() -> None:
    for name in ("hooks/unheard-of", "hooks/../secrets", ""):
        with pytest.raises(SchemaUnknown):
            validator(name)
        with pytest.raises(SchemaUnknown):
            schema_text(name)


def test_every_shipped_file_compiles_and_is_served_as_it_lies() -> None:
    assert len(schema_paths()) == 40
    for path in schema_paths():
        validator(path.removesuffix(".json"))
        assert orjson.loads(schema_text(path))["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("base", BASES)
def test_a_schema_answers_to_its_path_under_every_base(base: str) -> None:
    provenance = orjson.loads(schema_text("provenance.json"))
    strict = Validator({"$ref": f"{base}provenance.json"}, {f"{base}provenance.json": provenance})
    assert strict.is_valid(_PROVENANCE)
    assert not strict.is_valid({})


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x.json", "file:///etc/passwd", "json-schema:///x"])
def test_a_reference_that_is_not_shipped_is_never_fetched(reference: str) -> None:
    with pytest.raises(SchemaUnusable, match="not present"):
        Validator({"$ref": reference}, {})
    with pytest.raises(SchemaUnusable):
        Validator({"type": "object", "properties": {"a": {"type": 5}}}, {})


@pytest.mark.parametrize("number", [2**64, -(10**300), 1.5e300])
def test_a_number_of_any_size_is_judged_not_feared(number: float) -> None:
    payload = {"turn_id": "t", "outcome": "completed", "step_count": number}
    assert validator("hooks/turn-end").is_valid(payload) is (number > 0)
