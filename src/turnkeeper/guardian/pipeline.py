"""The Guardian: one pipeline for every door, in the ledger's order of checks.

Answers for an answer to any body, and for its durability: id, nonce, entry, counters and signed answer are one commit
that ends before the answer leaves. Must never raise for what a peer sends, nor answer a fault of its own, once the
peer has shown its key, with anything but a signed DENY (an audit-only hook and a hello: a signed error). After a
failed commit it forgets what it believed and reads again what is durable.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from weakref import WeakValueDictionary

import structlog

from turnkeeper.acs import AcsError, AcsErrorCode, Decision, Disposition, ReplayDetected
from turnkeeper.clock import Clock, render_time
from turnkeeper.guardian.answers import internal_error, render_decision, render_error, render_pong
from turnkeeper.guardian.batches import batch_bodies, is_batch, render_batch
from turnkeeper.guardian.calls import Call, CallRefused, Door, Ping, read_call, warm_up
from turnkeeper.guardian.commits import GroupCommits
from turnkeeper.guardian.ports import (
    NOT_LOOKED_UP,
    GuardianStore,
    Lookup,
    NonceRecord,
    Record,
    RecordedAnswer,
    SessionArchived,
    StoreFailed,
    UsedBefore,
)
from turnkeeper.guardian.resubmissions import may_wait
from turnkeeper.guardian.sessions import LiveSession, Sessions
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.guardian.steps import Recorded, Repeated, StepDenied, StepDesk
from turnkeeper.guardian.subagents import SUBAGENT_STOP
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.hosted import Unheard

STORE_FAILED: Final = "store_failed"
OVERLOADED: Final = "overloaded"
SHUTTING_DOWN: Final = "shutting_down"
GUARDIAN_FAILED: Final = "guardian_failed"
MAX_HEARINGS: Final = 3
"""How often engines outside this process are asked about one step while its session changes."""

_REASONS = {
    STORE_FAILED: "The Guardian could not record this step, so it is denied.",
    OVERLOADED: "The Guardian has more requests than it may take at once.",
    SHUTTING_DOWN: "The Guardian is shutting down.",
    GUARDIAN_FAILED: "The Guardian failed while it decided this step, so it is denied.",
}

_log = structlog.get_logger(__name__)


class Guardian:
    """Decides steps. Start it and use it on one event loop."""

    def __init__(
        self, *, store: GuardianStore, engine: PolicyEngine, clock: Clock, settings: GuardianSettings | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings or GuardianSettings()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="guardian-writer")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="guardian-reader")
        self._sessions = Sessions(
            store,
            self._reader,
            max_sessions=self._settings.max_cached_sessions,
            max_ids=self._settings.max_remembered_ids,
        )
        self._commits = GroupCommits(
            store, self._writer, max_batch=self._settings.max_batch, on_failure=self._sessions.drop_all
        )
        self._desk = StepDesk(self._settings, self._sessions, engine)
        self._hearings = WeakValueDictionary[str, asyncio.Lock]()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = False

    @property
    def in_flight(self) -> int:
        """Requests between authentication and answer."""
        return self._in_flight

    @property
    def cached_sessions(self) -> int:
        """Sessions held in memory."""
        return len(self._sessions)

    async def start(self) -> None:
        """Opens the store. Raises `StoreFailed`."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, self._store.open)
        await loop.run_in_executor(self._reader, warm_up)
        self._open = True

    async def stop(self) -> None:
        """Takes no new steps, lets those in flight become durable, and closes the store; idempotent."""
        self._open = False
        await self._idle.wait()
        await self._commits.drained()
        await asyncio.get_running_loop().run_in_executor(None, self._shut)

    def forget(self, session_id: str) -> None:
        """Drops what is remembered of an idle session, so that the next step of it reads the store."""
        self._sessions.forget(session_id)

    async def answer(self, body: bytes, door: Door) -> bytes:
        """The answer to a body that came through a door, a batch's answers in its order. Never raises for any body."""
        if not is_batch(body):
            return await self._answer(body, door)
        try:
            bodies = batch_bodies(body, self._settings.json_limits, self._settings.max_batch_requests)
        except AcsError as refused:
            return render_error(refused, None, None)
        # One after the other: a batch is evaluated in the order in which it was declared.
        return render_batch([await self._answer(one, door) for one in bodies])

    async def _answer(self, body: bytes, door: Door) -> bytes:
        call: Call | None = None
        try:
            read = self._read(body, door)
            if isinstance(read, bytes):
                return read
            call = read
            return await self._admit(call)
        except Exception:  # noqa: BLE001  the request handler
            _log.exception("guardian_failed", request_id=None if call is None else call.envelope.request_id)
        return render_error(internal_error(), None, None) if call is None else _undecided(call, GUARDIAN_FAILED)

    def _read(self, body: bytes, door: Door) -> Call | bytes:
        """The call in a body, or the answer to what is none."""
        try:
            read = read_call(body, door, self._clock.now(), self._settings.json_limits)
        except CallRefused as refused:
            return render_error(refused.error, refused.rpc_id, refused.key)
        return render_pong(read, render_time(self._clock.now())) if isinstance(read, Ping) else read

    async def _admit(self, call: Call) -> bytes:
        if not self._open:
            return _undecided(call, SHUTTING_DOWN)
        if self._in_flight >= self._settings.max_in_flight:
            return _undecided(call, OVERLOADED)
        self._in_flight += 1
        self._idle.clear()
        try:
            return await self._answer_call(call)
        except AcsError as error:
            return render_error(error, call.envelope.id, call.key)
        except (StepDenied, SessionArchived) as denied:
            return _without_entry(call, _outside_session(call, denied))
        except StoreFailed as failed:
            _log.error("guardian_store_failed", request_id=call.envelope.request_id, problem=failed.message)
            return _undecided(call, STORE_FAILED)
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    async def _answer_call(self, call: Call) -> bytes:
        looked_up = await self._look_up(call)
        live, used = await self._find(call)
        try:
            taken = self._desk.take(call, live, used, looked_up)
        except Unheard as unheard:
            taken = await self._take_heard(call, unheard)
        if isinstance(taken, Repeated):
            return await self._answer_repeat(call, taken)
        await self._commit_step(taken)
        return taken.record.response

    async def _take_heard(self, call: Call, unheard: Unheard) -> Recorded | Repeated:
        """What is answered to a step that engines outside this process have a say in.

        Such steps of one session wait for each other; any other step may change what the engines were asked about.
        """
        hearing = self._hearings.setdefault(call.envelope.session_id, asyncio.Lock())
        waits = hearing.locked()
        with unheard.engine.held():
            async with hearing:
                # Whoever waited is heard about the session as the steps before have left it.
                heard: PolicyEngine = unheard.engine if waits else await unheard.hear()
                hearings = 0 if waits else 1
                while True:
                    looked_up = await self._look_up(call)
                    live, used = await self._find(call)
                    try:
                        return self._desk.take(call, live, used, looked_up, heard)
                    except Unheard as changed:
                        hearings += 1
                        heard = await changed.hear(final=hearings >= MAX_HEARINGS)

    async def _find(self, call: Call) -> tuple[LiveSession | None, UsedBefore | None]:
        envelope = call.envelope
        used: UsedBefore | None = None
        while True:
            live = await self._sessions.find(envelope.session_id)
            if live is None or live.memory.complete or used is not None:
                return live, used
            # What is recorded from here on is in the session's memory, whatever the store says meanwhile.
            used = await self._sessions.find_used(
                envelope.session_id, envelope.request_id, envelope.nonce, call.reference
            )

    async def _look_up(self, call: Call) -> Lookup:
        """What a step names: the question it was asked before, or the head of its subagent's session.

        A subagent's session counts where it is one of ours under the same key.
        """
        if call.reference is not None and may_wait(call.spec):
            return Lookup(approval=await self._sessions.find_approval(call.envelope.session_id, call.reference))
        named = call.envelope.payload.get("subagent_session_id")
        if call.envelope.method != SUBAGENT_STOP or not isinstance(named, str):
            return NOT_LOOKED_UP
        try:
            subagent = await self._sessions.find(named)
        except SessionArchived as archived:
            return Lookup(subagent_head=archived.head) if archived.key_id == call.key.key_id else NOT_LOOKED_UP
        if subagent is None or subagent.terms.key_id != call.key.key_id:
            return NOT_LOOKED_UP
        return Lookup(subagent_head=subagent.progress.head)

    def _commit_step(self, taken: Recorded) -> asyncio.Future[None]:
        live, record = taken.live, taken.record
        live.progress = record.progress
        live.memory.add_request_id(record.request_id, record.method if record.entry is not None else "")
        live.lineage.add(record.lineage)
        if record.nonce is not None:
            live.memory.add_nonce(record.nonce)
        return self._submit(live, record)

    def _submit(self, live: LiveSession, record: Record) -> asyncio.Future[None]:
        live.pin()
        return self._commits.submit(record, live.unpin)

    async def _answer_repeat(self, call: Call, repeated: Repeated) -> bytes:
        """-32005 with the earlier answer, which by then is durable, and so is the nonce that asked for it."""
        repeated.live.memory.add_nonce(repeated.nonce)
        await self._submit(repeated.live, NonceRecord(call.envelope.session_id, repeated.nonce))
        used = await self._sessions.find_used(call.envelope.session_id, call.envelope.request_id, None)
        if used.request is None:
            raise StoreFailed("the request that is repeated was not recorded")
        error = ReplayDetected("request_id")
        error.data["recorded"] = _recorded(used.request)
        return render_error(error, call.envelope.id, call.key)

    def _shut(self) -> None:
        self._writer.shutdown()
        self._reader.shutdown()
        self._store.close()


def _recorded(answer: RecordedAnswer) -> dict[str, object]:
    told: dict[str, object] = {"decision": answer.decision, "chain_hash": answer.chain_hash}
    if answer.error_code is not None:
        told["code"] = answer.error_code
    return told


def _undecided(call: Call, code: str) -> bytes:
    return _without_entry(call, internal_error(code, _REASONS[code]))


def _outside_session(call: Call, denied: StepDenied | SessionArchived) -> AcsError:
    """Why a step leaves no record: its session is another's, or has left for an archive."""
    if isinstance(denied, SessionArchived):
        return AcsError(AcsErrorCode.SESSION_REFUSED, denied.error_code, "The session is over and archived.")
    _log.warning("step_of_another_session_holder", code=denied.code, session_id=call.envelope.session_id)
    return AcsError(AcsErrorCode.SESSION_REFUSED, denied.code, denied.reasoning)


def _without_entry(call: Call, error: AcsError) -> bytes:
    """DENY for the reason of an error, which itself is the answer where nothing may be denied."""
    if call.audit_only or call.spec is None:
        return render_error(error, call.envelope.id, call.key)
    return render_decision(call, Decision(Disposition.DENY, error.message, (error.reason,)), None)
