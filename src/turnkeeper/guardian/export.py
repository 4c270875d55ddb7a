"""Export (ledger section 12): what a session recorded, as JSON lines that anyone with the key can verify.

Answers for the shape of a line: exactly `request`, `response`, `entry`, `turn_id`, the first two as they were
received and sent, save that white space between tokens is left out so that a line is a line. Erased content is null.
Must never write a document of its own in place of the peer's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import orjson

from turnkeeper.acs import JsonLimits, JsonRejected, member_slices, minify, parse_object
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.ports import ChainReader, ExportRow

LINE_MEMBERS = ("request", "response", "entry", "turn_id")
LINE_LIMITS = JsonLimits(max_bytes=4 * 1024 * 1024, max_depth=68)


class ExportMalformed(TurnkeeperError):
    """A line of an export that is not one: not JSON, or other members than the four."""

    code = "export_malformed"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One recorded request as `verify` reads it, from a file or from the store.

    The digests are of the bytes as received and sent; an export file does not carry them, nor `decision_log`, the
    signed record of a decision whose answer may be erased.
    """

    request: bytes | None
    response: bytes | None
    entry: dict[str, object] | None
    turn_id: str | None
    request_digest: bytes | None = None
    response_digest: bytes | None = None
    recorded: int | None = None
    decision_log: bytes | None = None


def export_lines(reader: ChainReader, session_id: str) -> Iterator[bytes]:
    """A session's lines, each ending in a newline."""
    for row in reader.rows(session_id):
        yield render_line(row)


def render_line(row: ExportRow) -> bytes:
    """One line of an export, newline included."""
    line = {
        "request": _fragment(row.request),
        "response": _fragment(row.response),
        "entry": None if row.entry is None else orjson.Fragment(row.entry),
        "turn_id": row.turn_id,
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def parse_line(line: bytes) -> AuditRow:
    """The row in a line of an export. Raises `ExportMalformed`."""
    try:
        slices = member_slices(line, LINE_LIMITS)
        if tuple(slices) != LINE_MEMBERS:
            raise ExportMalformed(f"a line has other members than {', '.join(LINE_MEMBERS)}")
        turn_id: object = orjson.loads(slices["turn_id"])
    except JsonRejected as rejected:
        raise ExportMalformed(f"a line is not usable JSON: {rejected.message}") from rejected
    if not isinstance(turn_id, str | None):
        raise ExportMalformed("the turn_id of a line is neither a text nor null")
    return AuditRow(
        request=_raw(slices["request"]),
        response=_raw(slices["response"]),
        entry=_entry(slices["entry"]),
        turn_id=turn_id,
    )


def stored_rows(reader: ChainReader, session_id: str) -> Iterator[AuditRow]:
    """A session's rows straight from the store, with the digests that an export leaves out."""
    for row in reader.rows(session_id):
        yield AuditRow(
            request=row.request,
            response=row.response,
            entry=None if row.entry is None else cast("dict[str, object]", parse_object(row.entry)),
            turn_id=row.turn_id,
            request_digest=row.request_digest,
            response_digest=row.response_digest,
            recorded=row.recorded,
            decision_log=row.decision_log,
        )


def _fragment(content: bytes | None) -> orjson.Fragment | None:
    return None if content is None else orjson.Fragment(minify(content))


def _raw(text: str) -> bytes | None:
    return None if text == "null" else text.encode()


def _entry(text: str) -> dict[str, object] | None:
    if text == "null":
        return None
    entry: object = orjson.loads(text)
    if not isinstance(entry, dict):
        raise ExportMalformed("the entry of a line is neither an object nor null")
    return cast("dict[str, object]", entry)
