"""The turnStart of a turn that goes on after a deferral or a lost attempt (contract 6, rows 21, 23 and 23a).

Answers for one turnStart `auto_continuation` per window, under one request id whatever crashes meanwhile, and for how
the turn ends where the Guardian will not have it go on.
"""

from turnkeeper.turns import endings, payloads
from turnkeeper.turns.endings import Ran
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.model import Ending, Fence, NewStep, Turn
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.windows import steps_since_last_end
from turnkeeper.turns.workbench import Workbench


async def ask_to_continue(bench: Workbench, turn: Turn, fence: Fence, ran: Ran) -> Ending | None:
    """How the turn ends if it may not go on; None where it may. Asks nothing where the turn's window is open.

    Raises `StaleFence`.
    """
    steps = steps_since_last_end(await bench.store.steps(turn.session_id, turn_id=turn.id))
    starts = [step for step in steps if step.method == payloads.TURN_START and step.state != "refused"]
    known = starts[-1] if starts else None
    if known is not None and known.state == "answered" and known.decision == "allow":
        return None
    payload_json = payloads.turn_start(turn.id, triggered_by="auto_continuation")
    step = NewStep(bench.ids.uuid(), payloads.TURN_START, payload_json, in_window=False, turn_id=turn.id)
    ruling = await bench.governor.ask(Party(turn.session_id, turn.agent_id), step, fence, known=known)
    return None if ruling.allowed else _ending(turn, ran, ruling)


def _ending(turn: Turn, ran: Ran, ruling: Ruling) -> Ending:
    if ruling.kind in {"denied", "unapplicable"}:
        ending = endings.denied_at_start(turn, ruling)
    else:
        ending = endings.no_decision_at_front(turn, "turnStart", turn_started=ruling.delivered)
    return endings.having_run(ending, turn, ran)
