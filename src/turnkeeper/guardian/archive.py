"""The archive of a session: one signed, self-contained file of JSON lines (CORE-CH-09), and what proves it whole.

Answers for the format, which `docs/reference/archive.md` describes: a header with the terms, a line for each recorded
request, turn, finding and approval, and a seal over every byte before it. Must never take a line for granted that the
seal does not cover, nor read a version that it does not know. Pure.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import orjson

from turnkeeper.acs import JsonLimits, JsonRejected, SessionKey, parse_object
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.decisions import decision_record, sealed
from turnkeeper.guardian.export import AuditRow
from turnkeeper.guardian.ports import (
    MAX_ARCHIVE_LINE_BYTES,
    RecordedStep,
    SessionProgress,
    SessionTerms,
    StoredFinding,
    TurnSummary,
)
from turnkeeper.guardian.views import approval_view, finding_view, render_ms, turn_view

SCHEMA_VERSION: Final = 1
ARCHIVE_LIMITS: Final = JsonLimits(max_bytes=MAX_ARCHIVE_LINE_BYTES, max_depth=68)

HEADER: Final = "guardian.archive"
RECORD: Final = "guardian.record"
TURN: Final = "guardian.turn"
FINDING: Final = "guardian.finding"
APPROVAL: Final = "approval"
SEAL: Final = "guardian.archive.seal"
COUNTED: Final[Mapping[str, str]] = {
    RECORD: "records",
    TURN: "turns",
    FINDING: "findings",
    APPROVAL: "approvals",
}
"""What stands between header and seal, and the member of the seal that counts it."""


class ArchiveMalformed(TurnkeeperError):
    """A line of an archive that is none."""

    code = "archive_malformed"


@dataclass(frozen=True, slots=True)
class ArchiveParts:
    """Everything that a session leaves behind; what can be long is read as it is written."""

    terms: SessionTerms
    progress: SessionProgress
    steps: Iterable[RecordedStep]
    turns: Iterable[TurnSummary]
    findings: Iterable[StoredFinding]
    approvals: Iterable[Approval]


def archive_lines(parts: ArchiveParts, key: SessionKey, *, archived_at_ms: int) -> Iterator[bytes]:
    """The lines of an archive, each ending in a newline, the seal last.

    Raises `ArchiveMalformed` for a body that is no text, which no Guardian records.
    """
    digest = hashlib.sha256()
    counts = dict.fromkeys(COUNTED.values(), 0)
    for line in _unsealed(parts, key, archived_at_ms):
        rendered = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        digest.update(rendered)
        if (member := COUNTED.get(cast("str", line["object"]))) is not None:
            counts[member] += 1
        yield rendered
    yield render_seal(parts, key, counts, digest.hexdigest())


def render_seal(parts: ArchiveParts, key: SessionKey, counts: Mapping[str, int], sha256: str) -> bytes:
    """The last line: what the file holds, under the session's key."""
    seal: dict[str, object] = {
        "object": SEAL,
        "schema_version": SCHEMA_VERSION,
        "session_id": parts.terms.session_id,
        "head": parts.progress.head,
        "entries": parts.progress.entries,
        **counts,
        "sha256": sha256,
    }
    return orjson.dumps(sealed(seal, key), option=orjson.OPT_APPEND_NEWLINE)


def _unsealed(parts: ArchiveParts, key: SessionKey, archived_at_ms: int) -> Iterator[Mapping[str, object]]:
    yield _header(parts, archived_at_ms)
    for step in parts.steps:
        yield _record(step, key)
    yield from map(turn_view, parts.turns)
    yield from map(finding_view, parts.findings)
    for approval in parts.approvals:
        yield approval_view(approval, archived_at_ms)


def _header(parts: ArchiveParts, archived_at_ms: int) -> dict[str, object]:
    terms = parts.terms
    return {
        "object": HEADER,
        "schema_version": SCHEMA_VERSION,
        "session_id": terms.session_id,
        "agent_id": terms.agent_id,
        "key_id": terms.key_id,
        "created_at": render_ms(terms.created_at_ms),
        "archived_at": render_ms(archived_at_ms),
        "terms": {
            "acs_version": terms.acs_version,
            "skew_window_ms": terms.skew_window_ms,
            "methods": sorted(terms.methods),
            "provenance_producer": terms.provenance_producer,
            "profiles": sorted(terms.profiles),
            "mcp_versions": sorted(terms.mcp_versions),
            "hello_hash": terms.hello_hash,
            "server_hello": orjson.Fragment(terms.server_hello),
        },
        "intent": parts.progress.memory.kept.intent,
        "provenance_summary": parts.progress.memory.provenance.to_document(),
    }


def _record(step: RecordedStep, key: SessionKey) -> dict[str, object]:
    return {
        "object": RECORD,
        "recorded": step.recorded,
        "kind": step.kind,
        "door": step.door,
        "turn_id": step.turn_id,
        "received_at": render_ms(step.received_at_ms),
        "request": _text(step.request),
        "response": _text(step.response),
        "entry": None if step.entry is None else orjson.Fragment(step.entry),
        "request_sha256": step.request_digest.hex() or None,
        "response_sha256": step.response_digest.hex() or None,
        "decision": orjson.Fragment(decision_record(step, key)) if step.request_digest else None,
    }


def parse_record(document: Mapping[str, object]) -> AuditRow:
    """The row in a record. Raises `ArchiveMalformed`."""
    try:
        decision, entry = document["decision"], document["entry"]
        return AuditRow(
            request=_bytes(document["request"]),
            response=_bytes(document["response"]),
            entry=None if entry is None else _object(entry),
            turn_id=_optional_text(document["turn_id"]),
            request_digest=bytes.fromhex(_optional_text(document["request_sha256"]) or ""),
            response_digest=bytes.fromhex(_optional_text(document["response_sha256"]) or ""),
            recorded=_number(document["recorded"]),
            decision_log=None if decision is None else orjson.dumps(_object(decision)),
        )
    except (KeyError, ValueError) as error:
        raise ArchiveMalformed(f"a record has no usable {error}") from error


def parse_archive_line(line: bytes) -> dict[str, object]:
    """The document in a line. Raises `ArchiveMalformed`."""
    try:
        document = parse_object(line, ARCHIVE_LIMITS)
    except JsonRejected as rejected:
        raise ArchiveMalformed(f"a line is not usable JSON: {rejected.message}") from rejected
    if not isinstance(document.get("object"), str):
        raise ArchiveMalformed("a line does not say what it is")
    return cast("dict[str, object]", document)


def _text(body: bytes | None) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError as error:
        raise ArchiveMalformed("a recorded body is no text") from error


def _bytes(value: object) -> bytes | None:
    text = _optional_text(value)
    return None if text is None else text.encode()


def _optional_text(value: object) -> str | None:
    if isinstance(value, str | None):
        return value
    raise ValueError("text")


def _number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("number")


def _object(value: object) -> dict[str, object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    raise ValueError("object")
