"""Output schemas are hostile input: rules, limits and what a checking process answers."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.schema_check import (
    ProcessSchemaChecker,
    SchemaCheckBusy,
    SchemaError,
    SchemaLimits,
)
from turnkeeper.turns.schema_process import MAX_ERRORS, MAX_MESSAGE_CHARACTERS
from turnkeeper.turns.schema_rules import MAX_SCHEMA_BYTES, OutputSchemaInvalid, check_schema_rules

T = TypeVar("T")
INVOICE = '{"type":"object","properties":{"total":{"type":"integer"}},"required":["total"]}'


def fan_out(levels: int) -> str:
    """Each level refers twice to the next, so that evaluation takes 2 to the power of `levels` steps."""
    definitions: dict[str, object] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return json.dumps({"$defs": {**definitions, f"d{levels}": {}}, "$ref": "#/$defs/d0"}, separators=(",", ":"))


ATTACK = fan_out(31)


def with_checker(work: Callable[[ProcessSchemaChecker], Awaitable[T]], limits: SchemaLimits | None = None) -> T:
    async def main() -> T:
        checker = ProcessSchemaChecker(limits)
        try:
            return await work(checker)
        finally:
            await checker.close()

    return asyncio.run(main())


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.005)


def pointer_of_refusal(schema: str) -> object:
    with pytest.raises(OutputSchemaInvalid) as refused:
        with_checker(lambda checker: checker.compile(schema))
    return refused.value.detail["pointer"]


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ('{"$schema":"http://json-schema.org/draft-07/schema#"}', "/$schema"),
        ('{"properties":{"a":{"$schema":"https://example.com/mine"}}}', "/properties/a/$schema"),
        ('{"$ref":"https://example.com/other.json"}', "/$ref"),
        ('{"items":{"$ref":"file:///etc/passwd"}}', "/items/$ref"),
        ('{"allOf":[{},{"$ref":"other.json#/a"}]}', "/allOf/1/$ref"),
        ('{"$dynamicRef":"https://example.com/#node"}', "/$dynamicRef"),
        ('{"$defs":{"a/b":{"$ref":7}}}', "/$defs/a~1b/$ref"),
        ('{"$vocabulary":{}}', "/$vocabulary"),
        ("[]", ""),
        ("17", ""),
    ],
)
def test_a_schema_that_breaks_a_rule_is_refused_with_its_place(schema: str, pointer: str) -> None:
    with pytest.raises(OutputSchemaInvalid) as refused:
        check_schema_rules(schema)
    assert refused.value.detail["pointer"] == pointer


def test_a_reference_in_data_refers_to_nothing() -> None:
    check_schema_rules('{"const":{"$ref":"https://example.com"},"enum":[{"$schema":"x"}],"properties":{"$ref":{}}}')


def test_a_schema_over_the_size_limit_is_refused() -> None:
    with pytest.raises(OutputSchemaInvalid, match=str(MAX_SCHEMA_BYTES)):
        check_schema_rules(json.dumps({"description": "x" * MAX_SCHEMA_BYTES}))


def test_a_schema_deeper_than_the_limit_is_refused() -> None:
    with pytest.raises(OutputSchemaInvalid, match="deeper"):
        check_schema_rules('{"not":' * 33 + "{}" + "}" * 33)


@given(
    st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=8)
)
def test_whatever_is_sent_the_rules_answer_or_refuse(document: object) -> None:
    with suppress(OutputSchemaInvalid):
        check_schema_rules(json.dumps(document))


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ('{"properties":{"a":{"type":"banana"}}}', "/properties/a/type"),
        ('{"properties":{"a":{"pattern":"(?=a)b"}}}', "/properties/a/pattern"),
        ('{"pattern":"(["}', "/pattern"),
        ('{"$ref":"#/$defs/missing"}', ""),
    ],
)
def test_a_schema_that_does_not_compile_is_refused_with_its_place(schema: str, pointer: str) -> None:
    assert pointer_of_refusal(schema) == pointer


def test_two_kilobytes_that_would_hold_a_process_for_long_are_refused() -> None:
    assert len(ATTACK) < 2_048
    with pytest.raises(OutputSchemaInvalid, match="too much time or memory"):
        with_checker(lambda checker: checker.compile(ATTACK))


def test_after_an_attack_the_next_schema_is_checked_by_a_fresh_process() -> None:
    async def work(checker: ProcessSchemaChecker) -> tuple[SchemaError, ...]:
        with pytest.raises(OutputSchemaInvalid):
            await checker.compile(ATTACK)
        await checker.compile(INVOICE)
        return await checker.check(INVOICE, '{"total":3}')

    assert with_checker(work, SchemaLimits(processes=1, cpu_ms=100)) == ()


def test_a_value_that_cannot_be_checked_in_time_is_not_valid() -> None:
    limits = SchemaLimits(cpu_ms=100, deadline_ms=600_000)
    errors = with_checker(lambda checker: checker.check(ATTACK, '"x"'), limits)
    assert [error.keyword for error in errors] == ["deadline"]


def test_the_wall_clock_stops_what_the_processor_limit_does_not() -> None:
    limits = SchemaLimits(cpu_ms=60_000, deadline_ms=200)
    errors = with_checker(lambda checker: checker.check(ATTACK, '"x"'), limits)
    assert [error.keyword for error in errors] == ["deadline"]


def test_a_value_too_large_for_the_process_is_not_valid() -> None:
    large = json.dumps([[number] * 20 for number in range(100_000)])

    async def work(checker: ProcessSchemaChecker) -> list[str]:
        return [(await checker.check('{"type":"string"}', value))[0].keyword for value in ("7", large)]

    limits = SchemaLimits(cpu_ms=60_000, deadline_ms=60_000, memory_bytes=96 << 20)
    assert with_checker(work, limits) == ["type", "deadline"]


def test_errors_name_both_places_the_keyword_and_a_sentence() -> None:
    [error] = with_checker(lambda checker: checker.check(INVOICE, '{"total":"three"}'))
    assert (error.instance_path, error.schema_path, error.keyword) == ("/total", "/properties/total/type", "type")
    assert "integer" in error.message


def test_the_number_and_the_length_of_errors_are_bounded() -> None:
    schema = '{"items":{"type":"integer"}}'
    errors = with_checker(lambda checker: checker.check(schema, json.dumps(["x" * 10_000] * 500)))
    assert len(errors) == MAX_ERRORS
    assert all(len(error.message) <= MAX_MESSAGE_CHARACTERS for error in errors)


def test_integers_of_any_length_and_whole_floats_are_integers() -> None:
    async def work(checker: ProcessSchemaChecker) -> list[tuple[SchemaError, ...]]:
        return [
            await checker.check('{"type":"integer"}', value) for value in ("1" + "0" * 300, "3.0", "9007199254740993")
        ]

    assert with_checker(work) == [(), (), ()]


def test_format_is_an_annotation() -> None:
    assert with_checker(lambda checker: checker.check('{"format":"date"}', '"no date"')) == ()


def test_a_full_queue_before_the_processes_is_refused() -> None:
    async def work(checker: ProcessSchemaChecker) -> list[object]:
        schemas = [fan_out(30 + number) for number in range(4)]
        return list(await asyncio.gather(*(checker.compile(schema) for schema in schemas), return_exceptions=True))

    outcomes = with_checker(work, SchemaLimits(processes=1, waiting=1, cpu_ms=100))
    assert any(isinstance(outcome, SchemaCheckBusy) for outcome in outcomes)


def test_a_process_that_was_killed_while_idle_costs_nobody_an_answer() -> None:
    async def work(checker: ProcessSchemaChecker) -> tuple[SchemaError, ...]:
        await checker.compile(INVOICE)
        os.kill(checker.pids[0], signal.SIGKILL)
        await until(lambda: not checker.pids)
        return await checker.check(INVOICE, '{"total":1}')

    assert with_checker(work) == ()


def test_a_canceled_check_leaves_no_process_behind() -> None:
    async def work(checker: ProcessSchemaChecker) -> tuple[int, ...]:
        checking = asyncio.create_task(checker.check(ATTACK, '"x"'))
        await until(lambda: bool(checker.pids))
        checking.cancel()
        await asyncio.gather(checking, return_exceptions=True)
        return checker.pids

    assert with_checker(work, SchemaLimits(cpu_ms=60_000, deadline_ms=60_000)) == ()


def test_one_process_serves_many_checks() -> None:
    async def work(checker: ProcessSchemaChecker) -> set[int]:
        used: set[int] = set()
        for number in range(5):
            await checker.check(INVOICE, f'{{"total":{number}}}')
            used.update(checker.pids)
        return used

    assert len(with_checker(work)) == 1
