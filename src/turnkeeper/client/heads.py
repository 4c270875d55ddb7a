"""The heads of a session's chain as the agent saw them (CORE-CH-05, CORE-CH-08): do they go on from one another?

Answers for the last published head and for what an agent can know of a chain that it does not hold: every entry has a
head of its own, and a Guardian knows the head that it published. What lies between two heads only the Guardian's own
export shows (`turnkeeper verify --against`). Pure.
"""

from dataclasses import dataclass
from typing import Final

from turnkeeper.acs import Disposition, Verdict

HEAD_MISMATCH: Final = "head_mismatch"
CHAIN_MISMATCH: Final = "chain_mismatch"
HEAD_REPEATED: Final = "chain_head_repeated"
HEAD_REFUSED: Final = "chain_head_refused"
HEAD_MISSING: Final = "chain_head_missing"
MAX_HEADS: Final = 1_024
"""Heads of a session that are remembered; one that is older could be published again unseen."""
MAX_BREAKS: Final = 64


@dataclass(frozen=True, slots=True)
class HeadBreak:
    """An answer that does not go on from what was witnessed. `witnessed` is the head before, `published` the new one.

    `code` is `chain_head_repeated` (a new entry has an earlier head), `chain_head_refused` (the Guardian denies the
    very head that it published) or `chain_head_missing` (a decision without an entry).
    """

    code: str
    request_id: str
    witnessed: str | None
    published: str | None


class WitnessedHeads:
    """What one session was shown."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._last: str | None = None
        self._breaks: list[HeadBreak] = []

    @property
    def last(self) -> str | None:
        """The last head that was published, whatever became of later answers."""
        return self._last

    @property
    def breaks(self) -> tuple[HeadBreak, ...]:
        """What did not go on, the first `MAX_BREAKS` of it."""
        return tuple(self._breaks)

    def witness(self, request_id: str, verdict: Verdict, *, stated: str | None) -> HeadBreak | None:
        """Takes an answer's head; what is wrong with it. `stated` is the head that the request named."""
        published, before = verdict.chain_hash, self._last
        code = self._code(verdict, stated)
        if published is not None:
            self._remember(published)
        if code is None:
            return None
        found = HeadBreak(code, request_id, before, published)
        if len(self._breaks) < MAX_BREAKS:
            self._breaks.append(found)
        return found

    def _code(self, verdict: Verdict, stated: str | None) -> str | None:
        if verdict.chain_hash in self._seen:
            return HEAD_REPEATED
        if stated is not None and CHAIN_MISMATCH in verdict.reason_codes:
            return HEAD_REFUSED
        if verdict.chain_hash is None and self._last is not None and verdict.decision is not Disposition.DENY:
            return HEAD_MISSING
        return None

    def _remember(self, head: str) -> None:
        self._last = head
        self._seen[head] = None
        if len(self._seen) > MAX_HEADS:
            del self._seen[next(iter(self._seen))]
