"""The Observed Agent's own audit log (ledger AUD-05, HON-04, HS-16): what went on without a decision, and what failed.

Answers for one record per fact, numbered and timed, handed to a sink before the step goes on. Must never let a step go
on whose record could not be written, nor put a byte of a payload or an answer into a record.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from turnkeeper.client.errors import AuditFailed
from turnkeeper.client.posture import Failure, Note, Question, Stance
from turnkeeper.clock import Clock, render_time

LOGGER_NAME: Final = "turnkeeper.client.audit"
FAILURE_EVENT: Final = "acs.decision.failure"
REPORTED_BY: Final = "observed_agent"

_TRACE_POSTURES: Final = {"blocked": "fail_closed"}


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One fact. `document` is JSON-safe; its members are listed in `Auditor.write`."""

    document: Mapping[str, object]
    failure: Failure | None = None

    @property
    def event(self) -> str:
        """What happened, as a stable word."""
        return str(self.document["event"])

    @property
    def outcome(self) -> str:
        """`proceeded`, `blocked`, `original_kept` or `observed`."""
        return str(self.document["outcome"])

    @property
    def failure_event(self) -> dict[str, object] | None:
        """The attributes of an `acs.decision.failure` span event (TRACE-08); None where no decision failed."""
        if self.failure is None or self.event not in {"decision_failure", "unguarded_start", "session_not_started"}:
            return None
        attributes: dict[str, object] = {
            "acs.failure.class": self.failure.trace_class,
            "acs.failure.posture": _TRACE_POSTURES.get(self.outcome, "fail_open"),
            "acs.failure.reported_by": REPORTED_BY,
            "acs.failure.detail": self.failure.message,
        }
        if self.failure.code is not None:
            attributes["acs.failure.error_code"] = self.failure.code
        return attributes


AuditSink: TypeAlias = Callable[[AuditRecord], None]
"""Takes a record and returns once it is kept. What it raises keeps the step from going on."""


class JsonLinesAudit:
    """A sink that appends one JSON object per line to a file of its own, and syncs it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, record: AuditRecord) -> None:
        """Appends the record. Raises `AuditFailed`."""
        line = json.dumps(dict(record.document), separators=(",", ":")).encode() + b"\n"
        try:
            written = self._append(line)
        except OSError as error:
            raise AuditFailed(f"the audit record cannot be written to {self._path}: {error.strerror}") from error
        if written != len(line):
            raise AuditFailed(f"only a part of the audit record was written to {self._path}")

    def _append(self, line: bytes) -> int:
        # One write of one line: processes that share the file do not mix theirs.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(descriptor, line)
            os.fsync(descriptor)
            return written
        finally:
            os.close(descriptor)


def log_audit(record: AuditRecord) -> None:
    """The sink of a client that was given none: a warning of the logger `turnkeeper.client.audit`, as JSON."""
    logging.getLogger(LOGGER_NAME).warning("%s", json.dumps(dict(record.document), ensure_ascii=False))


class Auditor:
    """Numbers and times what the client notes, and hands it to the sink."""

    def __init__(self, sink: AuditSink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._seq = 0

    def write(self, question: Question, stance: Stance, note: Note) -> None:
        """Hands a record to the sink. Raises what the sink raises.

        Members: `seq`, `recorded_at`, `event`, `session_id`, `turn_id`, `method`, `request_id` and `rpc_id` (the same
        value), `posture`, `posture_source`, `outcome`, and where there is one `failure`, `session_failure`,
        `received`, `applied`, `reason_codes`, `chain_hash` (the head that was published), `witnessed_head` (the one
        before it).
        """
        self._seq += 1
        members: dict[str, object] = {
            "seq": self._seq,
            "recorded_at": render_time(self._clock.now()),
            "event": note.event,
            "session_id": question.session_id,
            "turn_id": question.turn_id,
            "method": question.method,
            "request_id": question.request_id,
            "rpc_id": question.request_id,
            "posture": stance.posture,
            "posture_source": stance.source,
            "outcome": note.effect,
            "failure": note.failure.to_document() if note.failure is not None else None,
            "session_failure": note.session_failure.to_document() if note.session_failure is not None else None,
            "received": note.received,
            "applied": note.applied,
            "reason_codes": list(note.reason_codes) or None,
            "chain_hash": note.chain_hash,
            "witnessed_head": note.witnessed_head,
        }
        document = {name: value for name, value in members.items() if value is not None}
        self._sink(AuditRecord(document, note.failure))
