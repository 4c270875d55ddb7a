"""What an output schema may be before anything compiles it (contract 5.3, amendment 13).

Answers for size, depth, dialect and references of a schema that an app sent, by one bounded walk over its keywords.
Must never follow a reference. That the schema compiles, and in which time it evaluates, is `schema_check`'s. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from turnkeeper.acs.strictjson import JsonLimits, JsonRejected, parse_strict
from turnkeeper.errors import TurnkeeperError

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_BYTES: Final = 65_536
MAX_SCHEMA_DEPTH: Final = 32

_REFERENCES = frozenset({"$ref", "$dynamicRef"})
_IN_ONE = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_IN_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_IN_MAP = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


class OutputSchemaInvalid(TurnkeeperError):
    """The output schema cannot be used; `detail["pointer"]` is the place in the schema."""

    code = "output_schema_invalid"


@dataclass(frozen=True, slots=True)
class _Place:
    pointer: str
    schema: Mapping[str, object]


def check_schema_rules(schema_json: str, *, max_bytes: int = MAX_SCHEMA_BYTES) -> None:
    """Size, depth, draft 2020-12 and local references only. Raises `OutputSchemaInvalid`."""
    size = len(schema_json.encode())
    if size > max_bytes:
        raise _invalid(f"the schema has {size} bytes, more than the limit of {max_bytes}", "")
    schema = _parsed(schema_json)
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _invalid("a schema is an object or a boolean", "")
    for place in _subschemas(_Place("", cast("dict[str, object]", schema))):
        _check_dialect(place)
        _check_references(place)


def _parsed(schema_json: str) -> object:
    try:
        return parse_strict(schema_json.encode(), JsonLimits(max_depth=MAX_SCHEMA_DEPTH))
    except JsonRejected as rejected:
        raise _invalid(rejected.message, "") from rejected


def _subschemas(root: _Place) -> Iterator[_Place]:
    # Data under `const`, `enum`, `default` and `examples` is no schema: a "$ref" in it refers to nothing.
    waiting = [root]
    while waiting:
        place = waiting.pop()
        yield place
        for keyword, value in place.schema.items():
            at = f"{place.pointer}/{_escaped(keyword)}"
            waiting.extend(_schemas_under(keyword, value, at))


def _schemas_under(keyword: str, value: object, at: str) -> Iterator[_Place]:
    if keyword in _IN_ONE and isinstance(value, dict):
        yield _Place(at, cast("dict[str, object]", value))
    elif keyword in _IN_LIST and isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            if isinstance(item, dict):
                yield _Place(f"{at}/{index}", cast("dict[str, object]", item))
    elif keyword in _IN_MAP and isinstance(value, dict):
        for name, item in cast("dict[str, object]", value).items():
            if isinstance(item, dict):
                yield _Place(f"{at}/{_escaped(name)}", cast("dict[str, object]", item))


def _check_dialect(place: _Place) -> None:
    if "$vocabulary" in place.schema:
        raise _invalid("a schema of its own vocabulary is not accepted", f"{place.pointer}/$vocabulary")
    dialect = place.schema.get("$schema", DRAFT)
    if dialect not in {DRAFT, f"{DRAFT}#"}:
        raise _invalid(f"only the dialect {DRAFT} is accepted", f"{place.pointer}/$schema")


def _check_references(place: _Place) -> None:
    for keyword in _REFERENCES & place.schema.keys():
        target = place.schema[keyword]
        if not isinstance(target, str) or not target.startswith("#"):
            raise _invalid(f"{keyword} may only point into the schema itself", f"{place.pointer}/{keyword}")


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _invalid(message: str, pointer: str) -> OutputSchemaInvalid:
    return OutputSchemaInvalid(
        message,
        detail={"pointer": pointer},
        hint="Send a JSON Schema of draft 2020-12 that refers to nothing outside itself.",
    )
