"""The two founding documents: `turn.completed` of the turn API and `turnEnd` of ACS (contract sections 0, 4, 5, 16.1).

Answers for saying what is wrong with either, from any producer, and for the one mapping between them. The schemas are
the founders' own files, byte for byte; rules that a schema cannot state are findings of another kind. Must never fetch
a schema. Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias, cast

import orjson

from turnkeeper.acs.schemas import SchemaViolation, Validator, validator
from turnkeeper.acs.strictjson import is_object
from turnkeeper.errors import TurnkeeperError

FoundingKind: TypeAlias = Literal["turn.completed", "turnEnd"]

TURN_COMPLETED: Final = "turn.completed"
TURN_END: Final = "turnEnd"
USAGE_URI: Final = "https://api.forgeling.io/schemas/defs/usage.json"

_TURN_END_METHOD = "steps/turnEnd"
_PLATFORM = "platform"
_SUMMED = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "model_calls",
)
_TOKENS = ("input_tokens", "output_tokens")
_COUNTED = (*_SUMMED, "total_tokens", "tool_calls", "sandbox_ms")

_NEVER_STARTED = frozenset({"queue_expired", "denied_before_start"})
_NOT_PERMITTED = "disposition_not_permitted"


class FindingKind(StrEnum):
    """Whether the founders' schema was broken, or a rule that no schema can state."""

    SCHEMA = "schema"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a document. `pointer` is a JSON Pointer from the root of what was given."""

    kind: FindingKind
    code: str
    pointer: str
    message: str


class FoundingInvalid(TurnkeeperError):
    """The document is not what it should be; `findings` says where."""

    code = "document_invalid"

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        first = findings[0]
        super().__init__(
            f"{first.pointer or 'the root'}: {first.message}", detail={"pointer": first.pointer, "rule": first.code}
        )
        self.findings = findings


class FoundingUnrecognized(TurnkeeperError):
    """The document is neither a `turn.completed` nor a `turnEnd`, bare or in its envelope."""

    code = "document_unrecognized"


class NoTurnEnd(TurnkeeperError):
    """No turnEnd follows this ending: its turnStart was never sent."""

    code = "no_turn_end"


@dataclass(frozen=True, slots=True)
class _Located:
    """A founding document, where it lies in what was given, and what its envelope says about it."""

    kind: FoundingKind
    data: object
    pointer: str
    source: str | None = None
    envelope_turn_id: object = None


def validate_turn_completed(document: object) -> None:
    """Returns for a legal `turn.completed`, given as data or as its whole event. Raises `FoundingInvalid`."""
    _require(_in_event(document) or _Located(TURN_COMPLETED, document, ""))


def validate_turn_end(document: object) -> None:
    """Returns for a legal `turnEnd`, given as payload or as its whole ACS request. Raises `FoundingInvalid`."""
    _require(_in_request(document) or _Located(TURN_END, document, ""))


def identify(document: object) -> FoundingKind:
    """Which of the two a document is, by its envelope or its members. Raises `FoundingUnrecognized`."""
    return _locate(document).kind


def check_founding(document: object) -> list[Finding]:
    """Everything that is wrong with a founding document; empty for a legal one. Raises `FoundingUnrecognized`.

    Rules are looked at only where the schema holds. What depends on the turn's request (whether it had an
    `output_schema`) cannot be seen here.
    """
    return list(_findings(_locate(document)))


def turn_end_from(
    document: object,
    *,
    step_count: int | None = None,
    tool_call_count: int | None = None,
    turn_started: bool = True,
) -> dict[str, object]:
    """The turnEnd payload that follows a turn's ending: a `turn.completed`, or a `turn.failed` or `turn.canceled`.

    Counts that are not known exactly are left out. `turn_started` is False where no turnStart was sent, which the
    ending itself does not tell for a canceled turn. Raises `NoTurnEnd`, `FoundingInvalid`.
    """
    data = _ending(document)
    outcome = _outcome(data)
    if outcome is None or not turn_started:
        raise NoTurnEnd(f"no turnStart was sent for this turn, so its ending ({data['stop_reason']}) has no turnEnd")
    payload: dict[str, object] = {"turn_id": data["turn_id"], "outcome": outcome}
    if step_count is not None:
        payload["step_count"] = step_count
    if tool_call_count is not None:
        payload["tool_call_count"] = tool_call_count
    return payload


def _outcome(data: Mapping[str, object]) -> str | None:
    status, stop_reason = data["status"], data["stop_reason"]
    if status == "completed":
        return "completed"
    if status == "canceled":
        return "interrupted"
    if stop_reason in _NEVER_STARTED:
        return None
    if stop_reason == "denied_at_start" and _error_code(data) != _NOT_PERMITTED:
        return "denied_at_start"
    return "error"


def _error_code(data: Mapping[str, object]) -> object:
    error = data.get("error")
    return error.get("code") if is_object(error) else None


def _ending(document: object) -> dict[str, object]:
    located = _in_any_event(document) or _Located(TURN_COMPLETED, document, "")
    if not is_object(located.data):
        raise FoundingInvalid((_wrong(located, "", "an ending is an object"),))
    data = located.data
    if data.get("status") == "completed":
        _require(located)
    for name in ("turn_id", "status", "stop_reason"):
        if not isinstance(data.get(name), str):
            raise FoundingInvalid((_wrong(located, f"/{name}", "an ending has text here"),))
    if data["status"] not in ("completed", "failed", "canceled"):
        raise FoundingInvalid((_wrong(located, "/status", "no ending has this status"),))
    return data


def _wrong(located: _Located, pointer: str, message: str) -> Finding:
    return Finding(FindingKind.SCHEMA, "not_an_ending", located.pointer + pointer, message)


def _require(located: _Located) -> None:
    findings = tuple(_findings(located))
    if findings:
        raise FoundingInvalid(findings)


def _locate(document: object) -> _Located:
    wrapped = _in_event(document) or _in_request(document)
    if wrapped is not None:
        return wrapped
    if is_object(document):
        if "outcome" in document:
            return _Located(TURN_END, document, "")
        if {"status", "stop_reason", "usage", "result"} & document.keys():
            return _Located(TURN_COMPLETED, document, "")
    raise FoundingUnrecognized(
        "the document is neither a turn.completed nor a turnEnd",
        hint="Give its data, its whole event, its payload or its whole ACS request.",
    )


def _in_event(document: object) -> _Located | None:
    found = _in_any_event(document)
    return found if is_object(document) and document.get("type") == TURN_COMPLETED else None


def _in_any_event(document: object) -> _Located | None:
    if not is_object(document) or not {"type", "data"} <= document.keys():
        return None
    source = document.get("source")
    return _Located(
        TURN_COMPLETED,
        document["data"],
        "/data",
        source=source if isinstance(source, str) else None,
        envelope_turn_id=document.get("turn_id"),
    )


def _in_request(document: object) -> _Located | None:
    if not is_object(document) or document.get("method") != _TURN_END_METHOD:
        return None
    params = document.get("params")
    if not is_object(params):
        return None
    metadata = params.get("metadata")
    turn_id = metadata.get("turn_id") if is_object(metadata) else None
    return _Located(TURN_END, params.get("payload"), "/params/payload", envelope_turn_id=turn_id)


def _findings(located: _Located) -> Iterator[Finding]:
    broken = list(_schema_findings(located))
    yield from broken
    if broken:
        return
    data = cast("dict[str, object]", located.data)
    for pointer, code, message in _rule_findings(located, data):
        yield Finding(FindingKind.RULE, code, located.pointer + pointer, message)


def _schema_findings(located: _Located) -> Iterator[Finding]:
    schema = _turn_completed_validator() if located.kind == TURN_COMPLETED else validator("hooks/turn-end")
    try:
        schema.check(located.data)
    except SchemaViolation as error:
        for violation in error.violations:
            yield Finding(
                FindingKind.SCHEMA, violation.keyword, located.pointer + violation.instance_path, violation.message
            )


_Broken: TypeAlias = Iterator[tuple[str, str, str]]
_Rule: TypeAlias = Callable[[Mapping[str, object]], _Broken]


def _rule_findings(located: _Located, data: Mapping[str, object]) -> _Broken:
    if located.envelope_turn_id is not None and located.envelope_turn_id != data["turn_id"]:
        yield "/turn_id", "turn_id_mismatch", "turn_id differs from the one in the envelope"
    if located.kind == TURN_COMPLETED:
        yield from _result_rules(data)
        usage = cast("dict[str, object]", data["usage"])
        for rule in _USAGE_RULES:
            for pointer, code, message in rule(usage):
                yield f"/usage{pointer}", code, message
        if located.source == _PLATFORM:
            yield from _platform_rules(data, usage)


def _result_rules(data: Mapping[str, object]) -> _Broken:
    if data["result"] is not None and data["result_error"] is not None:
        yield "/result_error", "result_contradicts_error", "there is a result, so result_error must be null"


def _platform_rules(data: Mapping[str, object], usage: Mapping[str, object]) -> _Broken:
    """C9 and C10: the platform ends a turn with an answer only where no budget was left at the front of the queue."""
    output = cast("dict[str, object]", data["output"])
    expected = (
        ("/stop_reason", data["stop_reason"] == "budget_reached"),
        ("/output/text", output["text"] == ""),
        ("/result", data["result"] is None),
        ("/result_error", data["result_error"] in (None, "not_submitted")),
        ("/usage", not any(usage[name] for name in _COUNTED)),
        ("/duration_ms", data["duration_ms"] == 0),
    )
    for pointer, holds in expected:
        if not holds:
            yield pointer, "platform_ending", "a turn that the platform completes never ran"


def _parts_fit(usage: Mapping[str, object]) -> _Broken:
    if _count(usage, "cached_input_tokens") + _count(usage, "cache_write_tokens") > _count(usage, "input_tokens"):
        yield "/input_tokens", "parts_exceed_whole", "cached and cache-writing tokens are more than input_tokens"
    if _count(usage, "reasoning_tokens") > _count(usage, "output_tokens"):
        yield "/reasoning_tokens", "parts_exceed_whole", "reasoning_tokens are more than output_tokens"


def _total_adds_up(usage: Mapping[str, object]) -> _Broken:
    if _count(usage, "total_tokens") != sum(_count(usage, name) for name in _TOKENS):
        yield "/total_tokens", "total_differs", "total_tokens is not input_tokens + output_tokens"


def _models_add_up(usage: Mapping[str, object]) -> _Broken:
    models = _by_model(usage)
    for name in _SUMMED:
        if _count(usage, name) != sum(_count(entry, name) for entry in models):
            yield f"/{name}", "sum_differs", f"{name} is not the sum over by_model"


def _models_sorted(usage: Mapping[str, object]) -> _Broken:
    names = [cast("str", entry["model"]) for entry in _by_model(usage)]
    if names != sorted(set(names)):
        yield "/by_model", "not_sorted", "by_model is not sorted by model, or names one twice"


def _costs_add_up(usage: Mapping[str, object]) -> _Broken:
    models, total = _by_model(usage), _cost(usage)
    if total is None:
        return
    if any(_cost(entry) is None and any(_count(entry, name) for name in _TOKENS) for entry in models):
        yield "/cost", "cost_not_known", "cost must be null, since the price of one model is not known"
        return
    costs = [cost for entry in models if (cost := _cost(entry)) is not None]
    if any(currency != total[1] for _, currency in costs):
        yield "/cost/currency", "currency_differs", "the costs are in different currencies"
    elif sum(amount for amount, _ in costs) != total[0]:
        yield "/cost/amount", "sum_differs", "cost is not the sum over by_model"


_USAGE_RULES: Final[tuple[_Rule, ...]] = (_parts_fit, _total_adds_up, _models_add_up, _models_sorted, _costs_add_up)


def _count(members: Mapping[str, object], name: str) -> int:
    # 3.0 is an integer to the schema.
    return int(cast("float", members[name]))


def _by_model(usage: Mapping[str, object]) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", usage["by_model"])


def _cost(members: Mapping[str, object]) -> tuple[Decimal, str] | None:
    cost = members["cost"]
    if not is_object(cost):
        return None
    return Decimal(cast("str", cost["amount"])), cast("str", cost["currency"])


def schema_text(name: Literal["turn.completed.json", "usage.json"]) -> bytes:
    """A schema of this package as shipped, byte for byte, for serving."""
    return (files("turnkeeper.events") / "schemas" / name).read_bytes()


@cache
def _turn_completed_validator() -> Validator:
    usage = orjson.loads(schema_text("usage.json"))
    # The founders' own usage.json is not public; ours answers to its address as well.
    return Validator(orjson.loads(schema_text("turn.completed.json")), {USAGE_URI: usage, usage["$id"]: usage})
