"""The session chain (ACS 8.2, ledger section 12): link, recompute, compare.

Answers for entries and their hashes. Takes entries and digests, returns entries and digests; who stores them is not
its business. INVARIANT: `request_hash` covers the params as they arrived, signature and unknown members included.
INVARIANT: an optional member without a value is left out of an entry, never null. Pure.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import cast

from turnkeeper.acs.canonical import CanonicalizationRejected, Writer, canonicalize
from turnkeeper.acs.envelope import RequestEnvelope
from turnkeeper.errors import LocalProtocolError, TurnkeeperError
from turnkeeper.records import record

_DIGEST = re.compile(r"[0-9a-f]{64}")
_OUTSIDE_CONTENT = frozenset({"entry_hash", "previous_hash"})
_REQUIRED = ("entry_id", "step_id", "step_type", "entry_hash")


class ChainBroken(TurnkeeperError):
    """An entry that does not follow from the one before it.

    `index` counts from 0; `what` is `malformed`, `entry_hash`, `previous_hash` or `duplicate_entry_id`.
    """

    code = "chain_broken"

    def __init__(self, index: int, what: str, message: str) -> None:
        super().__init__(message, detail={"index": index, "what": what})
        self.index = index
        self.what = what


@record
class ContextEntry:
    """One step in a session's chain, before it is linked."""

    entry_id: str
    step_id: str
    step_type: str
    request_hash: str | None = None
    timestamp: str | None = None
    turn_id: str | None = None
    provenance_summary: Mapping[str, object] | None = None

    @classmethod
    def for_request(
        cls,
        request: RequestEnvelope,
        *,
        turn_id: str | None = None,
        provenance_summary: Mapping[str, object] | None = None,
        params_hash: str | None = None,
    ) -> "ContextEntry":
        """The entry of a step: both ids are its request_id, the time is the request's own.

        So the chain can be computed again from the traffic alone. `turn_id` is the turn the step was counted in;
        `params_hash` the `request_hash`, where the check of the signature has computed it already.
        """
        return cls(
            entry_id=request.request_id,
            step_id=request.request_id,
            step_type=request.method,
            request_hash=params_hash or request_hash(request.params),
            timestamp=request.timestamp,
            turn_id=turn_id,
            provenance_summary=provenance_summary,
        )

    def to_document(self) -> dict[str, object]:
        """The members that have a value, without hashes."""
        members: dict[str, object] = {
            "entry_id": self.entry_id,
            "step_id": self.step_id,
            "step_type": self.step_type,
            "request_hash": self.request_hash,
            "timestamp": self.timestamp,
            "turn_id": self.turn_id,
            "provenance_summary": None if self.provenance_summary is None else dict(self.provenance_summary),
        }
        return {name: member for name, member in members.items() if member is not None}


def link(entry: Mapping[str, object], previous: str | None, write: Writer = canonicalize) -> dict[str, object]:
    """The entry with `previous_hash` (null for the first) and `entry_hash`.

    `write` is `canonicalize_safe` where whoever made the entry knows that it may be.
    Raises `LocalProtocolError` for a `previous` that is no digest, and `CanonicalizationRejected`.
    """
    if previous is not None and _DIGEST.fullmatch(previous) is None:
        raise LocalProtocolError("the previous hash is not 64 lower-case hexadecimal digits")
    return {**entry, "previous_hash": previous, "entry_hash": entry_hash(entry, previous, write)}


def entry_hash(entry: Mapping[str, object], previous: str | None, write: Writer = canonicalize) -> str:
    """SHA-256 of the canonical content followed by the raw 32 bytes of the previous hash, in lower-case hex."""
    content = {name: member for name, member in entry.items() if name not in _OUTSIDE_CONTENT}
    return hashlib.sha256(write(content) + bytes.fromhex(previous or "")).hexdigest()


def request_hash(params: Mapping[str, object]) -> str:
    """SHA-256 of the canonical params as received, in lower-case hex. Raises `CanonicalizationRejected`."""
    return hashlib.sha256(canonicalize(params)).hexdigest()


def verify_chain(entries: Iterable[Mapping[str, object]], *, previous: str | None = None) -> str | None:
    """The head of a chain whose every entry follows from the one before; None for no entries.

    `previous` is the head that the first of these entries continues. Raises `ChainBroken`. A cut tail does not show
    here: compare the head with one that was witnessed.
    """
    head = previous
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        _check_shape(index, entry)
        if entry.get("previous_hash") != head:
            raise ChainBroken(index, "previous_hash", f"entry {index} does not name the entry before it")
        if entry["entry_hash"] != _recomputed(index, entry, head):
            raise ChainBroken(index, "entry_hash", f"entry {index} does not have the hash it states")
        entry_id = cast("str", entry["entry_id"])
        if entry_id in seen:
            raise ChainBroken(index, "duplicate_entry_id", f"entry {index} repeats the id of an earlier one")
        seen.add(entry_id)
        head = cast("str", entry["entry_hash"])
    return head


def _check_shape(index: int, entry: Mapping[str, object]) -> None:
    for name in _REQUIRED:
        if not isinstance(entry.get(name), str):
            raise ChainBroken(index, "malformed", f"entry {index} has no text in {name}")
    if _DIGEST.fullmatch(cast("str", entry["entry_hash"])) is None:
        raise ChainBroken(index, "malformed", f"the entry_hash of entry {index} is not a digest")


def _recomputed(index: int, entry: Mapping[str, object], previous: str | None) -> str:
    try:
        return entry_hash(entry, previous)
    except CanonicalizationRejected as error:
        raise ChainBroken(index, "malformed", f"entry {index} has no canonical form: {error.message}") from error
