"""What a harness's last report is worth (contract 5.2, amendments 6, 9 and 10).

Pure. Text is the harness's; the result is what was submitted, counted by us; usage is only compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.sandbox.protocol import Report
from turnkeeper.turns.applied import result_of, text_of
from turnkeeper.turns.model import ResultError, Turn, Usage
from turnkeeper.turns.results import SubmissionTally, normalize_report
from turnkeeper.turns.tool_runs import cut_text
from turnkeeper.turns.usage import totals, usage_document


@dataclass(frozen=True, slots=True)
class Answer:
    """What a report says, as the platform reads it. `news` says what was not taken as it came."""

    text: str
    result_json: str | None
    result_error: ResultError | None
    news: tuple[NewEvent, ...]


def read_report(report: Report, turn: Turn, tally: SubmissionTally, *, budget_reached: bool, text_bytes: int) -> Answer:
    """The answer a completed report stands for."""
    text, cut = cut_text(report.text, text_bytes)
    normal = normalize_report(
        report.result, report.result_error, has_schema=turn.output_schema_json is not None, tally=tally
    )
    news: list[NewEvent] = []
    if normal.changed:
        news.append(_normalized(turn, normal.changed, normal.reason or "contradiction"))
    if cut:
        news.append(_text_cut(turn, text_bytes))
    if budget_reached != (report.stop_reason == "budget_reached"):
        news.append(_normalized(turn, ("stop_reason",), "whether a budget was reached is the ledger's to say"))
    return Answer(text, normal.result_json, normal.result_error, tuple(news))


def changed_answer(answer: Answer, changed: Mapping[str, object] | None, turn: Turn, *, text_bytes: int) -> Answer:
    """The answer as the Guardian let it through (contract 5.2); its result is still to be validated.

    Where one text took the place of text and result, there is no result any more that could be valid.
    """
    if changed is None:
        return answer
    text, cut = cut_text(text_of(changed), text_bytes)
    news = (_text_cut(turn, text_bytes),) if cut else ()
    if answer.result_json is None:
        return replace(answer, text=text, news=(*answer.news, *news))
    result_json = result_of(changed)
    error: ResultError | None = "invalid" if result_json is None else None
    return Answer(text, result_json, error, (*answer.news, *news))


def stopped_report(text: str, turn: Turn, tally: SubmissionTally) -> Report:
    """The report of an agent that was stopped because its time was spent, and said what it had said so far."""
    return Report(
        status="completed",
        stop_reason="budget_reached",
        text=text,
        result=tally.valid_json,
        result_error=_missing(turn, tally),
        usage={},
        duration_ms=0,
    )


def _missing(turn: Turn, tally: SubmissionTally) -> Literal["not_submitted", "invalid"] | None:
    if turn.output_schema_json is None or tally.valid_json is not None:
        return None
    return "invalid" if tally.count else "not_submitted"


def usage_news(report: Report, turn: Turn, ledger: Usage, *, before: Usage) -> list[NewEvent]:
    """`usage.mismatch` where the harness counted otherwise than the ledger, in figures both have.

    `before` is what the turn had used when this harness began.
    """
    earlier = _counted(before)
    counted = {name: value - earlier[name] for name, value in _counted(ledger).items()}
    reported = {name: value for name, value in report.usage.items() if name in counted and _is_count(value)}
    if not any(counted[name] != value for name, value in reported.items()):
        return []
    return [
        catalogue.usage_mismatch(
            turn_id=turn.id, attempt=turn.attempt, reported=reported, ledger=usage_document(ledger)
        )
    ]


def _text_cut(turn: Turn, text_bytes: int) -> NewEvent:
    return _normalized(turn, ("output.text",), f"the text was cut to {text_bytes} bytes")


def _normalized(turn: Turn, fields: Sequence[str], reason: str) -> NewEvent:
    return catalogue.report_normalized(turn_id=turn.id, attempt=turn.attempt, fields=fields, reason=reason)


def _counted(usage: Usage) -> dict[str, int]:
    sums = totals(usage)
    return asdict(sums) | {"total_tokens": sums.total_tokens}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
