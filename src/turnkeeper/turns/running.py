"""A running turn (contract 6, rows 13 to 22): what the harness proposes and what becomes of it.

Answers for how the turn ends, whatever the harness does: it may lie, flood, fall silent or vanish. Must never publish a
text or a value that no Guardian allowed (amendment 7), and believes nothing the harness says about usage, time or
budgets (amendment 6).
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from turnkeeper.acs import Marks
from turnkeeper.errors import TurnkeeperError
from turnkeeper.events import catalogue
from turnkeeper.events.catalogue import LossReason
from turnkeeper.events.envelope import NewEvent
from turnkeeper.sandbox.protocol import (
    Cancel,
    Canceled,
    Compacted,
    CompactionAsked,
    Done,
    FromHarness,
    HarnessProtocolError,
    Report,
    ResponseDenied,
    Submit,
    TextDelta,
    ToHarness,
    ToolAsked,
    ToolRan,
    ToolRequest,
    ToolResult,
    Ungoverned,
)
from turnkeeper.turns import endings, payloads
from turnkeeper.turns.box_ports import GatewayHandle, LoopBox, LoopEndReason
from turnkeeper.turns.client_step import ClientSteps
from turnkeeper.turns.compaction import Compactions
from turnkeeper.turns.endings import Ran
from turnkeeper.turns.equipment import Equipment
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.holding import Held, NotContinued, Parked, Pauses, Stopwatch
from turnkeeper.turns.interrupts import Interrupt, Interrupted, Interrupts
from turnkeeper.turns.lease import Lease
from turnkeeper.turns.leftovers import Leftovers
from turnkeeper.turns.lifecycle import Happening
from turnkeeper.turns.meter import LedgerMeter
from turnkeeper.turns.model import CallGrant, Claim, Draft, Ending, ResultError, StopReason, Turn
from turnkeeper.turns.reports import Answer, changed_answer, read_report, stopped_report, usage_news
from turnkeeper.turns.results import result_after_validation
from turnkeeper.turns.resuming import NOTHING_BEFORE, Resumed
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.subagents import Subagents
from turnkeeper.turns.submissions import Repairs, Submissions
from turnkeeper.turns.threads import Fate
from turnkeeper.turns.timing import stop_task, within
from turnkeeper.turns.token_stream import TokenStream
from turnkeeper.turns.tool_step import ToolSteps
from turnkeeper.turns.workbench import Workbench

WRAP_UP_NOTICE: Final = (
    "This turn's budget is almost used. Finish now: submit your result if one is asked for, and give your answer."
)

_LOST: Final[tuple[LossReason, str]] = ("host_lost", "the sandbox ended without a report")
_LOSSES: Final[Mapping[LoopEndReason | None, tuple[LossReason, str]]] = {
    "oom": ("oom", "the sandbox used up its memory"),
    "lease_expired": ("lease_expired", "the runner did not say in time that it lives"),
}

_log = structlog.get_logger(__name__)


class BoxFailed(Exception):
    """The loop box cannot be used any more; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class End:
    """How a turn ends, and what is news about it. Without an ending it waits, and nobody holds it any more."""

    ending: Ending | None
    news: tuple[NewEvent, ...] = ()


class Running:
    """One running turn."""

    def __init__(
        self,
        bench: Workbench,
        claim: Claim,
        turn: Turn,
        lease: Lease,
        *,
        box: LoopBox,
        handle: GatewayHandle,
        meter: LedgerMeter,
        interrupts: Interrupts,
        equipment: Equipment,
        resumed: Resumed | None = None,
    ) -> None:
        self._bench = bench
        self._agent = claim.agent
        self._turn = turn
        self._lease = lease
        self._box = box
        self._handle = handle
        self._meter = meter
        self._interrupts = interrupts
        self._party = Party(turn.session_id, turn.agent_id)
        self._before = NOTHING_BEFORE if resumed is None else resumed.before
        self._watch = Stopwatch(bench.clock, turn.active_ms)
        self._frames = 0
        self._noticed = False
        self._repairs = Repairs(max(turn.max_repair_attempts - self._before.repairs_used, 0))
        self._speech = TokenStream(bench, turn, lambda: lease.fence, live=claim.agent.stream_before_decision)
        self._pauses = Pauses(bench, self._held(claim))
        self._leftovers = Leftovers(bench, turn, claim.session.project_id)
        self._went_before = resumed is not None or turn.attempt > 1
        self.tools = ToolSteps(
            bench,
            claim,
            turn,
            lambda: lease.fence,
            equipment=equipment,
            pauses=self._pauses,
            on_spent=meter.close,
            resumed=None if resumed is None else resumed.pause,
        )
        self._subagents = Subagents(bench, claim, turn, lambda: lease.fence, talk=self, tools=self.tools, meter=meter)
        self.tools.delegate = self._subagents.run
        self.client_steps = ClientSteps(self.tools, bench.clock, output_bytes=bench.settings.tool_output_bytes)
        self.compactions = Compactions(bench, turn, lambda: lease.fence, meter)
        self._submissions = Submissions(
            turn,
            bench.store,
            bench.checker,
            self._repairs,
            lambda: lease.fence,
            result_bytes=bench.settings.result_bytes,
            max_submissions=bench.settings.max_submissions,
            tally=self._before.tally,
        )

    @property
    def ran(self) -> Ran:
        """What is known of the run so far."""
        return Ran(self._watch.elapsed_ms, self._submissions.tally)

    async def converse(self) -> End:
        """Listens to the harness until the turn has an end, or waits without its boxes. Raises `StaleFence`."""
        self._meter.on_spent, self._meter.on_granted = self._budget_spent, self._granted
        self._meter.elapsed_ms = lambda: self._watch.elapsed_ms
        self._set_timers()
        try:
            while True:
                end = await self._interrupts.give_way(self._next())
                if end is not None:
                    return end
        except Parked:
            return End(None)
        except NotContinued as refused:
            return End(refused.ending)
        except BoxFailed as failed:
            return self._lost(failed.code)
        except HarnessProtocolError as error:
            return self._lost(self._failed(error).code)
        except Interrupted as interrupted:
            return await self._stopped(interrupted.interrupt)

    async def receive(self) -> FromHarness:
        """The harness's next frame. Raises `BoxFailed`."""
        return await self._receive()

    async def send(self, frame: ToHarness) -> None:
        """Hands the harness a frame. Raises `BoxFailed`."""
        await self._send(frame)

    def with_notice(self, result: ToolResult) -> ToolResult:
        """The result; once in a turn, when little of a budget is left, with word of it."""
        if self._noticed or not self._meter.wraps_up:
            return result
        self._noticed = True
        return replace(result, notice=WRAP_UP_NOTICE)

    def obeyed(self) -> None:
        """A subagent has stopped: until its agent hears of it, nobody ignores a budget."""
        self._interrupts.disarm(Interrupt.BUDGET_IGNORED)

    def fall_silent(self) -> None:
        """The turn has ended, or waits: nothing of what it was writing is open any more."""
        self._speech.close()

    @property
    def _spent(self) -> bool:
        return self._meter.spent or self._handle.budget_reached

    def _held(self, claim: Claim) -> Held:
        return Held(
            claim,
            self._turn,
            fence=lambda: self._lease.fence,
            watch=self._watch,
            ran=lambda: self.ran,
            on_wait=self._stop_timers,
            on_go=self._set_timers,
        )

    def _set_timers(self) -> None:
        left_ms = max(self._agent.limits.timeout_ms - self._watch.elapsed_ms, 0)
        self._interrupts.after(left_ms, Interrupt.TIME_OVER)
        own_ms = None if self._turn.budget is None else self._turn.budget.max_active_ms
        self._limit_time(None if own_ms is None else own_ms - self._watch.elapsed_ms)
        if self._meter.spent:
            self._budget_spent()

    def _stop_timers(self) -> None:
        # What a turn waits for others is not its own time.
        for timer in (Interrupt.TIME_OVER, Interrupt.TIME_SPENT, Interrupt.BUDGET_IGNORED):
            self._interrupts.disarm(timer)

    def _budget_spent(self) -> None:
        self._interrupts.after(self._bench.settings.budget_grace_ms, Interrupt.BUDGET_IGNORED)

    def _granted(self, grant: CallGrant) -> None:
        self._limit_time(grant.active_left_ms)

    def _limit_time(self, left_ms: int | None) -> None:
        if left_ms is None:
            return
        self._interrupts.disarm(Interrupt.TIME_SPENT)
        self._interrupts.after(max(left_ms, 0), Interrupt.TIME_SPENT)

    async def _next(self) -> End | None:
        frame = await self._receive()
        if not isinstance(frame, TextDelta | Report):
            self._speech.close()
        match frame:
            case TextDelta():
                await self._heard(frame)
            case ToolRequest():
                await self._send(self.with_notice(await self.tools.handle(frame)))
                if self._meter.spent:
                    self._budget_spent()
            case Submit():
                await self._send(await self._submissions.take(frame.value))
            case CompactionAsked() if not self._agent.harness.is_client:
                await self._send(await self.compactions.ask())
            case Compacted():
                await self._summarized(frame)
            case Report():
                return await self._reported(frame)
            case ToolAsked() if self._agent.brings_tools:
                await self._send(await self.client_steps.rule(frame))
            case ToolRan() if self._agent.brings_tools:
                await self._send(self.with_notice(await self.client_steps.ran(frame)))
            case Ungoverned() if self._agent.brings_tools:
                return End(self._ungoverned(frame))
            case _:
                _log.warning("harness_out_of_turn", turn_id=self._turn.id, frame=frame.type)
                raise BoxFailed("harness_protocol_error")
        return None

    async def _heard(self, delta: TextDelta) -> None:
        # What is written counts by itself: it is more than all other frames, and none of it is believed.
        self._frames -= 1
        try:
            await self._speech.take(delta)
        except HarnessProtocolError as error:
            raise self._failed(error) from error

    async def _summarized(self, frame: Compacted) -> None:
        try:
            await self._send(await self.compactions.take(frame.summary))
        except HarnessProtocolError as error:
            raise self._failed(error) from error

    async def _receive(self) -> FromHarness:
        self._frames += 1
        if self._frames > self._bench.settings.max_frames:
            _log.warning("harness_floods", turn_id=self._turn.id, frames=self._frames)
            raise BoxFailed("harness_protocol_error")
        try:
            return await self._box.receive()
        except TurnkeeperError as error:
            raise self._failed(error) from error

    async def _send(self, frame: ToHarness) -> None:
        try:
            await self._box.send(frame)
        except TurnkeeperError as error:
            raise self._failed(error) from error

    def _failed(self, error: TurnkeeperError) -> BoxFailed:
        _log.warning("loop_box_failed", turn_id=self._turn.id, error=str(error), diagnostics=self._box.diagnostics)
        return BoxFailed("harness_protocol_error" if isinstance(error, HarnessProtocolError) else "sandbox_lost")

    async def _reported(self, report: Report) -> End | None:
        self._interrupts.disarm(Interrupt.BUDGET_IGNORED)
        ledger = (await self._bench.store.turn(self._turn.id)).usage
        news = tuple(usage_news(report, self._turn, ledger, before=self._before.usage))
        if report.status == "failed":
            return End(self._agent_failed(report), news)
        answer = read_report(
            report,
            self._turn,
            self._submissions.tally,
            budget_reached=self._spent,
            text_bytes=self._bench.settings.full_text_bytes,
        )
        return await self._answered(answer, news)

    async def _answered(self, answer: Answer, news: tuple[NewEvent, ...]) -> End | None:
        left = await self._leftovers.found(look=self.tools.used or self._went_before)

        def write(marks: Marks) -> str:
            return payloads.agent_response(marks, answer.text, answer.result_json, left.references)

        step = Draft(self._bench.ids.uuid(), payloads.AGENT_RESPONSE, write, in_window=True, turn_id=self._turn.id)
        ruling = await self._bench.governor.ask(self._party, step, self._lease.fence)
        if ruling.allowed:
            changed = changed_answer(
                answer, ruling.changed, self._turn, text_bytes=self._bench.settings.full_text_bytes
            )
            return await self._allowed(changed, (*news, *left.news(ruling.changed)))
        if ruling.kind not in {"denied", "unapplicable"}:
            return End(endings.no_decision_at_end(self._turn, self.ran), news)
        return await self._denied(ruling, news)

    async def _allowed(self, answer: Answer, news: tuple[NewEvent, ...]) -> End:
        result_json, result_error = await self._revalidated(answer)
        text, of_text = await self._leftovers.of_answer(answer.text)
        ending = endings.completed(
            self.ran,
            budget_reached=self._spent,
            text=text,
            result_json=result_json,
            result_error=result_error,
        )
        await self._dismiss()
        return End(ending, (*news, *answer.news, *of_text, *self._message(text)))

    def _message(self, text: str) -> Iterable[NewEvent]:
        """The answer's own events; one that was streamed has begun already."""
        turn, streamed = self._turn, self._speech.message_id
        message_id = streamed or self._bench.ids.new("msg")
        if streamed is None:
            yield catalogue.message_started(turn_id=turn.id, attempt=turn.attempt, message_id=message_id)
        yield catalogue.message_completed(
            turn_id=turn.id, attempt=turn.attempt, message_id=message_id, text=text, final=True
        )

    async def _denied(self, ruling: Ruling, news: tuple[NewEvent, ...]) -> End | None:
        # Without a budget the agent cannot say anything else, so there is nothing to repair with.
        if self._spent or not self._repairs.take():
            await self._dismiss()
            return End(endings.denied_output(self._turn, self.ran, ruling), news)
        self._speech.close()
        await self._send(ResponseDenied(list(ruling.reasons), self._repairs.left))
        return None

    async def _revalidated(self, answer: Answer) -> tuple[str | None, ResultError | None]:
        if answer.result_json is None:
            return None, answer.result_error
        value_json, errors = await self._submissions.judge(answer.result_json)
        return result_after_validation(value_json, valid=not errors)

    async def _dismiss(self) -> None:
        try:
            await self._box.send(Done())
        except TurnkeeperError as error:
            _log.info("harness_already_gone", turn_id=self._turn.id, error=str(error))

    def _agent_failed(self, report: Report) -> Ending:
        # What the harness writes about its failure may quote anything; it goes to the log and no further.
        _log.warning("agent_failed", turn_id=self._turn.id, stop_reason=report.stop_reason, error=report.error)
        failure = self._handle.last_error
        if report.stop_reason != "model_error":
            message = "the agent's loop failed"
            return endings.agent_failed(
                self._turn, self.ran, StopReason.AGENT_ERROR, "agent_error", message, retryable=False
            )
        if failure is None:
            message = "the model could not be used"
            return endings.agent_failed(
                self._turn, self.ran, StopReason.MODEL_ERROR, "model_error", message, retryable=False
            )
        return endings.agent_failed(
            self._turn, self.ran, StopReason.MODEL_ERROR, failure.code, failure.message, retryable=failure.retryable
        )

    def _ungoverned(self, frame: Ungoverned) -> Ending:
        _log.warning("client_ungoverned", turn_id=self._turn.id, tool=frame.name[:200])
        message = "the client called a tool that its hooks had not asked about"
        return endings.agent_failed(
            self._turn, self.ran, StopReason.AGENT_ERROR, "ungoverned_tool_call", message, retryable=False
        )

    def _lost(self, code: str) -> End:
        if code == "harness_protocol_error":
            return End(endings.sandbox_lost(self._turn, self.ran, code, "the harness broke the runner protocol"))
        reason, message = _LOSSES.get(self._box.end_reason, _LOST)
        lost = catalogue.sandbox_lost(turn_id=self._turn.id, sandbox_id=self._box.sandbox_id, reason=reason)
        return End(endings.sandbox_lost(self._turn, self.ran, code, message), (lost,))

    async def _stopped(self, interrupt: Interrupt) -> End:
        if interrupt is Interrupt.BUDGET_IGNORED:
            message = "the agent went on after its budget was spent"
            return End(endings.sandbox_lost(self._turn, self.ran, "budget_stop_ignored", message))
        if interrupt is Interrupt.TIME_SPENT:
            return await self._time_spent()
        if self._pauses.waiting:
            outcome = None if self._pauses.window_closed else "interrupted"
            return End(endings.canceled(self._lease.turn, Happening.CANCELED_WHILE_PAUSED, outcome, self.ran))
        acknowledged = await self._wound_down() is not None
        if interrupt is Interrupt.TIME_OVER:
            return End(endings.timed_out(self._turn, self.ran, self._agent.limits.timeout_ms))
        happening = Happening.CANCEL_ACKNOWLEDGED if acknowledged else Happening.CANCEL_GRACE_OVER
        return End(endings.canceled(self._lease.turn, happening, "interrupted", self.ran))

    async def _time_spent(self) -> End:
        """A budget of running time ends in an answer: what the agent had said, and what it had submitted."""
        self._meter.close()
        await self._bench.store.time_over(self._lease.fence, self._watch.elapsed_ms)
        last = await self._wound_down()
        if last is None:
            message = "the agent did not stop when its time was spent"
            return End(endings.sandbox_lost(self._turn, self.ran, "budget_stop_ignored", message))
        stopped = stopped_report(last.text, self._turn, self._submissions.tally)
        await self._subagents.close(Fate("budget_reached", calls="canceled"))
        answer = read_report(
            stopped,
            self._turn,
            self._submissions.tally,
            budget_reached=True,
            text_bytes=self._bench.settings.full_text_bytes,
        )
        end = await self._answered(answer, ())
        return end or End(endings.no_decision_at_end(self._turn, self.ran))

    async def _wound_down(self) -> Canceled | None:
        """Stops the tool and the model call, then gives the harness its grace; its word, if it acknowledged."""
        await self.tools.close()
        await self._handle.close()
        grace_ms = self._bench.settings.cancel_grace_ms
        if self._lease.immediate.is_set():
            return None
        hurry = asyncio.ensure_future(self._lease.immediate.wait())
        farewell = asyncio.ensure_future(within(self._bench.waiter, self._farewell(grace_ms), timeout_ms=grace_ms))
        try:
            await asyncio.wait({hurry, farewell}, return_when=asyncio.FIRST_COMPLETED)
            return farewell.result() if farewell.done() else None
        except (TimeoutError, BoxFailed):
            return None
        finally:
            await stop_task(hurry)
            await stop_task(farewell)

    async def _farewell(self, grace_ms: int) -> Canceled:
        await self._send(Cancel(grace_ms))
        while True:
            frame = await self._receive()
            if isinstance(frame, Canceled):
                return frame
