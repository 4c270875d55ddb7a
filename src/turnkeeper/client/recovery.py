"""What to do about an answer that is no decision, while there is time (CORE-HON-06, RPL-07).

Pure. A wire that broke is tried again under the same request_id with a new nonce, because a Guardian decides an id
once: it then says what it had decided (our extension, `data.recorded`), or only that it had, and then the step is
asked anew under another id. Must never try again what would be refused again.
"""

from enum import StrEnum

from turnkeeper.acs import AcsErrorCode, Disposition, Refusal, ServerHello, Verdict
from turnkeeper.client.answers import Read
from turnkeeper.client.posture import Failure, FailureKind


class Move(StrEnum):
    """The next thing to do."""

    STOP = "stop"
    REPEAT = "repeat"
    ANEW = "anew"
    CLOCK = "clock"


_BY_CODE = {
    AcsErrorCode.SIGNATURE_INVALID: Move.REPEAT,
    AcsErrorCode.INTERNAL_ERROR: Move.REPEAT,
    AcsErrorCode.REPLAY_DETECTED: Move.ANEW,
    AcsErrorCode.TIMESTAMP_OUT_OF_WINDOW: Move.CLOCK,
}
_WITHOUT_DETAILS = frozenset({Disposition.ALLOW, Disposition.DENY})
_BROKEN = frozenset({FailureKind.TRANSPORT, FailureKind.MALFORMED, FailureKind.SIGNATURE})


def next_move(read: Read, *, repeated: bool) -> Move:
    """What may still bring a decision. `repeated` says that this id had been sent before.

    A first send that counts as a replay was doubled by the wire: a repeat with a new nonce brings the record.
    """
    if isinstance(read, Verdict | ServerHello):
        return Move.STOP
    if isinstance(read, Refusal):
        if recorded_verdict(read) is not None:
            return Move.STOP
        doubled = read.code == AcsErrorCode.REPLAY_DETECTED and read.recorded is None and not repeated
        return Move.REPEAT if doubled else _by_code(read.code)
    if read.kind in _BROKEN:
        return Move.REPEAT
    return Move.STOP if read.code is None else _by_code(read.code)


def recorded_verdict(refusal: Refusal) -> Verdict | None:
    """The decision a Guardian recorded for a repeated request, where it can be obeyed without its details."""
    recorded = refusal.recorded if refusal.code == AcsErrorCode.REPLAY_DETECTED else None
    decision = None if recorded is None else recorded.decision
    if recorded is None or decision is None or decision not in _WITHOUT_DETAILS:
        return None
    return Verdict(decision, None, (), recorded.chain_hash, {})


def leaves_doubt(read: Read) -> bool:
    """Whether the Guardian may have written the step although its answer is not known."""
    if isinstance(read, Failure):
        return read.kind in _BROKEN or read.kind is FailureKind.TIMEOUT
    return isinstance(read, Refusal) and read.code == AcsErrorCode.REPLAY_DETECTED


def _by_code(code: int) -> Move:
    try:
        return _BY_CODE.get(AcsErrorCode(code), Move.STOP)
    except ValueError:
        return Move.STOP
