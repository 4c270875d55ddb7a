"""The facts of a step for the policy: what the Guardian counted and derived itself, each in constant time.

Answers for one `Facts` per step, the step itself counted in. Must never hand on a count that a client stated. Pure.
"""

from turnkeeper.acs import RequestEnvelope
from turnkeeper.guardian.ledger import Considered
from turnkeeper.guardian.mcp import is_tool_call
from turnkeeper.guardian.memory import KnownIntent, SessionMemory
from turnkeeper.guardian.ports import SessionProgress
from turnkeeper.guardian.provenance import NO_DATA, Trace
from turnkeeper.guardian.windows import Placement
from turnkeeper.policy.facts import (
    NEVER_TAINTED,
    Capability,
    Facts,
    IntentFacts,
    ProvenanceFacts,
    SessionFacts,
    TurnFacts,
)

_NO_TURN = TurnFacts()
_NO_PROVENANCE = ProvenanceFacts()
_NO_INTENT = IntentFacts()


def facts_of(request: RequestEnvelope, progress: SessionProgress, considered: Considered) -> Facts:
    """The facts of a step whose session stood at `progress` before it."""
    environment = request.metadata.get("environment")
    return Facts(
        method=request.method,
        step_id=request.request_id,
        payload=request.payload,
        agent_id=request.agent_id,
        session=_session(request, progress, considered),
        turn=_turn(considered.placement),
        environment=environment if isinstance(environment, str) else "",
        provenance=_provenance(considered.traced),
        intent=_intent(considered.memory),
        called=considered.called,
    )


def _session(request: RequestEnvelope, progress: SessionProgress, considered: Considered) -> SessionFacts:
    memory = considered.memory
    turns = progress.turns + considered.placement.opened
    return SessionFacts(
        id=request.session_id,
        steps=progress.entries - memory.extensions + 1,
        tool_calls=progress.tool_calls + is_tool_call(request),
        turns=turns,
        tainted=memory.taint_step != "",
        taint_step=memory.taint_step,
        turns_since_taint=turns - memory.taint_turns if memory.taint_step else NEVER_TAINTED,
        denials=memory.denials,
        deferrals=memory.deferrals,
    )


def _turn(placement: Placement) -> TurnFacts:
    """The turn's name and trigger are those of the innermost one, the counts those of the outermost one."""
    window = placement.closed or placement.window
    if window is None:
        return _NO_TURN
    whole = window.outermost
    return TurnFacts(
        id=window.turn_id,
        open=True,
        denied=window.start_denied,
        steps=whole.carried_steps + whole.steps,
        tool_calls=whole.carried_tool_calls + whole.tool_calls,
        tainted=whole.taint_step != "",
        taint_step=whole.taint_step,
        denials=whole.denials,
        deferrals=whole.deferrals,
        parent_id=window.parent_turn_id,
        triggered_by=window.triggered_by,
    )


def _provenance(traced: Trace) -> ProvenanceFacts:
    if traced is NO_DATA:
        return _NO_PROVENANCE
    return ProvenanceFacts(
        ids=_distinct([datum.provenance_id for datum in traced.data]),
        origins=_distinct([datum.origin for datum in traced.data]),
        sources=_distinct([datum.source_id for datum in traced.data if datum.source_id]),
        trust=traced.trust,
    )


def _distinct(texts: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _intent(memory: SessionMemory) -> IntentFacts:
    intent: KnownIntent | None = memory.kept.intent
    if intent is None:
        return _NO_INTENT
    capabilities = tuple(Capability(one.tool, one.operation, one.resource) for one in intent.capabilities or ())
    return IntentFacts(intent.raw, capabilities, intent.scope_mode)
