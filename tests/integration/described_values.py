"""Values that a schema of the OpenAPI document describes, as hypothesis strategies.

Makes values by the keywords that it knows; where a schema has others, a validator picks those of them that hold. What
`format` says is kept for times and addresses alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from turnkeeper.acs.schemas import Validator
from turnkeeper.clock import render_time

Json = dict[str, Any]
SILENT: Final = frozenset({"description", "default", "title", "examples"})
KNOWN: Final = SILENT | {
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "propertyNames",
    "required",
    "type",
    "uniqueItems",
}
MAX_TEXT: Final = 40
MAX_ITEMS: Final = 3
MAX_INTEGER: Final = 1 << 40
ID_PATTERN: Final = re.compile(r"\^([a-z]{3})_\[0-9A-HJKMNP-TV-Z\]\{26\}\$")
URLS: Final = ("https://1.1.1.1/hook", "https://hooks.example/a?b=c", "http://10.0.0.1/", "https://[::1]:8443/x")

_SCALARS = st.none() | st.booleans() | st.integers(-9, 1 << 60) | st.floats(allow_nan=False, allow_infinity=False)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=MAX_TEXT)
ANY_JSON: Final[SearchStrategy[Any]] = st.recursive(
    _SCALARS | _TEXTS,
    lambda inner: st.lists(inner, max_size=MAX_ITEMS) | st.dictionaries(_TEXTS, inner, max_size=MAX_ITEMS),
    max_leaves=6,
)


@dataclass(frozen=True)
class Described:
    """Values by the schemas of one document. `ids` are things that exist, by the prefix of their id."""

    document: Json
    ids: Mapping[str, tuple[str, ...]]

    def of(self, schema: Json) -> SearchStrategy[Any]:
        """Values of a schema."""
        if schema.keys() - KNOWN:
            holds = Validator({"components": self.document["components"], **schema}, {}).is_valid
            return self.of({name: said for name, said in schema.items() if name in KNOWN}).filter(holds)
        if "$ref" in schema:
            return self.of(self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        if "const" in schema or "enum" in schema:
            return st.sampled_from(schema.get("enum", [schema.get("const")]))
        if "anyOf" in schema:
            return st.one_of([self.of(choice) for choice in schema["anyOf"]])
        if "type" not in schema:
            return ANY_JSON
        kinds = cast("list[str]", schema["type"] if isinstance(schema["type"], list) else [schema["type"]])
        return st.one_of([self._typed(kind, schema) for kind in kinds])

    def _typed(self, kind: str, schema: Json) -> SearchStrategy[Any]:
        if kind == "object":
            return self._objects(schema)
        if kind == "array":
            least, most = schema.get("minItems", 0), schema.get("maxItems", MAX_ITEMS)
            items = self.of(schema.get("items", {}))
            most = max(least, min(most, MAX_ITEMS))
            return st.lists(items, min_size=least, max_size=most, unique_by=repr if "uniqueItems" in schema else None)
        if kind == "string":
            return self._texts(schema)
        if kind == "integer":
            return st.integers(schema.get("minimum", -MAX_INTEGER), schema.get("maximum", MAX_INTEGER))
        if kind == "number":
            return st.floats(schema.get("minimum", -MAX_INTEGER), schema.get("maximum", MAX_INTEGER))
        return st.booleans() if kind == "boolean" else st.none()

    def _objects(self, schema: Json) -> SearchStrategy[Any]:
        members: Json = schema.get("properties", {})
        must: set[str] = set(schema.get("required", ()))
        named = st.fixed_dictionaries(
            {name: self.of(member) for name, member in members.items() if name in must},
            optional={name: self.of(member) for name, member in members.items() if name not in must},
        )
        others = schema.get("additionalProperties", not members)
        if others is False or (others is True and members):
            return named
        names = self.of({"type": "string", **schema.get("propertyNames", {})})
        free = st.dictionaries(names, self.of({} if others is True else others), max_size=MAX_ITEMS)
        return st.builds(_together, free, named)

    def _texts(self, schema: Json) -> SearchStrategy[str]:
        if schema.get("format") == "date-time":
            moments = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  hypothesis adds the zone
            return moments.map(render_time)
        if schema.get("format") == "uri":
            return st.sampled_from(URLS)
        least, most = schema.get("minLength", 0), min(schema.get("maxLength", MAX_TEXT), MAX_TEXT)
        if "pattern" not in schema:
            return st.text(st.characters(codec="utf-8"), min_size=least, max_size=most)
        if found := ID_PATTERN.fullmatch(schema["pattern"]):
            made = self.ids.get(found[1], ())
            unmade = st.from_regex(re.compile(str(schema["pattern"]).replace("$", r"\Z")))
            return st.sampled_from(made) | unmade if made else unmade
        matches = st.from_regex(
            re.compile(schema["pattern"].replace("$", r"\Z")), alphabet=st.characters(codec="utf-8")
        )
        return matches.filter(lambda text: least <= len(text) <= most)


def _together(free: Json, named: Json) -> Json:
    return {**free, **named}
