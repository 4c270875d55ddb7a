"""The front of the queue (contract 16.2): what is asked and checked before a turn may have a sandbox.

Answers for the order: cancel, session (handshake, sessionStart, agbom/snapshot), agentTrigger, turnStart, budget,
userMessage. After a crash it walks the same way with what was answered before; no step is asked twice under two ids.
Must never start anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnkeeper.acs import Marks
from turnkeeper.clock import Clock
from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.ids import IdSource
from turnkeeper.turns import endings, payloads
from turnkeeper.turns.applied import keeps_files, text_of
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.governor import EventsFor, Governor, no_events
from turnkeeper.turns.inputs import received_text
from turnkeeper.turns.lifecycle import Happening
from turnkeeper.turns.model import Claim, Draft, Ending, Step, Turn
from turnkeeper.turns.ports import TurnStore
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.turn_files import reference, told_input
from turnkeeper.turns.windows import window_is_open

_DENIAL_CODES = {
    payloads.SESSION_START: "session_start_denied",
    payloads.AGBOM_SNAPSHOT: "agbom_snapshot_denied",
    payloads.AGENT_TRIGGER: "agent_trigger_denied",
}


@dataclass(frozen=True, slots=True)
class _Walk:
    """One claim on its way, and the rows of the steps that were asked on an earlier way."""

    claim: Claim
    party: Party
    known: Sequence[Step]

    def earlier(self, method: str) -> Step | None:
        """The row of this step, unless the Guardian refused it: then nothing was written and it is asked anew."""
        steps = [step for step in self.known if step.method == method and step.state != "refused"]
        return steps[-1] if steps else None


class Front:
    """Walks claims through the front of their queues."""

    def __init__(self, store: TurnStore, governor: Governor, ids: IdSource, *, clock: Clock, sandbox_kind: str) -> None:
        self._store = store
        self._clock = clock
        self._governor = governor
        self._ids = ids
        self._sandbox_kind = sandbox_kind

    async def walk(self, claim: Claim) -> Ending | None:
        """How the turn ends at the front, or None where it goes on to a sandbox. Raises `StaleFence`."""
        turn, known = claim.turn, await self._known(claim)
        # Who walked here before may have opened a window, which whatever ends the turn has to close.
        opened = window_is_open(known)
        if turn.cancel_mode is not None:
            return endings.canceled(turn, Happening.CANCELED_IN_QUEUE, "interrupted" if opened else None)
        if turn.start_by is not None and self._clock.now() >= turn.start_by:
            return endings.queue_expired(turn, turn_started=opened)
        walk = _Walk(claim, Party(turn.session_id, turn.agent_id), known)
        ending = await self._session(walk) or await self._trigger(walk)
        if ending is None:
            ending = await self._canceled(turn, opened=opened) or await self._turn_start(walk)
        if ending is None:
            ending = await self._canceled(turn, opened=True) or await self._budget(turn) or await self._input(walk)
        return ending

    async def _known(self, claim: Claim) -> Sequence[Step]:
        steps = await self._store.steps(claim.turn.session_id, turn_id=claim.turn.id)
        if claim.session.acs_state != "new":
            return steps
        earlier = await self._store.steps(claim.turn.session_id)
        return [*(step for step in earlier if step.turn_id is None), *steps]

    async def _canceled(self, turn: Turn, *, opened: bool) -> Ending | None:
        now = await self._store.turn(turn.id)
        if now.cancel_mode is None:
            return None
        return endings.canceled(now, Happening.CANCELED_IN_QUEUE, "interrupted" if opened else None)

    async def _session(self, walk: _Walk) -> Ending | None:
        claim = walk.claim
        if claim.session.acs_state == "refused":
            refused = Ruling("denied", allowed=False, reasoning="the Guardian refused this session")
            return endings.denied_before_start(claim.turn, "session_refused", refused)
        ending = await self._greeted(walk)
        if ending is not None or claim.session.acs_state != "new":
            return ending
        start = payloads.session_start(sandbox_kind=claim.agent.box_kind(self._sandbox_kind))
        ending = await self._session_step(walk, payloads.SESSION_START, start)
        if ending is None:
            agbom = payloads.agbom_snapshot(claim.agent)
            ending = await self._session_step(walk, payloads.AGBOM_SNAPSHOT, agbom)
        if ending is None:
            await self._store.set_acs_state(claim.session.id, "started")
        return ending

    async def _greeted(self, walk: _Walk) -> Ending | None:
        ruling = await self._governor.greet(walk.party)
        if ruling.allowed:
            await self._note_unguarded(walk, ruling)
            return None
        if ruling.kind == "undecided":
            opened = window_is_open(walk.known)
            return endings.no_decision_at_front(walk.claim.turn, "handshake", turn_started=opened)
        if ruling.kind == "denied" and walk.claim.session.acs_state == "new":
            await self._store.set_acs_state(walk.claim.session.id, "refused")
        code = "method_not_evaluated" if ruling.kind == "not_evaluated" else "handshake_refused"
        return endings.denied_before_start(walk.claim.turn, code, ruling)

    async def _note_unguarded(self, walk: _Walk, ruling: Ruling) -> None:
        if not ruling.proceeded:
            return
        # A hello is no step and has no row; the id only tells this event from the next one.
        event = catalogue.guardian_proceeded(turn_id=walk.claim.turn.id, hook="handshake", request_id=self._ids.uuid())
        await self._store.record(walk.claim.fence, [event])

    async def _session_step(self, walk: _Walk, method: str, payload_json: str) -> Ending | None:
        ruling = await self._ask(walk, method, lambda _: payload_json, of_turn=False)
        if ruling.kind in {"denied", "unapplicable"}:
            await self._store.set_acs_state(walk.claim.session.id, "refused")
        # A Guardian that does not look at bills of materials decides nothing by them.
        if ruling.kind == "not_evaluated" and method == payloads.AGBOM_SNAPSHOT:
            return None
        return _before_turn_start(walk.claim.turn, method, ruling)

    async def _trigger(self, walk: _Walk) -> Ending | None:
        ruling = await self._ask(walk, payloads.AGENT_TRIGGER, lambda _: payloads.agent_trigger())
        return _before_turn_start(walk.claim.turn, payloads.AGENT_TRIGGER, ruling)

    async def _turn_start(self, walk: _Walk) -> Ending | None:
        turn = walk.claim.turn
        ruling = await self._ask(walk, payloads.TURN_START, lambda _: payloads.turn_start(turn.id))
        if ruling.allowed:
            return None
        if ruling.kind in {"denied", "unapplicable"}:
            return endings.denied_at_start(turn, ruling)
        return endings.no_decision_at_front(turn, "turnStart", turn_started=ruling.delivered)

    async def _budget(self, turn: Turn) -> Ending | None:
        return None if await self._store.budget_left(turn.id) else endings.unpaid(turn)

    async def _input(self, walk: _Walk) -> Ending | None:
        turn = walk.claim.turn
        if walk.earlier(payloads.USER_MESSAGE) is not None and await received_text(self._store, turn) is not None:
            # An earlier owner of the turn heard the answer and kept what came of it.
            return None

        told = told_input(turn.input_text, turn.input_files)

        def received(ruling: Ruling) -> Sequence[NewEvent]:
            if not ruling.allowed:
                return ()
            text = told if ruling.changed is None else text_of(ruling.changed)
            files = turn.input_files if ruling.changed is None or keeps_files(ruling.changed) else ()
            parts = [{"type": "text", "text": text}, *({"type": "file", **reference(file)} for file in files)]
            return [catalogue.message_received(turn_id=turn.id, message_id=self._ids.new("msg"), parts=parts)]

        def write(marks: Marks) -> str:
            return payloads.user_message(marks, told, turn.input_files)

        ruling = await self._ask(walk, payloads.USER_MESSAGE, write, in_window=True, events_for=received)
        if ruling.allowed:
            return None
        if ruling.kind in {"denied", "unapplicable"}:
            return endings.denied_input(turn, ruling)
        return endings.no_decision_at_front(turn, "userMessage", turn_started=True)

    async def _ask(
        self,
        walk: _Walk,
        method: str,
        write: Callable[[Marks], str],
        *,
        of_turn: bool = True,
        in_window: bool = False,
        events_for: EventsFor = no_events,
    ) -> Ruling:
        step = Draft(
            request_id=self._ids.uuid(),
            method=method,
            write=write,
            in_window=in_window,
            turn_id=walk.claim.turn.id if of_turn else None,
        )
        fence = walk.claim.fence
        return await self._governor.ask(walk.party, step, fence, events_for=events_for, known=walk.earlier(method))


def _before_turn_start(turn: Turn, method: str, ruling: Ruling) -> Ending | None:
    if ruling.allowed:
        return None
    if ruling.kind in {"denied", "unapplicable"}:
        return endings.denied_before_start(turn, _DENIAL_CODES[method], ruling)
    if ruling.kind == "not_evaluated":
        return endings.denied_before_start(turn, "method_not_evaluated", ruling)
    return endings.no_decision_at_front(turn, method.rpartition("/")[2], turn_started=False)
