"""What the Guardian keeps as rows, and back, whichever database holds them.

Pure. Answers for the order of values in `chain_sql`'s statements. Texts, bytes, numbers and booleans only: how a
database spells them is its store's business.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from turnkeeper.guardian.memory import Kept, parse_memory, parse_window, render_kept, render_standing, render_window
from turnkeeper.guardian.ports import (
    Record,
    SessionProgress,
    SessionTerms,
    StepRecord,
    StoredSession,
)
from turnkeeper.guardian.provenance import KnownDatum
from turnkeeper.store import chain_sql as sql
from turnkeeper.store.approvals import INSERT_APPROVAL, USE_APPROVAL, approval_row

Row: TypeAlias = tuple[object, ...]
Values: TypeAlias = Iterable[Row]


def changes(batch: Sequence[Record]) -> Iterator[tuple[str, Sequence[Row]]]:
    """The statements that make a batch durable, each with its rows, in the order in which they are run."""
    steps = [record for record in batch if isinstance(record, StepRecord)]
    for statement, values in (
        (sql.INSERT_SESSION, _new_sessions(steps)),
        (sql.INSERT_EXTENSION, _extensions(steps)),
        (sql.INSERT_STEP, map(_step_row, steps)),
        (INSERT_APPROVAL, (approval_row(record.question) for record in steps if record.question)),
        (USE_APPROVAL, _used_approvals(steps)),
        (sql.INSERT_NONCE, _nonces(batch)),
        (sql.UPDATE_SESSION, _progress_rows(steps)),
        (sql.OPEN_TURN, _opened_turns(steps)),
        (sql.CLOSE_TURN, _closed_turns(steps)),
        (sql.INSERT_FINDING, _findings(steps)),
        (sql.REMEMBER, _remembered(steps)),
    ):
        if found := list(values):
            yield statement, found


def _new_sessions(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        if (terms := record.new_session) is not None:
            methods = _lines(terms.methods)
            yield (
                *(terms.session_id, terms.key_id, terms.agent_id, terms.acs_version, terms.skew_window_ms, methods),
                *(terms.hello_hash, terms.server_hello, terms.created_at_ms),
                *(terms.provenance_producer, _lines(terms.profiles), _lines(terms.mcp_versions)),
                *_progress_row(record.progress, record.kept),
            )


def _lines(names: frozenset[str]) -> str:
    return "\n".join(sorted(names))


def _progress_rows(steps: Sequence[StepRecord]) -> Values:
    latest = {record.session_id: record.progress for record in steps}
    kept = {record.session_id: record.kept for record in steps if record.kept is not None}
    return [(*_progress_row(progress, kept.get(id_)), id_) for id_, progress in latest.items()]


def _progress_row(progress: SessionProgress, kept: Kept | None) -> Row:
    return (
        *(progress.head, progress.recorded, progress.entries, progress.tool_calls, progress.turns, progress.closed),
        None if progress.window is None else render_window(progress.window),
        render_standing(progress.memory),
        None if kept is None else render_kept(kept),
    )


def _step_row(record: StepRecord) -> Row:
    answer = record.answer
    return (
        *(record.session_id, record.recorded, record.kind.value, record.method, record.request_id, record.door),
        *(record.turn_id, record.received_at_ms, answer.decision, answer.error_code, answer.chain_hash),
        *(record.entry, record.request, record.response),
        *(hashlib.sha256(record.request).digest(), hashlib.sha256(record.response).digest()),
    )


def _extensions(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        if (extension := record.extension) is not None:
            yield (
                *(record.session_id, extension.recorded, extension.entry_id, record.door, record.turn_id),
                *(record.received_at_ms, extension.chain_hash, extension.entry, b"", b""),
            )


def _used_approvals(steps: Sequence[StepRecord]) -> Values:
    return [(record.received_at_ms, record.used_approval) for record in steps if record.used_approval is not None]


def _nonces(batch: Sequence[Record]) -> Values:
    return [(record.session_id, record.nonce) for record in batch if record.nonce is not None]


def _opened_turns(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        if (window := record.opened) is not None:
            yield (
                *(record.session_id, window.ordinal, window.turn_id, window.denied, record.recorded),
                *(window.triggered_by, window.parent_turn_id),
            )


def _closed_turns(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        if (closed := record.closed) is not None:
            window = closed.window
            yield (
                *(record.recorded, closed.outcome, window.steps, window.tool_calls),
                *(window.taint_step, window.denials, window.deferrals, closed.summary),
                *(record.session_id, window.ordinal),
            )


def _findings(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        for found in record.findings:
            yield (
                *(record.session_id, record.recorded, record.received_at_ms),
                *(found.code, found.message, found.turn_id),
            )


def _remembered(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        for datum in record.lineage:
            yield (
                *(record.session_id, datum.provenance_id, datum.request_id),
                *(datum.turn_id, datum.trust, datum.depth),
            )


def stored_session(
    row: Sequence[Any],
    requests: Sequence[Sequence[Any]],
    nonces: Sequence[Sequence[Any]],
    lineage: Sequence[Sequence[Any]],
    max_ids: int,
) -> StoredSession:
    """A session from its row and from at most `max_ids` + 1 rows of ids, the newest request first."""
    newest = requests[:max_ids][::-1]
    return StoredSession(
        terms=terms_of(row[: sql.TERMS_WIDTH]),
        progress=progress_of(row[sql.TERMS_WIDTH :]),
        request_ids=tuple(request_id for request_id, _ in newest),
        methods=tuple(method for _, method in newest),
        nonces=tuple(nonce for (nonce,) in nonces[:max_ids]),
        complete=max(len(requests), len(nonces)) <= max_ids,
        lineage=tuple(KnownDatum(*values) for values in lineage),
    )


def terms_of(row: Sequence[Any]) -> SessionTerms:
    """The terms in a row of `sessions`, in the order of its columns; the tables are STRICT, so each has its type."""
    session_id, key_id, agent_id, acs_version, skew_window_ms, methods, hello_hash, server_hello, created_at_ms = row[
        :9
    ]
    producer, profiles, mcp_versions = row[9:]
    return SessionTerms(
        session_id=session_id,
        key_id=key_id,
        agent_id=agent_id,
        acs_version=acs_version,
        skew_window_ms=skew_window_ms,
        methods=_names(methods),
        hello_hash=hello_hash,
        server_hello=server_hello,
        created_at_ms=created_at_ms,
        provenance_producer=producer,
        profiles=_names(profiles),
        mcp_versions=_names(mcp_versions),
    )


def _names(lines: str) -> frozenset[str]:
    return frozenset(filter(None, lines.split("\n")))


def progress_of(row: Sequence[Any]) -> SessionProgress:
    """The progress in a row of `sessions`, in the order of its columns."""
    head, recorded, entries, tool_calls, turns, closed, window, standing, kept = row
    return SessionProgress(
        head=head,
        recorded=recorded,
        entries=entries,
        tool_calls=tool_calls,
        turns=turns,
        closed=bool(closed),
        window=None if window is None else parse_window(window),
        memory=parse_memory(standing, kept),
    )
