"""Point reads that a Guardian makes of its own database, whichever it is.

Answers for the bound of each read. Whoever calls hands in a function that runs a query in one snapshot.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.ports import RecordedAnswer, SessionArchived, StoredSession, UsedBefore
from turnkeeper.guardian.provenance import MAX_PROVENANCE_IDS
from turnkeeper.store import chain_sql as sql
from turnkeeper.store.approvals import SELECT_OF_STEP, approval_of
from turnkeeper.store.chain_rows import stored_session

Fetch: TypeAlias = Callable[[str, tuple[object, ...]], list[tuple[Any, ...]]]
"""All rows of a query with a `?` for each value."""


def load_session(fetch: Fetch, session_id: str, max_ids: int) -> StoredSession | None:
    """A session with at most `max_ids` of its newest ids of each kind. Raises `SessionArchived`."""
    found = fetch(sql.SELECT_SESSION, (session_id,))
    if not found:
        return _check_never_archived(fetch, session_id)
    requests = fetch(sql.SELECT_REQUEST_IDS, (session_id, max_ids + 1))
    nonces = fetch(sql.SELECT_NONCES, (session_id, max_ids + 1))
    lineage = fetch(sql.SELECT_LINEAGE, (session_id, MAX_PROVENANCE_IDS))
    return stored_session(found[0], requests, nonces, lineage, max_ids)


def find_used(fetch: Fetch, session_id: str, request_id: str, nonce: str | None, reference: str | None) -> UsedBefore:
    """Whether the ids were used, looking at everything ever recorded."""
    answers = fetch(sql.SELECT_USED, (session_id, request_id))
    used = nonce is not None and bool(fetch(sql.SELECT_NONCE, (session_id, nonce)))
    named = [] if reference is None else fetch(sql.SELECT_METHOD, (session_id, reference))
    return UsedBefore(RecordedAnswer(*answers[0]) if answers else None, used, named[0][0] if named else None)


def find_approval(fetch: Fetch, session_id: str, request_id: str) -> Approval | None:
    """The question that a step raised, as it stands now."""
    found = fetch(SELECT_OF_STEP, (session_id, request_id))
    return approval_of(found[0]) if found else None


def _check_never_archived(fetch: Fetch, session_id: str) -> None:
    archived = fetch(sql.SELECT_ARCHIVED, (session_id,))
    if archived:
        raise SessionArchived(session_id, *archived[0])
