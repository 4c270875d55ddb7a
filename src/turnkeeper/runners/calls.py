"""What a runner may ask of its turn (contract 2.11): its calls as frames to the worker, whose word is the answer.

Answers for calls of one lease reaching that lease's box and no other, and for what a runner may say about a turn:
its own text while it is written, its own calls, submissions and its report. Must never write an event of its own: what
is stored, the worker stores.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from turnkeeper.acs import JsonObject, JsonValue
from turnkeeper.api.bodies import JsonBody
from turnkeeper.clock import Clock, render_time
from turnkeeper.errors import TurnkeeperError
from turnkeeper.ids import is_id
from turnkeeper.runners.boxes import LeaseOver, RemoteLoopBox
from turnkeeper.runners.documents import RunnerFields
from turnkeeper.runners.pools import RunnerPools
from turnkeeper.runners.reports import ReportInvalid, is_acknowledgement, parse_report
from turnkeeper.runners.texts import STREAMED, Piece
from turnkeeper.runners.tokens import Holder
from turnkeeper.sandbox.protocol import (
    Report,
    ResponseDenied,
    SubmissionResult,
    Submit,
    ToolAsked,
    ToolRan,
    ToolResult,
    ToolRuled,
)
from turnkeeper.turns.model import StopReason, Turn, TurnStatus
from turnkeeper.turns.ports import TurnStore, Wakeups

MAX_EVENTS: Final = 256
CONCLUDE_MS: Final = 30_000
"""How long an ending may take to be written after its report was heard: the boxes go first."""
CONCLUDE_POLL_MS: Final = 250
MAX_REMEMBERED: Final = 1_000

_REPORTED: Final = frozenset(
    {
        StopReason.END_TURN,
        StopReason.BUDGET_REACHED,
        StopReason.AGENT_ERROR,
        StopReason.MODEL_ERROR,
        StopReason.DENIED_OUTPUT,
        StopReason.GUARDIAN_UNAVAILABLE,
    }
)
"""Endings that a report leads to. One that has another was not heard."""
_IN_QUEUE: Final = frozenset({TurnStatus.QUEUED, TurnStatus.STARTING, TurnStatus.PAUSED})


class EventNotAllowed(TurnkeeperError):
    """A runner may not write this event."""

    code = "event_not_allowed"


class RunnerCalls:
    """The calls of all runners of a process."""

    def __init__(self, pools: RunnerPools, store: TurnStore, wakeups: Wakeups, clock: Clock) -> None:
        self._pools = pools
        self._store = store
        self._wakeups = wakeups
        self._clock = clock
        self._reports: OrderedDict[Holder, dict[bytes, asyncio.Task[JsonObject]]] = OrderedDict()

    async def started(self, box: RemoteLoopBox, body: JsonBody) -> JsonObject:
        """Agent code is about to run."""
        fields = RunnerFields(body.members, {"fence", "sandbox_id"})
        if fields.text("sandbox_id") != box.sandbox_id:
            raise fields.wrong("sandbox_id", "is not the one that the lease names")
        await box.begin()
        return {"turn_id": box.holder.turn_id, "status": "running"}

    async def heartbeat(self, box: RemoteLoopBox, body: JsonBody) -> JsonObject:
        """The runner lives; what it has to know."""
        fields = RunnerFields(body.members, {"fence", "beat"})
        box.beat_again(fields.integer("beat"))
        turn = await self._store.turn(box.holder.turn_id)
        return {
            "lease_expires_at": render_time(box.expires_at()),
            "cancel": {
                "requested": box.stop is not None,
                "mode": turn.cancel_mode,
                "deadline": None if box.stop is None else render_time(box.stop.deadline),
            },
            "budget_left": await self._store.budget_left(turn.id),
            "messages": [],
        }

    async def events(self, box: RemoteLoopBox, body: JsonBody) -> JsonObject:
        """Text as it is written. All of a call is looked at before any of it counts; what came before counts once."""
        fields = RunnerFields(body.members, {"fence", "events"})
        news = [_piece(box, item) for item in fields.objects("events", MAX_EVENTS)]
        for worker_seq, piece in news:
            if worker_seq > box.worker_seq:
                delta = box.texts.taken(piece)
                box.worker_seq = worker_seq
                await box.tell(delta)
        return {"accepted_through": box.worker_seq}

    async def step(self, box: RemoteLoopBox, body: JsonBody) -> JsonObject:
        """What the Guardian says of a call that the runner wants to make, or of what it gave."""
        fields = RunnerFields(body.members, {"fence", "hook", "payload"})
        hook = fields.choice("hook", ("toolCallRequest", "toolCallResult"))
        payload = fields.object("payload")
        return await (self._request(box, payload) if hook == "toolCallRequest" else self._result(box, payload))

    async def submission(self, box: RemoteLoopBox, body: JsonBody) -> JsonObject:
        """What became of a value that the agent submits for the turn's output schema."""
        RunnerFields(body.members, {"fence", "value"}).require("value")
        result = await self._submit(box, body.slices["value"])
        return {
            "submission": result.submission,
            "accepted": result.accepted,
            "closed": result.closed,
            "attempts_left": result.attempts_left,
            "errors": [*result.errors],
        }

    async def report(self, holder: Holder, box: RemoteLoopBox | None, body: JsonBody) -> JsonObject:
        """The end of the turn, or why the Guardian refuses this one. The same report again has the same answer.

        Raises `ReportInvalid`, `LeaseOver`.
        """
        report = parse_report(body)
        if box is not None and is_acknowledgement(body) and box.stop is None:
            raise ReportInvalid("nobody asked this turn to stop", hint="Report completed or failed.")
        digest = _digest(body)
        earlier = self._reports.get(holder, {}).get(digest)
        if earlier is None:
            if box is None:
                return await self._ended_before(holder)
            earlier = self._begin(holder, digest, box, report)
        return await asyncio.shield(earlier)

    async def is_paused(self, holder: Holder) -> bool:
        """Whether the turn of a lease that is over waits for somebody, and will be leased again."""
        turn = await self._store.turn(holder.turn_id)
        return turn.status is TurnStatus.PAUSED and turn.cancel_mode is None

    def _begin(self, holder: Holder, digest: bytes, box: RemoteLoopBox, report: Report) -> asyncio.Task[JsonObject]:
        reporting = asyncio.ensure_future(self._reported(holder, box, report))
        # Read here, because whoever reported may have hung up.
        reporting.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._reports.setdefault(holder, {})[digest] = reporting
        self._reports.move_to_end(holder)
        if len(self._reports) > MAX_REMEMBERED:
            self._reports.popitem(last=False)
        return reporting

    async def _reported(self, holder: Holder, box: RemoteLoopBox, report: Report) -> JsonObject:
        try:
            if report.status == "completed" and box.stop is None:
                report = await self._with_result(box, report)
            answer = await box.ask(report)
        except LeaseOver:
            # That is how it ends for a report that failed, and for one that came after word of a cancel.
            return await self._concluded(holder)
        if isinstance(answer, ResponseDenied):
            return {"denied": True, "reasons": [*answer.reasons], "repair_attempts_left": answer.attempts_left}
        return await self._concluded(holder)

    async def _with_result(self, box: RemoteLoopBox, report: Report) -> Report:
        """The report with its result as a submission like any other (contract 5.2), made now if it was not before."""
        if box.start is None or box.start.output_schema is None or report.result_error is not None:
            return _without_null(report)
        if report.result == box.accepted:
            return report
        result = await self._submit(box, report.result or "null")
        if result.accepted:
            return report
        return replace(report, result=None, result_error="invalid")

    async def _submit(self, box: RemoteLoopBox, value_json: str) -> SubmissionResult:
        result = cast("SubmissionResult", await box.ask(Submit(value_json)))
        if result.accepted:
            box.accepted = value_json
        return result

    async def _concluded(self, holder: Holder) -> JsonObject:
        """The ending that the turn has now. Raises `LeaseOver` where it has none under this fence."""
        deadline_ms = self._clock.monotonic_ms() + CONCLUDE_MS
        while True:
            turn = await self._store.turn(holder.turn_id)
            if turn.status.terminal or turn.fence != holder.fence or turn.status in _IN_QUEUE:
                return _ending(turn, holder, canceled=True)
            if self._clock.monotonic_ms() >= deadline_ms:
                raise LeaseOver(f"{holder.turn_id} did not end with this report")
            await self._wakeups.wait(turn.session_id, timeout_ms=CONCLUDE_POLL_MS)

    async def _ended_before(self, holder: Holder) -> JsonObject:
        # Of a report that acknowledged a cancel nothing is known any more, so it is as if it had come too late.
        return _ending(await self._store.turn(holder.turn_id), holder, canceled=False)

    async def _request(self, box: RemoteLoopBox, payload: Mapping[str, JsonValue]) -> JsonObject:
        fields = RunnerFields(payload, {"tool_call_id", "name", "arguments"}, "/payload")
        arguments = json.dumps(fields.object("arguments"), ensure_ascii=False)
        asked = ToolAsked(fields.text("tool_call_id"), fields.text("name"), arguments)
        ruled = cast("ToolRuled", await box.ask(asked))
        if not ruled.allowed:
            return {"decision": "deny", "reason": ruled.reason, "arguments": None}
        changed = json.loads(ruled.arguments)
        decision = "allow" if changed == json.loads(arguments) else "modify"
        return {"decision": decision, "reason": None, "arguments": changed}

    async def _result(self, box: RemoteLoopBox, payload: Mapping[str, JsonValue]) -> JsonObject:
        fields = RunnerFields(payload, {"tool_call_id", "status", "output"}, "/payload")
        status = cast("Any", fields.choice("status", ("ok", "error")))
        told = ToolRan(fields.text("tool_call_id"), status, fields.text("output"))
        result = cast("ToolResult", await box.ask(told))
        decision = "allow" if result.content == told.content else "modify"
        return {
            "decision": "deny" if result.status == "denied" else decision,
            "status": result.status,
            "output": result.content,
            "notice": result.notice or None,
        }


def _piece(box: RemoteLoopBox, item: Mapping[str, JsonValue]) -> tuple[int, Piece]:
    """One event of a call. Raises `EventNotAllowed` for anything that is not the runner's to say."""
    fields = RunnerFields(item, {"worker_seq", "type", "data"}, "/events")
    event_type, worker_seq = fields.text("type"), fields.integer("worker_seq")
    kind = STREAMED.get(event_type)
    if kind is None:
        raise EventNotAllowed(
            f"a runner may not write {event_type[:64]!r}",
            hint=f"Written by runners: {', '.join(STREAMED)}. Calls go by steps, values by submissions.",
        )
    data = RunnerFields(fields.object("data"), {"turn_id", "message_id", "offset", "text"}, "/events/data")
    if data.text("turn_id") != box.holder.turn_id:
        raise EventNotAllowed("the event is about another turn")
    message_id = data.text("message_id")
    if not is_id(message_id, "msg"):
        raise data.wrong("message_id", "is not the id of a message")
    return worker_seq, Piece(message_id, kind, data.integer("offset", low=0), data.text("text"))


def _ending(turn: Turn, holder: Holder, *, canceled: bool) -> JsonObject:
    reason = turn.stop_reason
    was_heard = reason in _REPORTED or (canceled and turn.status is TurnStatus.CANCELED)
    if reason is None or not was_heard or turn.fence != holder.fence or turn.terminal_event_id is None:
        raise LeaseOver(f"{turn.id} is no longer this runner's", hint="Stop, and ask for another lease.")
    return {"event_id": turn.terminal_event_id, "status": turn.status.value, "stop_reason": reason.value}


def _digest(body: JsonBody) -> bytes:
    pairs: Sequence[tuple[str, str]] = sorted(body.slices.items())
    return hashlib.sha256(json.dumps(pairs).encode()).digest()


def _without_null(report: Report) -> Report:
    return replace(report, result=None) if report.result == "null" else report
