"""A runner's report: exactly the seed's seven fields, and `error` where it failed (contract 0 and 5.2).

Pure. What is in them is a claim and judged later; here it only has to have its form. Usage has to have the form and the
invariants of contract 4, although nothing is counted by it: a runner that cannot add up is told so.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, cast

from turnkeeper.acs import JsonObject, JsonValue
from turnkeeper.api.bodies import JsonBody
from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.protocol import Report

SEVEN: Final = ("status", "stop_reason", "output", "result", "result_error", "usage", "duration_ms")
STOP_REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "completed": ("end_turn", "budget_reached"),
    "failed": ("agent_error", "model_error"),
    "canceled": ("canceled",),
}
RESULT_ERRORS: Final = (None, "not_submitted", "invalid")
MAX_ERROR_CHARACTERS: Final = 2_000
MAX_COUNT: Final = 2**53 - 1

_ERROR: Final = ("type", "code", "message", "retryable")
_TOKENS: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "model_calls",
)
_TOTALS: Final = (*_TOKENS, "total_tokens", "tool_calls", "sandbox_ms")
_USAGE: Final = (*_TOTALS, "cost", "by_model", "estimated")
_ENTRY: Final = ("model", *_TOKENS, "cost")


class ReportInvalid(TurnkeeperError):
    """The report does not have its form; the runner may report again while its lease lives."""

    code = "report_invalid"


def parse_report(body: JsonBody) -> Report:
    """The report in a body that has a `fence` beside it. Raises `ReportInvalid`.

    One that acknowledges a cancel is a report that failed, without an error: what counts of it is its text.
    """
    members = {name: value for name, value in body.members.items() if name != "fence"}
    status = _choice(members, "status", tuple(STOP_REASONS))
    _close(members, (*SEVEN, "error") if status == "failed" else SEVEN, "the report")
    stop_reason = _choice(members, "stop_reason", STOP_REASONS[status])
    output = _object(members["output"], ("text",), "output")
    _require(isinstance(output["text"], str), "output.text is not a text")
    result_error = members["result_error"]
    _require(result_error in RESULT_ERRORS, "result_error is not null, not_submitted or invalid")
    usage = check_usage(members["usage"])
    error = _error(members["error"]) if status == "failed" else None
    return Report(
        status="completed" if status == "completed" else "failed",
        stop_reason=cast('Literal["end_turn"]', stop_reason if status != "canceled" else "agent_error"),
        text=cast("str", output["text"]),
        result=body.slices["result"],
        result_error=cast('Literal["not_submitted", "invalid"] | None', result_error),
        usage=cast("dict[str, object]", usage),
        duration_ms=_count(members, "duration_ms", "the report"),
        error=error,
    )


def is_acknowledgement(body: JsonBody) -> bool:
    """Whether the report says that the turn was canceled."""
    return body.members.get("status") == "canceled"


def check_usage(value: JsonValue) -> JsonObject:
    """The twelve keys of `usage.json`, with figures that do not contradict each other. Raises `ReportInvalid`."""
    usage = _object(value, _USAGE, "usage")
    for name in _TOTALS:
        _count(usage, name, "usage")
    _require(isinstance(usage["estimated"], bool), "usage.estimated is not a boolean")
    _check_cost(usage["cost"], "usage.cost")
    entries = usage["by_model"]
    _require(isinstance(entries, list), "usage.by_model is not a list")
    models = [_entry(entry) for entry in cast("Sequence[JsonValue]", entries)]
    _check_sums(usage, models)
    return usage


def _entry(value: JsonValue) -> JsonObject:
    entry = _object(value, _ENTRY, "usage.by_model")
    _require(isinstance(entry["model"], str) and bool(entry["model"]), "usage.by_model.model is not a name")
    for name in _TOKENS:
        _count(entry, name, "usage.by_model")
    _check_cost(entry["cost"], "usage.by_model.cost")
    _check_parts(entry, "usage.by_model")
    return entry


def _check_sums(usage: JsonObject, entries: Sequence[JsonObject]) -> None:
    for name in _TOKENS:
        total = sum(cast("int", entry[name]) for entry in entries)
        _require(usage[name] == total, f"usage.{name} is not the sum over by_model")
    names = [cast("str", entry["model"]) for entry in entries]
    _require(names == sorted(set(names)), "usage.by_model is not one entry per model, sorted")
    total = cast("int", usage["input_tokens"]) + cast("int", usage["output_tokens"])
    _require(usage["total_tokens"] == total, "usage.total_tokens is not input and output together")
    _check_parts(usage, "usage")


def _check_parts(figures: JsonObject, where: str) -> None:
    figure = cast("Mapping[str, int]", figures)
    cached = figure["cached_input_tokens"] + figure["cache_write_tokens"]
    _require(cached <= figure["input_tokens"], f"{where} has more cached tokens than input tokens")
    _require(figure["reasoning_tokens"] <= figure["output_tokens"], f"{where} has more reasoning than output tokens")


def _check_cost(value: JsonValue, where: str) -> None:
    if value is None:
        return
    cost = _object(value, ("amount", "currency"), where)
    _require(all(isinstance(member, str) for member in cost.values()), f"{where} is not an amount and a currency")


def _error(value: JsonValue) -> str:
    error = _object(value, _ERROR, "error")
    texts = all(isinstance(error[name], str) for name in ("type", "code", "message"))
    _require(texts and isinstance(error["retryable"], bool), "error is not type, code, message and retryable")
    return f"{error['code']}: {error['message']}"[:MAX_ERROR_CHARACTERS]


def _choice(members: Mapping[str, JsonValue], name: str, known: Sequence[str]) -> str:
    value = members.get(name)
    _require(isinstance(value, str) and value in known, f"{name} is not one of {', '.join(known)}")
    return cast("str", value)


def _count(members: Mapping[str, JsonValue], name: str, where: str) -> int:
    value = members[name]
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    _require(fits, f"{name} of {where} is not a count")
    return cast("int", value)


def _object(value: JsonValue, names: Sequence[str], where: str) -> JsonObject:
    _require(isinstance(value, dict), f"{where} is not an object")
    _close(cast("JsonObject", value), names, where)
    return cast("JsonObject", value)


def _close(members: Mapping[str, JsonValue], names: Sequence[str], where: str) -> None:
    missing = [name for name in names if name not in members]
    _require(not missing, f"{where} lacks {', '.join(missing)}")
    extra = sorted(set(members) - set(names))
    _require(not extra, f"{where} has no {extra[0][:40]!r}" if extra else "")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ReportInvalid(what)
