"""What a Guardian's export or archive says of each step, to hold another stream of the same steps against.

Answers for one record per request, found by session and request_id. Must never read more steps than it may hold, nor
judge a line: `verify` does that. Pure.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from turnkeeper.acs import JsonRejected, minify, parse_object
from turnkeeper.acs.strictjson import is_object
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.archive import HEADER, RECORD, ArchiveMalformed, parse_archive_line, parse_record
from turnkeeper.guardian.export import LINE_LIMITS, AuditRow, ExportMalformed, parse_line

MAX_KNOWN_STEPS: Final = 1_000_000


class TooManySteps(TurnkeeperError):
    """More steps than can be compared at once."""

    code = "too_many_steps"


@dataclass(frozen=True, slots=True)
class KnownStep:
    """One recorded request. What its row does not say any more is None."""

    session_id: str
    request_id: str
    position: int
    method: str | None
    request_hash: str | None
    chain_hash: str | None
    decision: str | None
    answer: bytes | None


class KnownSteps:
    """The steps of a Guardian's record."""

    def __init__(self, steps: Iterable[KnownStep]) -> None:
        """Raises `TooManySteps`."""
        self._steps: dict[tuple[str, str], KnownStep] = {}
        self._sessions: dict[str, list[KnownStep]] = {}
        for step in steps:
            if len(self._steps) >= MAX_KNOWN_STEPS:
                raise TooManySteps(f"more than {MAX_KNOWN_STEPS:,} steps", hint="Export fewer sessions.")
            self._steps[step.session_id, step.request_id] = step
            self._sessions.setdefault(step.session_id, []).append(step)

    def find(self, session_id: str, request_id: str) -> KnownStep | None:
        """The step, where there is one."""
        return self._steps.get((session_id, request_id))

    def of_session(self, session_id: str) -> list[KnownStep]:
        """A session's steps in order."""
        return self._sessions.get(session_id, [])


def steps_of_export(lines: Iterable[bytes]) -> Iterator[KnownStep]:
    """The steps in an export's lines; what cannot be read is left to `verify`."""
    session_id: str | None = None
    for position, line in enumerate(lines):
        try:
            row = parse_line(line)
        except ExportMalformed:
            continue
        request = members_of(row.request)
        session_id = session_of(request) or session_id
        if (step := _known(session_id, position, row, request)) is not None:
            yield step


def steps_of_archive(lines: Iterable[bytes]) -> Iterator[KnownStep]:
    """The steps in an archive's lines; what cannot be read is left to `verify`."""
    session_id: str | None = None
    for position, line in enumerate(lines):
        try:
            document = parse_archive_line(line)
            if document["object"] == HEADER:
                session_id = cast("str", document.get("session_id"))
            if document["object"] != RECORD:
                continue
            row = parse_record(document)
        except ArchiveMalformed:
            continue
        if (step := _known(session_id, position, row, members_of(row.request))) is not None:
            yield step


def members_of(body: bytes | None) -> Mapping[str, object]:
    """The members of a body; none of a body that is not usable JSON."""
    try:
        return parse_object(body or b"", LINE_LIMITS)
    except JsonRejected:
        return {}


def session_of(request: Mapping[str, object]) -> str | None:
    """The session that a request names."""
    named = _object(_object(request.get("params")).get("metadata")).get("session_id")
    return named if isinstance(named, str) else None


def decision_of(answer: Mapping[str, object]) -> str | None:
    """The decision in an answer; None for an error, and for what has none."""
    return _text(_object(answer.get("result")).get("decision"))


def answer_digest(body: bytes) -> bytes | None:
    """What makes two answers the same, white space between tokens apart."""
    try:
        return hashlib.sha256(minify(body, LINE_LIMITS).encode()).digest()
    except JsonRejected:
        return None


def _known(session_id: str | None, position: int, row: AuditRow, request: Mapping[str, object]) -> KnownStep | None:
    entry = row.entry or {}
    stated = _text(_object(request.get("params")).get("request_id"))
    request_id = stated or _text(entry.get("entry_id"))
    if session_id is None or request_id is None:
        return None
    decision = decision_of(members_of(row.response)) or _text(members_of(row.decision_log).get("decision"))
    return KnownStep(
        session_id,
        request_id,
        position,
        _text(request.get("method")) or _text(entry.get("step_type")),
        _text(entry.get("request_hash")),
        _text(entry.get("entry_hash")),
        decision,
        None if row.response is None else answer_digest(row.response),
    )


def _object(value: object) -> Mapping[str, object]:
    return value if is_object(value) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
