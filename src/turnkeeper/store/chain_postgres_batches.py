"""Rows of one statement, many at a time.

Pure. Answers for few statements per batch: with one per row, most of a batch's time would go into sending them. Sizes
are powers of two, so that there are few texts and the server keeps them prepared.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Final

from turnkeeper.store import chain_sql as sql
from turnkeeper.store.chain_rows import Row

MAX_ROWS: Final = 64

_VALUES: Final = "VALUES "
_UPDATE_SESSIONS = (
    "UPDATE sessions AS s SET head = v.head, recorded = v.recorded, entries = v.entries, tool_calls = v.tool_calls,"
    " turns = v.turns, closed = v.closed, turn_window = v.turn_window, standing = v.standing,"
    " kept = coalesce(v.kept, s.kept) FROM (VALUES {rows}) AS v"
    " (head, recorded, entries, tool_calls, turns, closed, turn_window, standing, kept, session_id)"
    " WHERE s.session_id = v.session_id"
)
_UPDATE_ROW = "(?::text, ?::bigint, ?::bigint, ?::bigint, ?::bigint, ?::boolean, ?::text, ?::text, ?::text, ?::text)"


def batches(statement: str, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """The same change with fewer statements, each with the values of all its rows."""
    if not _can_repeat(statement):
        yield from ((statement, row) for row in rows)
        return
    start = 0
    while start < len(rows):
        count = min(MAX_ROWS, 1 << ((len(rows) - start).bit_length() - 1))
        yield repeated(statement, count), tuple(chain.from_iterable(rows[start : start + count]))
        start += count


@cache
def repeated(statement: str, count: int) -> str:
    """The statement for so many rows."""
    if statement == sql.UPDATE_SESSION:
        return _UPDATE_SESSIONS.format(rows=", ".join([_UPDATE_ROW] * count))
    head, _, row = statement.rpartition(_VALUES)
    return head + _VALUES + ", ".join([row] * count)


def _can_repeat(statement: str) -> bool:
    # One statement may not meet the same row twice, so what is sorted out by ON CONFLICT goes row by row.
    is_plain_insert = statement.startswith("INSERT ") and "ON CONFLICT" not in statement
    return is_plain_insert or statement == sql.UPDATE_SESSION
