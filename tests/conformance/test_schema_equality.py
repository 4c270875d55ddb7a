"""Our schema files constrain exactly what the standard's do, but for what is listed here with its reason."""

import hashlib
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from turnkeeper.acs import schema_paths, schema_text
from turnkeeper.events import founding

_SHARED = Path(__file__).parents[2].parent / "shared"
_STANDARD = _SHARED / "acs" / "v0.1.0"
_ANNOTATIONS = frozenset({"$id", "$comment", "title", "description", "examples"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})

_FOUNDING_SHA256 = {
    "hooks/turn-end.json": "2a7ece1c6696a0a2045db0a0aea42a9b9c5b9d1febfb813e8afdf8e4cfd9565e",
    "turn.completed.json": "dbcdf110da9d22a7ed25bb14ab57f3e81dfa19470094442f2ee5c881dcc12acd",
}
_ADDED: dict[str, dict[str, Any]] = {
    # Errors after authentication are signed (ledger 24, row 22d): without a schema a malformed signature would pass.
    "response-envelope.json#/$defs/JsonRpcError/properties/signature": {
        "$ref": "request-envelope.json#/$defs/Signature"
    },
}
_NOT_SHIPPED = {
    "acs_schema.json": "lists the other files and constrains nothing",
    "inspect/format-mapping.json": "a table for renderers of the AgBOM",
    "trace/otel-mapping.json": "a table for trace exporters",
    "trace/ocsf-mapping.json": "a table for trace exporters",
}

needs_standard = pytest.mark.skipif(not _STANDARD.is_dir(), reason="the standard's own files are not beside us")


def _constraints(node: Any, *, in_map: bool = False) -> Any:
    if isinstance(node, list):
        return [_constraints(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    return {
        name: _constraints(value, in_map=not in_map and name in _MAPS_OF_SCHEMAS)
        for name, value in cast("dict[str, Any]", node).items()
        if in_map or name not in _ANNOTATIONS
    }


def _with_additions(path: str, document: dict[str, Any]) -> dict[str, Any]:
    for place, addition in _ADDED.items():
        file, _, pointer = place.partition("#/")
        if file == path:
            *parents, last = pointer.split("/")
            node = document
            for name in parents:
                node = node[name]
            assert last not in node, "the standard has it now"
            node[last] = addition
    return document


@needs_standard
@pytest.mark.parametrize("path", schema_paths())
def test_a_schema_has_the_constraints_of_the_standard(path: str) -> None:
    standard = orjson.loads((_STANDARD / path).read_bytes())
    assert _constraints(orjson.loads(schema_text(path))) == _with_additions(path, _constraints(standard))


@needs_standard
def test_every_schema_of_the_standard_is_shipped_or_left_out_for_a_reason() -> None:
    standard = {str(file.relative_to(_STANDARD)) for file in _STANDARD.rglob("*.json")}
    assert standard == set(schema_paths()) | set(_NOT_SHIPPED)


@needs_standard
def test_descriptions_are_our_own() -> None:
    for path in set(schema_paths()) - set(_FOUNDING_SHA256):
        theirs = {text for text in _descriptions(orjson.loads((_STANDARD / path).read_bytes())) if " " in text}
        assert not theirs & set(_descriptions(orjson.loads(schema_text(path)))), path


def _descriptions(node: Any) -> list[str]:
    if isinstance(node, list):
        return [text for item in cast("list[Any]", node) for text in _descriptions(item)]
    if not isinstance(node, dict):
        return []
    members = cast("dict[str, Any]", node)
    own = members.get("description")
    below = [text for value in members.values() for text in _descriptions(value)]
    return [own, *below] if isinstance(own, str) else below


@needs_standard
def test_the_founding_schemas_are_byte_copies() -> None:
    assert schema_text("hooks/turn-end.json") == (_STANDARD / "hooks" / "turn-end.json").read_bytes()
    original = (_SHARED / "contract" / "turn.completed.json").read_bytes()
    assert founding.schema_text("turn.completed.json") == original


def test_the_founding_schemas_have_the_digests_of_the_originals() -> None:
    shipped = {
        "hooks/turn-end.json": schema_text("hooks/turn-end.json"),
        "turn.completed.json": founding.schema_text("turn.completed.json"),
    }
    assert {path: hashlib.sha256(text).hexdigest() for path, text in shipped.items()} == _FOUNDING_SHA256
