"""The turn ledger: a step put in its place, traced, and held to the Guardian's built-in rules.

Answers for what is known of a step before the policy is asked, and for what its session remembers once it is
answered. The rules are a table, each in a module of its own. Must never change anything: it says what would change.
Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, cast

from turnkeeper.acs import Disposition, HookSpec, RequestEnvelope
from turnkeeper.guardian.checks import CONTENT, Checked, Denial, Grant, Note, Rule, Step, full
from turnkeeper.guardian.compaction import check_post_compact, check_turn_end
from turnkeeper.guardian.components import AGBOM_CHANGED, AGBOM_SNAPSHOT, check_changed, check_snapshot
from turnkeeper.guardian.intent import SESSION_START, check_intent
from turnkeeper.guardian.mcp import MCP_TOOL_CALL, as_tool_call, is_response, mcp_method, tool_of
from turnkeeper.guardian.mcp_calls import check_call, pending_call
from turnkeeper.guardian.memory import MAX_DEFERRED_TURNS, MAX_KEPT_BYTES, SessionMemory, render_kept
from turnkeeper.guardian.ports import Lookup, SessionProgress, SessionTerms
from turnkeeper.guardian.provenance import (
    DEFAULT_TRUST,
    NO_DATA,
    PROVENANCE_ID_REPEATED,
    PROVENANCE_UNKNOWN,
    UNTRUSTED,
    Lineage,
    Trace,
    TrustOverride,
    trace,
)
from turnkeeper.guardian.references import check_reference
from turnkeeper.guardian.skills import check_load, check_register
from turnkeeper.guardian.subagents import SUBAGENT_START, SUBAGENT_STOP, check_start, check_stop
from turnkeeper.guardian.windows import TURN_END, TURN_START, Placement, deferred_after, place
from turnkeeper.records import record

PROVENANCE_UNDECLARED: Final = "provenance_undeclared"
TRUST_OVERRIDDEN: Final = "trust_overridden"
LINEAGE_FULL: Final = "lineage_full"
_LET_THROUGH = frozenset({Disposition.ALLOW, Disposition.MODIFY})
_MESSAGES: Mapping[str, str] = {
    PROVENANCE_ID_REPEATED: "a provenance_id stands for more than one value; the lowest trust goes for all of them",
    PROVENANCE_UNKNOWN: "data derives from an id that this session has not shown; it counts as untrusted",
}


@record
class Considered:
    """A step before the policy is asked.

    `memory` is the session's memory with everything that holds whatever is answered; `called` is the tool call inside
    a wrapped message, in the members of a toolCallRequest.
    """

    placement: Placement
    traced: Trace
    memory: SessionMemory
    denial: Denial | None = None
    notes: tuple[Note, ...] = ()
    codes: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    called: Mapping[str, object] | None = None


def consider(
    request: RequestEnvelope,
    spec: HookSpec | None,
    *,
    terms: SessionTerms,
    progress: SessionProgress,
    lineage: Lineage,
    looked_up: Lookup,
    overrides: Mapping[tuple[str, str], TrustOverride],
) -> Considered:
    """A step of a session that stands at `progress`, the step itself not counted."""
    memory = progress.memory
    placement = place(
        progress.window,
        progress.turns,
        request,
        in_turn=None if spec is None else spec.in_turn,
        deferred=memory.kept.deferred_turns,
    )
    traced = trace(request, lineage, placement.turn_id, overrides)
    if traced.trust == UNTRUSTED:
        placement = placement.tainted(request.request_id)
    step = Step(request, terms, placement, lineage, traced, progress.head, looked_up)
    considered = Considered(placement, traced, memory, called=_called(step, memory))
    for rule in _rules(request.method):
        considered = _with(considered, rule(step, considered.memory))
    return _remembered(_with_room(considered), step, turns=progress.turns + placement.opened)


def settled(
    considered: Considered,
    placement: Placement,
    request: RequestEnvelope,
    given: Disposition,
    *,
    waits_still: bool = False,
) -> SessionMemory:
    """What the session remembers once the step was answered.

    A step that `waits_still` was deferred before: that it is told so again is no further deferral.
    """
    memory = considered.memory
    if given in _LET_THROUGH:
        memory = _granted(considered)
    elif given is not Disposition.ASK:
        memory = replace(
            memory,
            denials=memory.denials + (given is Disposition.DENY),
            deferrals=memory.deferrals + (given is Disposition.DEFER and not waits_still),
        )
    deferred = deferred_after(memory.kept.deferred_turns, placement, request)
    return memory if deferred is memory.kept.deferred_turns else memory.keeping(deferred_turns=deferred)


def _rules(method: str) -> tuple[Rule, ...]:
    rules = _RULES.get(method)
    if rules is not None:
        return rules
    return () if mcp_method(method) is None else (check_call,)


def _with(considered: Considered, checked: Checked) -> Considered:
    if checked is CONTENT:
        return considered
    return replace(
        considered,
        memory=checked.memory or considered.memory,
        denial=considered.denial or checked.denial,
        notes=(*considered.notes, *checked.notes),
        codes=(*considered.codes, *checked.codes),
        grants=considered.grants if checked.grant is None else (*considered.grants, checked.grant),
    )


def _with_room(considered: Considered) -> Considered:
    """With a denial where what the step would leave behind is more than a session may keep."""
    if not considered.grants or considered.denial is not None:
        return considered
    after = _granted(considered)
    if after.kept is considered.memory.kept or len(render_kept(after.kept)) <= MAX_KEPT_BYTES:
        return considered
    return _with(considered, full("than it does"))


def _granted(considered: Considered) -> SessionMemory:
    memory = considered.memory
    for grant in considered.grants:
        memory = grant(memory)
    return memory


def _remembered(considered: Considered, step: Step, *, turns: int) -> Considered:
    """With the step's data in the session's memory, which holds whatever is answered."""
    traced, memory = considered.traced, considered.memory
    if traced is NO_DATA:
        return considered
    notes = [Note(code, _MESSAGES[code]) for code in traced.codes]
    once = {key: note for key, note in _once_a_session(step) if key not in memory.kept.noted}
    if once:
        memory = memory.keeping(noted=(*memory.kept.noted, *once))
    notes += once.values()
    # Written out, as in `with_data`: `dataclasses.replace` takes five times as long, and this is nearly every step.
    return Considered(
        considered.placement,
        traced,
        memory.with_data(traced, step.request.request_id, turns=turns if traced.trust == UNTRUSTED else None),
        considered.denial,
        (*considered.notes, *notes),
        considered.codes,
        considered.grants,
        considered.called,
    )


def _once_a_session(step: Step) -> Iterator[tuple[str, Note]]:
    """What is worth a finding once, by what it is known by; there are no more keys than overrides and two."""
    if step.terms.provenance_producer == "none":
        message = "a step carries provenance, and the handshake declared none"
        yield PROVENANCE_UNDECLARED, Note(PROVENANCE_UNDECLARED, message)
    if step.traced.forgotten:
        yield LINEAGE_FULL, Note(LINEAGE_FULL, "the session has more provenance ids than are remembered")
    for used in step.traced.overrides:
        yield f"{used.origin} {used.source_id}", Note(TRUST_OVERRIDDEN, _override_message(used))


def _override_message(override: TrustOverride) -> str:
    usual = DEFAULT_TRUST.get(override.origin, "that of what it was made of")
    return f"data of origin {override.origin} from {override.source_id} counts as {override.trust} instead of {usual}"


def _called(step: Step, memory: SessionMemory) -> Mapping[str, object] | None:
    method = mcp_method(step.request.method)
    if method is None:
        return None
    if is_response(step.payload):
        call = pending_call(step, memory)
        return None if call is None or not call.tool else {"tool": {"name": call.tool}}
    return as_tool_call(tool_of(step.payload), step.payload) if method == MCP_TOOL_CALL else None


def _check_room(step: Step, memory: SessionMemory) -> Checked:
    """The rule for turnStart: each turn that is let begin may come to be deferred, and is then remembered."""
    turns = memory.kept.deferred_turns
    known = cast("str", step.payload["turn_id"]) in turns
    if step.placement.opened and not known and len(turns) >= MAX_DEFERRED_TURNS:
        return full("turns that are deferred")
    return CONTENT


_RULES: Final[Mapping[str, tuple[Rule, ...]]] = MappingProxyType(
    {
        SESSION_START: (check_intent,),
        "steps/agentTrigger": (check_intent,),
        TURN_START: (_check_room,),
        TURN_END: (check_turn_end,),
        "steps/toolCallResult": (check_reference,),
        "steps/postCompact": (check_post_compact,),
        SUBAGENT_START: (check_start,),
        SUBAGENT_STOP: (check_stop,),
        "steps/skillRegister": (check_register,),
        "steps/skillLoad": (check_load,),
        AGBOM_SNAPSHOT: (check_snapshot,),
        AGBOM_CHANGED: (check_changed,),
    }
)
