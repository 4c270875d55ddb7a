"""One question to the Guardian, from the first send to a decision or to the reason why there is none (ACS 6.4).

Answers for fresh time, nonce and signature at every send, for the recovery that fits into the time there is, and for
watching what answers too late. Must never let a late answer change what was done (CORE-HON-10).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from turnkeeper.acs import (
    PING_METHOD,
    CanonicalizationRejected,
    ObservedSession,
    Refusal,
    ServerHello,
    TimestampMalformed,
    Verdict,
    parse_timestamp,
)
from turnkeeper.acs.strictjson import is_object
from turnkeeper.client.answers import Read, failure_of_refusal, read_answer
from turnkeeper.client.errors import TransportFailed
from turnkeeper.client.posture import Failure, FailureKind
from turnkeeper.client.recovery import Move, leaves_doubt, next_move, recorded_verdict
from turnkeeper.client.settings import ClientSettings
from turnkeeper.client.timing import Time, is_done_within
from turnkeeper.client.transports import Transport
from turnkeeper.clock import render_time
from turnkeeper.errors import LocalProtocolError
from turnkeeper.ids import IdSource

MAX_WATCHED: Final = 64
"""How many unanswered requests are listened for after their time; the oldest is given up for a newer one."""

LateNote: TypeAlias = Callable[[Verdict], None]


@dataclass(frozen=True, slots=True)
class Message:
    """What is asked, apart from who asks and when."""

    method: str
    payload: Mapping[str, object]
    request_id: str
    turn_id: str | None = None
    chain_hash: str | None = None
    metadata: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """The end of a question: a decision, terms, or a failure.

    `request_id` is that of the last send. `doubtful` says that the Guardian may hold an entry nobody knows of. `raw`
    is the answer as it came, kept for terms alone.
    """

    answer: Verdict | ServerHello | Failure
    request_id: str
    doubtful: bool = False
    raw: bytes = b""


class Exchange:
    """The client's side of the wire, for every session."""

    def __init__(self, transport: Transport, settings: ClientSettings, *, time: Time, ids: IdSource) -> None:
        self._transport = transport
        self._settings = settings
        self._time = time
        self._ids = ids
        self._ahead = timedelta()
        self._watched: dict[asyncio.Task[bytes], None] = {}

    async def ask(self, observed: ObservedSession, message: Message, *, budget_ms: int, late: LateNote) -> Heard:
        """Sends until there is an answer that decides, the tries are used up, or the time is over."""
        deadline_ms = self._time.monotonic_ms() + budget_ms
        backoff_ms, doubtful, repeated = self._settings.timing.first_backoff_ms, set[str](), False
        for left in reversed(range(self._settings.timing.max_attempts)):
            read, raw = await self._send(observed, message, deadline_ms, late)
            doubtful.discard(message.request_id)
            if leaves_doubt(read):
                doubtful.add(message.request_id)
            move = next_move(read, repeated=repeated)
            repeated = move is not Move.ANEW
            if move is Move.STOP or left == 0 or self._left_ms(deadline_ms) <= backoff_ms:
                return _heard(read, message.request_id, doubtful, raw)
            if move is Move.ANEW:
                message = replace(message, request_id=self._ids.uuid())
            elif move is Move.CLOCK:
                await self._set_clock(observed, deadline_ms)
            else:
                await self._time.sleep(backoff_ms)
                backoff_ms *= 2
        raise LocalProtocolError("a question was asked no times")

    async def ping(self, observed: ObservedSession, *, timeout_ms: int, echo: str | None = None) -> Verdict | Failure:
        """One signed `system/ping`, whose answer must be signed too (ledger section 15)."""
        payload = {} if echo is None else {"echo": echo}
        message = Message(PING_METHOD, payload, self._ids.uuid())
        read, _ = await self._send(observed, message, self._time.monotonic_ms() + timeout_ms, _unheard)
        answer = _heard(read, message.request_id, set[str](), b"").answer
        if isinstance(answer, ServerHello):
            return Failure(FailureKind.MALFORMED, "the answer is none to a ping")
        return answer

    async def close(self) -> None:
        """Stops listening for late answers."""
        watched, self._watched = list(self._watched), {}
        for task in watched:
            task.cancel()
        if watched:
            await asyncio.wait(watched)

    def _left_ms(self, deadline_ms: int) -> int:
        return max(deadline_ms - self._time.monotonic_ms(), 0)

    async def _send(
        self, observed: ObservedSession, message: Message, deadline_ms: int, late: LateNote
    ) -> tuple[Read, bytes]:
        body = self._signed(observed, message)
        if isinstance(body, Failure):
            return body, b""
        left_ms = self._left_ms(deadline_ms)
        task = asyncio.ensure_future(self._transport.exchange(body, timeout_ms=left_ms + self._settings.timing.late_ms))
        if not await is_done_within(self._time, task, left_ms):
            self._watch(task, observed, message.request_id, late)
            return Failure(FailureKind.TIMEOUT, f"no answer within {left_ms} ms"), b""
        try:
            raw = task.result()
        except TransportFailed as error:
            return Failure(FailureKind.TRANSPORT, error.message), b""
        return read_answer(observed, raw, message.request_id), raw

    def _signed(self, observed: ObservedSession, message: Message) -> bytes | Failure:
        try:
            body = observed.request(
                message.method,
                message.payload,
                request_id=message.request_id,
                timestamp=render_time(self._time.now() + self._ahead),
                nonce=self._ids.uuid(),
                turn_id=message.turn_id,
                chain_hash=message.chain_hash,
                metadata=message.metadata,
            )
        except CanonicalizationRejected as error:
            return Failure(FailureKind.UNSENDABLE, f"the step cannot be signed: {error.message}")
        if len(body) > self._settings.max_payload_bytes:
            return Failure(FailureKind.UNSENDABLE, f"the step has more than {self._settings.max_payload_bytes} bytes")
        return body

    def _watch(self, task: "asyncio.Task[bytes]", observed: ObservedSession, request_id: str, late: LateNote) -> None:
        def finished(done: "asyncio.Task[bytes]") -> None:
            self._watched.pop(done, None)
            if not done.cancelled() and done.exception() is None:
                read = read_answer(observed, done.result(), request_id)
                if isinstance(read, Verdict):
                    late(read)

        self._watched[task] = None
        task.add_done_callback(finished)
        if len(self._watched) > MAX_WATCHED:
            next(iter(self._watched)).cancel()

    async def _set_clock(self, observed: ObservedSession, deadline_ms: int) -> None:
        """Learns the Guardian's time from a ping whose answer is proven; an unproven time moves nothing."""
        answer = await self.ping(observed, timeout_ms=self._left_ms(deadline_ms))
        theirs = _server_time(answer) if isinstance(answer, Verdict) else None
        if theirs is not None:
            self._ahead = theirs - self._time.now()


def _heard(read: Read, request_id: str, doubtful: set[str], raw: bytes) -> Heard:
    if isinstance(read, Refusal):
        recorded = recorded_verdict(read)
        if recorded is not None:
            return Heard(recorded, request_id, bool(doubtful - {request_id}))
        return Heard(failure_of_refusal(read), request_id, bool(doubtful))
    return Heard(read, request_id, bool(doubtful), raw if isinstance(read, ServerHello) else b"")


def _server_time(verdict: Verdict) -> datetime | None:
    payload = verdict.result.get("payload")
    told = payload.get("server_timestamp") if is_object(payload) else None
    try:
        return parse_timestamp(told) if isinstance(told, str) else None
    except TimestampMalformed:
        return None


def _unheard(_: Verdict) -> None:
    """Nobody waits for a ping that comes too late."""
