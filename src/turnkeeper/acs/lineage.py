"""Provenance made by deterministic code (ACS 7, ledger PROV-01 to PROV-04): where each value sent came from.

Answers for an id per value, for where a step carries provenance, and for what the model's own words derive from:
everything that came in since it last spoke, and what it last said, which leads to all before. Must never take an id or
an origin from a model's output. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, cast

from turnkeeper.errors import LocalProtocolError
from turnkeeper.ids import IdSource

Origin: TypeAlias = Literal[
    "user_input", "system", "tool_output", "retrieved", "agent_generated", "a2a_inbound", "external"
]

AGENT_GENERATED: Final = "agent_generated"
MAX_SOURCES: Final = 5_000
"""How many values may come in before the model speaks, and how many a turn may send under provenance."""
MAX_STEP_LINKS: Final = 10_000
"""How many derivations one step spells out; past it, a value derives from all the others' sources through the first."""

_ITSELF = False
_EACH = True
# Per method: a member of the payload, and whether it is the carrier itself or holds one in each of its parts.
_CARRIERS: Final[Mapping[str, tuple[tuple[str, bool], ...]]] = MappingProxyType(
    {
        "steps/userMessage": (("content", _EACH),),
        "steps/agentResponse": (("content", _EACH),),
        "steps/knowledgeRetrieval": (("query", _ITSELF), ("results", _EACH)),
        "steps/memoryContextRetrieval": (("query", _ITSELF), ("results", _EACH)),
        "steps/memoryStore": (("content", _ITSELF),),
        "steps/toolCallRequest": (("arguments", _EACH),),
        "steps/toolCallResult": (("outputs", _EACH),),
        "steps/postCompact": (("summary", _ITSELF),),
        "steps/subagentStop": (("summary", _ITSELF),),
        "steps/turnEnd": (("summary", _ITSELF),),
    }
)


class LineageFull(LocalProtocolError):
    """More values than lineage is kept of: whoever goes on would have to leave some out."""

    code = "lineage_full"


def carries_data(method: str) -> bool:
    """Whether a step of this method has fields that carry data."""
    return method in _CARRIERS


def provenance_objects(method: str, payload: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """The provenance objects on a step's data-bearing fields, in the order of the payload."""
    for name, each in _CARRIERS.get(method, ()):
        member = payload.get(name)
        for carrier in _parts(member) if each else (member,):
            if isinstance(carrier, dict):
                provenance = cast("dict[str, object]", carrier).get("provenance")
                if isinstance(provenance, dict):
                    yield cast("dict[str, object]", provenance)


@dataclass(slots=True)
class Marks:
    """The labels of one step, made before it is sent and kept once it is delivered."""

    lineage: "Lineage"
    came_in: list[str] = field(default_factory=list[str])
    made: list[str] = field(default_factory=list[str])

    def received(self, origin: Origin, source_id: str | None = None) -> dict[str, object]:
        """The provenance member of a value that came from outside the model; empty where none is produced."""
        if not self.lineage.produces:
            return {}
        provenance_id = self.lineage.new_id()
        self.came_in.append(provenance_id)
        label: dict[str, object] = {"provenance_id": provenance_id, "origin": origin}
        return {"provenance": label | ({"source_id": source_id} if source_id else {})}

    def generated(self, derived_from: Sequence[str] | None = None) -> dict[str, object]:
        """The provenance member of a value that the model produced; `derived_from` replaces what is derived here."""
        if not self.lineage.produces:
            return {}
        sources = list(self._sources() if derived_from is None else derived_from)
        provenance_id = self.lineage.new_id()
        self.made.append(provenance_id)
        label: dict[str, object] = {"provenance_id": provenance_id, "origin": AGENT_GENERATED}
        return {"provenance": label | ({"derived_from": sources} if sources else {})}

    def _sources(self) -> Sequence[str]:
        sources = self.lineage.sources
        if len(sources) * (len(self.made) + 1) <= MAX_STEP_LINKS or not self.made:
            return sources
        return self.made[:1]


class Lineage:
    """What one session's model has seen, as ids."""

    def __init__(self, ids: IdSource, *, produces: bool, sources: Sequence[str] = ()) -> None:
        self._ids = ids
        self._sources = tuple(sources)
        self.produces = produces

    @property
    def sources(self) -> tuple[str, ...]:
        """What the next generated value derives from."""
        return self._sources

    def new_id(self) -> str:
        """An id no other value of the session has."""
        return self._ids.uuid()

    def marks(self) -> Marks:
        """Labels for a step."""
        return Marks(self)

    def marks_of(self, method: str, payload: Mapping[str, object]) -> Marks:
        """The labels that a step carries already."""
        marks = self.marks()
        for label in provenance_objects(method, payload):
            ids = marks.made if label["origin"] == AGENT_GENERATED else marks.came_in
            ids.append(cast("str", label["provenance_id"]))
        return marks

    def keep(self, marks: Marks, *, seen: bool) -> None:
        """A step was delivered. `seen` says that its values reach the model. Raises `LineageFull` past `MAX_SOURCES`.

        What the model generated stands for all it had seen until then.
        """
        if marks.made:
            self._sources = tuple(marks.made)
        if seen:
            self._sources = (*self._sources, *marks.came_in)
        if len(self._sources) > MAX_SOURCES:
            raise LineageFull(f"more than {MAX_SOURCES} values came in without a word of the model")


class TurnIds:
    """Every provenance id that one turn sent, for the union in `turnEnd.summary`."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def add(self, marks: Marks) -> None:
        """A step of the turn was delivered. Raises `LineageFull` past `MAX_SOURCES`."""
        self._ids += [*marks.came_in, *marks.made]
        if len(self._ids) > MAX_SOURCES:
            raise LineageFull(f"a turn sent more than {MAX_SOURCES} values under provenance")

    @property
    def union(self) -> tuple[str, ...]:
        """Each once, in the order they were first sent: a step that waited is sent again with the same labels."""
        return tuple(dict.fromkeys(self._ids))


def _parts(member: object) -> Iterable[object]:
    if isinstance(member, dict):
        return cast("dict[str, object]", member).values()
    return cast("list[object]", member) if isinstance(member, list) else ()
