"""Provenance made by deterministic code (ACS 7, ledger PROV-01 to PROV-04): where each value sent came from.

Answers for an id per value, and for what the model's own words derive from: everything that came in since it last
spoke, and what it last said, which leads to all before. Must never take an id or an origin from a model's output.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from turnkeeper.client.errors import StepInvalid
from turnkeeper.ids import IdSource

Origin: TypeAlias = Literal[
    "user_input", "system", "tool_output", "retrieved", "agent_generated", "a2a_inbound", "external"
]

MAX_SOURCES: Final = 5_000
"""How many values may come in before the model speaks, and how many a turn may send under provenance."""


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
        provenance_id = self.lineage.new_id()
        self.made.append(provenance_id)
        sources = list(self.lineage.sources if derived_from is None else derived_from)
        label: dict[str, object] = {"provenance_id": provenance_id, "origin": "agent_generated"}
        return {"provenance": label | ({"derived_from": sources} if sources else {})}


class Lineage:
    """What one session's model has seen, as ids."""

    def __init__(self, ids: IdSource, *, produces: bool) -> None:
        self._ids = ids
        self._sources: tuple[str, ...] = ()
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

    def keep(self, marks: Marks, *, seen: bool) -> None:
        """A step was delivered. `seen` says that its values reach the model. Raises `StepInvalid` past `MAX_SOURCES`.

        What the model generated stands for all it had seen until then.
        """
        if marks.made:
            self._sources = tuple(marks.made)
        if seen:
            self._sources = (*self._sources, *marks.came_in)
        if len(self._sources) > MAX_SOURCES:
            raise StepInvalid(f"more than {MAX_SOURCES} values came in without a word of the model")


class TurnIds:
    """Every provenance id that one turn sent, for the union in `turnEnd.summary`."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def add(self, marks: Marks) -> None:
        """A step of the turn was delivered. Raises `StepInvalid` past `MAX_SOURCES`."""
        self._ids += [*marks.came_in, *marks.made]
        if len(self._ids) > MAX_SOURCES:
            raise StepInvalid(f"a turn sent more than {MAX_SOURCES} values under provenance")

    @property
    def union(self) -> tuple[str, ...]:
        """In the order they were sent."""
        return tuple(self._ids)
