"""Approvals and the Guardian's API keys, beside a Guardian that runs.

Answers for one durable answer per question, whoever asks at the same time, and for keys of which only the SHA-256 is
kept. Rows of approvals are made by the Guardian's own commits (`store.chain_rows`); here they are read and decided.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from turnkeeper.guardian.apikeys import GuardianKey
from turnkeeper.guardian.approvals import (
    Approval,
    ApprovalAnswer,
    ApprovalKind,
    ApprovalScope,
    ApprovalStatus,
    Approver,
    decided,
    withdrawn,
)

APPROVAL_COLUMNS: Final = (
    "approval_id, session_id, request_id, turn_id, agent_id, key_id, kind, method, tool, input_hash, question,"
    " approver_type, approver_id, created_at_ms, expires_at_ms, extension, status, decided_by, decided_by_key,"
    " decided_at_ms, scope, note, used_at_ms"
)
INSERT_APPROVAL: Final = f"INSERT INTO approvals ({APPROVAL_COLUMNS}) VALUES ({', '.join('?' * 23)})"  # noqa: S608  our own column names
USE_APPROVAL: Final = "UPDATE approvals SET used_at_ms = coalesce(used_at_ms, ?) WHERE approval_id = ?"
SELECT_OF_STEP: Final = f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE session_id = ? AND request_id = ?"  # noqa: S608  our own column names
_SELECT_ONE = f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE approval_id = ?"  # noqa: S608  our own column names
_SELECT_PAGE = (
    f"SELECT id, {APPROVAL_COLUMNS} FROM approvals WHERE id > ? AND status = coalesce(?, status)"  # noqa: S608  our own column names
    " AND (expires_at_ms <= ?) = coalesce(?, expires_at_ms <= ?) ORDER BY id LIMIT ?"
)
_DECIDE = (
    "UPDATE approvals SET status = ?, decided_by = ?, decided_by_key = ?, decided_at_ms = ?, scope = ?, note = ?"
    " WHERE approval_id = ? AND status = 'pending'"
)
_WITHDRAW = "UPDATE approvals SET expires_at_ms = ?, note = ? WHERE approval_id = ? AND status = 'pending'"
_KEY_COLUMNS = "key_id, name, scopes, approver_type, approver_ids, created_at_ms, revoked_at_ms"
_INSERT_KEY = f"INSERT INTO api_keys ({_KEY_COLUMNS}, sha256) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  our own column names
_SELECT_KEYS = f"SELECT {_KEY_COLUMNS} FROM api_keys ORDER BY key_id LIMIT ?"  # noqa: S608  our own column names
_SELECT_KEY = f"SELECT {_KEY_COLUMNS} FROM api_keys WHERE sha256 = ?"  # noqa: S608  our own column names
_REVOKE_KEY = "UPDATE api_keys SET revoked_at_ms = coalesce(revoked_at_ms, ?) WHERE key_id = ?"


class Approvals(ABC):
    """Approvals and keys (`ApprovalStore`), whichever database holds them."""

    def approvals(
        self, *, status: ApprovalStatus | None, after: int, limit: int, now_ms: int
    ) -> list[tuple[int, Approval]]:
        """Approvals in the order they were made, each with its place. Raises `StoreFailed`."""
        stored = ApprovalStatus.PENDING if status is ApprovalStatus.EXPIRED else status
        over = None if stored is not ApprovalStatus.PENDING else status is ApprovalStatus.EXPIRED
        named = None if stored is None else stored.value
        rows = self._fetch(_SELECT_PAGE, after, named, now_ms, over, now_ms, limit)
        return [(row[0], approval_of(row[1:])) for row in rows]

    def approval(self, approval_id: str) -> Approval | None:
        """One approval. Raises `StoreFailed`."""
        rows = self._fetch(_SELECT_ONE, approval_id)
        return approval_of(rows[0]) if rows else None

    def decide(self, approval_id: str, answer: ApprovalAnswer, approver: Approver, now_ms: int) -> Approval | None:
        """The approval once its answer is durable. Raises `ApprovalRefused`, `StoreFailed`."""
        # An answer is final, so that whoever comes second finds it at the second look.
        while rows := self._fetch(_SELECT_ONE, approval_id):
            result = decided(approval_of(rows[0]), answer, approver, now_ms)
            if self._change(_DECIDE, *_answered(result), approval_id):
                return result
        return None

    def withdraw(self, approval_id: str, approver: Approver, note: str | None, now_ms: int) -> Approval | None:
        """The approval once its end is durable. Raises `ApprovalRefused`, `StoreFailed`."""
        while rows := self._fetch(_SELECT_ONE, approval_id):
            result = withdrawn(approval_of(rows[0]), approver, note, now_ms)
            if self._change(_WITHDRAW, result.expires_at_ms, result.note, approval_id):
                return result
        return None

    def add_key(self, key: GuardianKey, sha256: str) -> None:
        """Keeps a key. Raises `StoreFailed`."""
        values = (
            *(key.key_id, key.name, _lines(key.scopes), key.approver_type, _lines(key.approver_ids)),
            *(key.created_at_ms, key.revoked_at_ms, sha256),
        )
        self._change(_INSERT_KEY, *values)

    def keys(self, *, limit: int) -> list[GuardianKey]:
        """All keys, revoked ones too. Raises `StoreFailed`."""
        return [_key_of(row) for row in self._fetch(_SELECT_KEYS, limit)]

    def key_of_secret(self, sha256: str) -> GuardianKey | None:
        """The key with this secret. Looking the digest up is the comparison. Raises `StoreFailed`."""
        rows = self._fetch(_SELECT_KEY, sha256)
        return _key_of(rows[0]) if rows else None

    def revoke_key(self, key_id: str, now_ms: int) -> bool:
        """Whether there was such a key; from now on it opens nothing. Raises `StoreFailed`."""
        return self._change(_REVOKE_KEY, now_ms, key_id) > 0

    @abstractmethod
    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query with a `?` for each value."""

    @abstractmethod
    def _change(self, statement: str, *values: object) -> int:
        """How many rows a statement changed, once that is durable."""


def approval_row(approval: Approval) -> tuple[object, ...]:
    """An approval as a row, in the order of `APPROVAL_COLUMNS`."""
    return (
        *(approval.approval_id, approval.session_id, approval.request_id, approval.turn_id, approval.agent_id),
        *(approval.key_id, approval.kind.value, approval.method, approval.tool, approval.input_hash),
        *(approval.question, approval.approver_type, approval.approver_id),
        *(approval.created_at_ms, approval.expires_at_ms, _json(approval.extension)),
        *(*_answered(approval), approval.used_at_ms),
    )


def approval_of(row: Sequence[Any]) -> Approval:
    """The approval in a row; the tables are strict about types, so each value has its own."""
    return Approval(
        approval_id=row[0],
        session_id=row[1],
        request_id=row[2],
        turn_id=row[3],
        agent_id=row[4],
        key_id=row[5],
        kind=ApprovalKind(row[6]),
        method=row[7],
        tool=row[8],
        input_hash=row[9],
        question=row[10],
        approver_type=row[11],
        approver_id=row[12],
        created_at_ms=row[13],
        expires_at_ms=row[14],
        extension=None if row[15] is None else orjson.loads(row[15]),
        status=ApprovalStatus(row[16]),
        decided_by=row[17],
        decided_by_key=row[18],
        decided_at_ms=row[19],
        scope=None if row[20] is None else ApprovalScope(row[20]),
        note=row[21],
        used_at_ms=row[22],
    )


def _answered(approval: Approval) -> tuple[object, ...]:
    return (
        *(approval.status.value, approval.decided_by, approval.decided_by_key, approval.decided_at_ms),
        *(None if approval.scope is None else approval.scope.value, approval.note),
    )


def _key_of(row: Sequence[Any]) -> GuardianKey:
    key_id, name, scopes, approver_type, approver_ids, created_at_ms, revoked_at_ms = row
    return GuardianKey(key_id, name, _names(scopes), approver_type, _names(approver_ids), created_at_ms, revoked_at_ms)


def _json(value: Mapping[str, object] | None) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _lines(names: frozenset[str]) -> str:
    return "\n".join(sorted(names))


def _names(lines: str) -> frozenset[str]:
    return frozenset(filter(None, lines.split("\n")))
