"""What a session remembers beside its counters: taint, intent, skills, calls that wait, the agent's parts.

Answers for one frozen value and for its form in the store. Every collection has a named bound; whoever would go past
it is denied (`session_memory_full`), so that nothing is forgotten that would loosen a rule. What changes with each
step stands apart from `Kept`, which is written only when it changes. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar, cast

import orjson

from turnkeeper.guardian.provenance import NO_DATA, Trace
from turnkeeper.guardian.windows import TurnWindow
from turnkeeper.records import record

NEVER_TAINTED: Final = -1
MAX_DEFERRED_TURNS: Final = 64
MAX_SKILLS: Final = 256
MAX_PENDING_CALLS: Final = 256
MAX_AGBOM_COMPONENTS: Final = 1_024
MAX_INTENT_BYTES: Final = 65_536
MAX_KEPT_TEXT: Final = 1_024
"""The longest name or id of a skill, component or pending call that is kept."""
MAX_KEPT_BYTES: Final = 262_144
"""What a step may leave a session keeping, all together, as JSON."""

SESSION_MEMORY_FULL: Final = "session_memory_full"

_Value = TypeVar("_Value")


def _empty() -> Mapping[str, Any]:
    # A plain dict, which has a form as JSON; nobody writes to it.
    return {}


@record
class ProvenanceSummary:
    """The origins a session has seen, object by object. Counts only grow (CORE-PS-01)."""

    by_origin: Mapping[str, int] = field(default_factory=_empty)
    earliest_step: Mapping[str, str] = field(default_factory=_empty)
    max_lineage_depth: int = 0

    def grown(self, traced: Trace, step_id: str) -> "ProvenanceSummary":
        """The summary with one more step in it."""
        if traced is NO_DATA:
            return self
        counts = dict(self.by_origin)
        for datum in traced.data:
            counts[datum.origin] = counts.get(datum.origin, 0) + 1
        return ProvenanceSummary(
            counts,
            dict.fromkeys(counts, step_id) | dict(self.earliest_step),
            max(self.max_lineage_depth, traced.depth),
        )

    def to_document(self) -> dict[str, object]:
        """The summary as the standard writes it."""
        return {
            "origins_seen": list(self.by_origin),
            "entry_count": sum(self.by_origin.values()),
            "entry_count_by_origin": dict(self.by_origin),
            "earliest_step_id_by_origin": dict(self.earliest_step),
            "max_lineage_depth": self.max_lineage_depth,
        }


@dataclass(frozen=True, slots=True)
class KnownCapability:
    """One capability of an intent; an empty member stands for any."""

    tool: str = ""
    operation: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True)
class KnownIntent:
    """The session's intent. `digest` tells it from another; capabilities are None where none were parsed."""

    digest: str
    raw: str = ""
    scope_mode: str = ""
    capabilities: tuple[KnownCapability, ...] | None = None


@dataclass(frozen=True, slots=True)
class Skill:
    """An approved pair of skill and digest."""

    skill_id: str
    digest: str
    capabilities: tuple[str, ...] = ()
    composed_skills: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A wrapped request that was let through and waits for its response."""

    method: str
    tool: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the agent, as far as later checks look at it; never a skill's body."""

    type: str
    name: str = ""
    capability: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a step, until it is over. `standing` is a grant for the rest of the session."""

    input_hash: str
    expires_at_ms: int
    used: bool = False
    standing: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What changes rarely. `agbom` is None before its snapshot; skills and calls are by their own keys.

    `asked` has questions to approvers by the request_id of the step that raised each.
    """

    intent: KnownIntent | None = None
    intent_fixed: bool = False
    skills: Mapping[str, Skill] = field(default_factory=_empty)
    pending_calls: Mapping[str, PendingCall] = field(default_factory=_empty)
    agbom: Mapping[str, Component] | None = None
    deferred_turns: Mapping[str, TurnWindow] = field(default_factory=_empty)
    noted: tuple[str, ...] = ()
    asked: Mapping[str, Asked] = field(default_factory=_empty)


@record
class SessionMemory:
    """Everything of a session that a later step is judged by, save its counters, window, ids and lineage.

    `extensions` counts the chain's entries of extended intents, which are no steps.
    `taint_turns` is how many turns were opened when untrusted data last came. `lineage_cut` says that an id was not
    remembered.
    """

    started: bool = False
    denials: int = 0
    deferrals: int = 0
    extensions: int = 0
    taint_step: str = ""
    taint_turns: int = NEVER_TAINTED
    lineage_cut: bool = False
    provenance: ProvenanceSummary = ProvenanceSummary()
    kept: Kept = Kept()

    def with_data(self, traced: Trace, step_id: str, *, turns: int | None) -> "SessionMemory":
        """The memory with a step's data in it; `turns` were opened so far, where the data is untrusted."""
        tainted = turns is not None
        return SessionMemory(
            self.started,
            self.denials,
            self.deferrals,
            self.extensions,
            self.taint_step or (step_id if tainted else ""),
            turns if tainted else self.taint_turns,
            self.lineage_cut or traced.forgotten,
            self.provenance.grown(traced, step_id),
            self.kept,
        )

    def keeping(self, **changes: object) -> "SessionMemory":
        """The memory with some of what it keeps replaced."""
        return replace(self, kept=replace(self.kept, **cast("dict[str, Any]", changes)))


NOTHING_REMEMBERED: Final = SessionMemory()


def render_standing(memory: SessionMemory) -> str:
    """What changes with each step, as JSON."""
    return orjson.dumps({name: getattr(memory, name) for name in _STANDING}).decode()


def render_kept(kept: Kept) -> str:
    """What changes rarely, as JSON."""
    return orjson.dumps(kept).decode()


def render_window(window: TurnWindow) -> str:
    """An open window with those around it, as JSON."""
    return orjson.dumps(window).decode()


def parse_memory(standing: str | None, kept: str | None) -> SessionMemory:
    """The memory in what was rendered; None stands for a session of an older program."""
    members: dict[str, Any] = {} if standing is None else orjson.loads(standing)
    summary = ProvenanceSummary(**members.pop("provenance", {}))
    return SessionMemory(**members, provenance=summary, kept=Kept() if kept is None else _kept(orjson.loads(kept)))


def parse_window(text: str) -> TurnWindow:
    """The window in what was rendered."""
    return _window(orjson.loads(text))


_STANDING = tuple(member.name for member in fields(SessionMemory) if member.name != "kept")


def _kept(members: dict[str, Any]) -> Kept:
    agbom = members["agbom"]
    return Kept(
        intent=None if members["intent"] is None else _intent(members["intent"]),
        intent_fixed=members["intent_fixed"],
        skills=_each(members["skills"], _skill),
        pending_calls=_each(members["pending_calls"], lambda call: PendingCall(**call)),
        agbom=None if agbom is None else _each(agbom, lambda part: Component(**part)),
        deferred_turns=_each(members["deferred_turns"], _window),
        noted=tuple(members["noted"]),
        asked=_each(members.get("asked", {}), lambda asked: Asked(**asked)),
    )


def _each(members: dict[str, Any], read: Callable[[dict[str, Any]], _Value]) -> dict[str, _Value]:
    return {name: read(member) for name, member in members.items()}


def _intent(members: dict[str, Any]) -> KnownIntent:
    parsed = members.pop("capabilities")
    return KnownIntent(
        **members, capabilities=None if parsed is None else tuple(KnownCapability(**one) for one in parsed)
    )


def _skill(members: dict[str, Any]) -> Skill:
    return Skill(
        members["skill_id"], members["digest"], tuple(members["capabilities"]), tuple(members["composed_skills"])
    )


def _window(members: dict[str, Any]) -> TurnWindow:
    outer = members.pop("outer", None)
    return TurnWindow(**members, outer=None if outer is None else _window(outer))
