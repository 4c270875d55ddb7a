"""The standard's tables: dispositions, entries, error codes, profiles, algorithms."""

from typing import Any

import orjson
import pytest
from tests.vectors.reading import read_vectors

from turnkeeper.acs import METHODS, AcsErrorCode, hook_spec, schema_text

_TABLES = read_vectors("tables")
_EXAMPLES = {"protocols/MCP/*": "protocols/MCP/tools/call", "wrapped:mcp-*/*": "wrapped:mcp-2025-06-18/tools/call"}


@pytest.mark.parametrize(("method", "permitted"), _TABLES["permitted_dispositions"].items())
def test_a_hook_permits_the_dispositions_of_the_table(method: str, permitted: list[str]) -> None:
    spec = hook_spec(_EXAMPLES.get(method, method))
    assert spec is not None
    assert spec.permitted == frozenset(permitted)


def test_no_hook_is_missing_from_the_table() -> None:
    assert set(METHODS) == set(_TABLES["permitted_dispositions"]) - set(_EXAMPLES)


def test_every_hook_but_ping_writes_an_entry() -> None:
    silent = {method for method, spec in METHODS.items() if not spec.writes_entry}
    assert silent == {"system/ping"}
    assert silent < set(_TABLES["writes_context_entry"]["false"])


def test_the_registry_has_exactly_the_codes_of_the_standard() -> None:
    assert {str(code.value): code.name for code in AcsErrorCode} == _TABLES["error_codes"]


def test_the_schemas_know_the_profiles_and_algorithms_of_the_table() -> None:
    hello: Any = orjson.loads(schema_text("handshake.json"))["$defs"]["ServerHello"]["properties"]
    assert hello["profiles_accepted"]["items"]["enum"] == _TABLES["profiles"]
    algorithms = hello["signature_algorithms_supported"]["items"]["enum"]
    assert sorted(algorithms) == sorted(_TABLES["signature_algorithms"])
