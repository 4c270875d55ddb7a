"""Provenance of a step's own data (ACS 7, PROV-01 to 09): where it came from, and how far that may be trusted.

Answers for reading provenance objects, for the trust the Guardian derives, and for lineage within a session.
INVARIANT: trust never rises on the way: what was made of untrusted data, of data nobody has shown, or of itself, is
untrusted. INVARIANT: a received `trust` is not read, and none is ever sent. A step's data may derive from earlier
steps and from what stands before it in the same payload. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from turnkeeper.acs import AGENT_GENERATED, RequestEnvelope, provenance_objects
from turnkeeper.records import record

TRUSTED: Final = "trusted"
UNKNOWN: Final = "unknown"
UNTRUSTED: Final = "untrusted"
MAX_PROVENANCE_IDS: Final = 4_096
"""Ids a session remembers. Later ones are not remembered: whatever derives from them counts as untrusted."""
MAX_PROVENANCE_ID_CHARACTERS: Final = 256
"""The longest id that is remembered."""

PROVENANCE_ID_REPEATED: Final = "provenance_id_repeated"
PROVENANCE_UNKNOWN: Final = "provenance_unknown"

_RANK: Mapping[str, int] = {UNTRUSTED: 0, UNKNOWN: 1, TRUSTED: 2}
TRUST_LEVELS: Final = frozenset(_RANK)
DEFAULT_TRUST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "user_input": TRUSTED,
        "system": TRUSTED,
        "tool_output": UNTRUSTED,
        "retrieved": UNTRUSTED,
        "a2a_inbound": UNTRUSTED,
        "external": UNTRUSTED,
    }
)
"""Trust by origin; what an agent generated has the lowest trust of what it was made of."""


@record
class Datum:
    """One provenance object as sent."""

    provenance_id: str
    origin: str
    source_id: str
    derived_from: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrustOverride:
    """What an operator says about one source: its data has this trust, whatever its origin usually has."""

    origin: str
    source_id: str
    trust: str


@record
class KnownDatum:
    """What a session remembers of a provenance id. `depth` counts the derivations behind it."""

    provenance_id: str
    request_id: str
    turn_id: str | None
    trust: str
    depth: int


class Lineage:
    """The provenance ids of one session. It holds `MAX_PROVENANCE_IDS` of them and never lets one go."""

    def __init__(self, known: Sequence[KnownDatum] = ()) -> None:
        self._known: dict[str, KnownDatum] = {}
        self._by_step: dict[str, list[str]] = {}
        self._by_turn: dict[str, list[str]] = {}
        self.add(known)

    def __len__(self) -> int:
        return len(self._known)

    def find(self, provenance_id: str) -> KnownDatum | None:
        """What is known of an id."""
        return self._known.get(provenance_id)

    def of_steps(self, request_ids: Sequence[str]) -> frozenset[str]:
        """The ids that these steps brought."""
        return frozenset(found for step in request_ids for found in self._by_step.get(step, ()))

    def of_turn(self, turn_id: str) -> frozenset[str]:
        """The ids that the steps of a turn brought."""
        return frozenset(self._by_turn.get(turn_id, ()))

    def add(self, known: Sequence[KnownDatum]) -> None:
        """Remembers ids; one that is known already keeps its step and takes the trust that is handed in."""
        for datum in known:
            if datum.provenance_id not in self._known:
                self._by_step.setdefault(datum.request_id, []).append(datum.provenance_id)
                if datum.turn_id is not None:
                    self._by_turn.setdefault(datum.turn_id, []).append(datum.provenance_id)
            self._known[datum.provenance_id] = datum


@record
class Trace:
    """What a step's own data is.

    `remembered` are rows for the session's lineage, `forgotten` says that one had no room. `trust` is the lowest of
    all, empty without data. `overrides` were used on the way.
    """

    data: tuple[Datum, ...] = ()
    trust: str = ""
    depth: int = 0
    remembered: tuple[KnownDatum, ...] = ()
    forgotten: bool = False
    overrides: tuple[TrustOverride, ...] = ()
    codes: tuple[str, ...] = ()


NO_DATA: Final = Trace()


def data_of(request: RequestEnvelope) -> tuple[Datum, ...]:
    """The provenance objects on a step's data-bearing fields. Takes a payload that passed its schema."""
    return tuple([_datum(provenance) for provenance in provenance_objects(request.method, request.payload)])


def step_summary(request_id: str, data: tuple[Datum, ...]) -> dict[str, object]:
    """The `provenance_summary` of a step's own entry: nothing but the request is needed to compute it again."""
    counts: dict[str, int] = {}
    for datum in data:
        counts[datum.origin] = counts.get(datum.origin, 0) + 1
    return {
        "origins_seen": list(counts),
        "entry_count": sum(counts.values()),
        "entry_count_by_origin": counts,
        "earliest_step_id_by_origin": dict.fromkeys(counts, request_id),
    }


def trace(
    request: RequestEnvelope, lineage: Lineage, turn_id: str | None, overrides: Mapping[tuple[str, str], TrustOverride]
) -> Trace:
    """The trust and lineage of a step's data, in a session that has this lineage so far."""
    data = data_of(request)
    if not data:
        return NO_DATA
    tracer = _Tracer(request.request_id, lineage, turn_id, overrides)
    for datum in data:
        tracer.take(datum)
    return tracer.result(data)


def lowest(first: str, second: str) -> str:
    """The lower of two trusts."""
    return first if _RANK[first] <= _RANK[second] else second


class _Tracer:
    def __init__(
        self,
        request_id: str,
        lineage: Lineage,
        turn_id: str | None,
        overrides: Mapping[tuple[str, str], TrustOverride],
    ) -> None:
        self._request_id = request_id
        self._lineage = lineage
        self._turn_id = turn_id
        self._overrides = overrides
        self._room = MAX_PROVENANCE_IDS - len(lineage)
        self._here: dict[str, KnownDatum] = {}
        self._forgotten = False
        self._trust = TRUSTED
        self._depth = 0
        self._used: dict[TrustOverride, None] = {}
        self._codes: dict[str, None] = {}

    def take(self, datum: Datum) -> None:
        known = self._find(datum.provenance_id)
        trust, depth = self._judged(datum, known)
        self._trust = lowest(self._trust, trust)
        self._depth = max(self._depth, depth)
        if known is not None:
            self._codes[PROVENANCE_ID_REPEATED] = None
            self._remember(KnownDatum(known.provenance_id, known.request_id, known.turn_id, trust, known.depth))
        elif self._room <= 0 or len(datum.provenance_id) > MAX_PROVENANCE_ID_CHARACTERS:
            self._forgotten = True
        else:
            self._room -= 1
            self._remember(KnownDatum(datum.provenance_id, self._request_id, self._turn_id, trust, depth))

    def result(self, data: tuple[Datum, ...]) -> Trace:
        remembered = tuple(self._here.values())
        return Trace(data, self._trust, self._depth, remembered, self._forgotten, tuple(self._used), tuple(self._codes))

    def _judged(self, datum: Datum, known: KnownDatum | None) -> tuple[str, int]:
        trust = self._of_source(datum)
        depth = 0
        for parent_id in datum.derived_from:
            parent = self._find(parent_id)
            if parent is None:
                self._codes[PROVENANCE_UNKNOWN] = None
            trust = lowest(trust, UNTRUSTED if parent is None else parent.trust)
            depth = max(depth, 1 if parent is None else parent.depth + 1)
        return (trust if known is None else lowest(trust, known.trust)), depth

    def _of_source(self, datum: Datum) -> str:
        override = self._overrides.get((datum.origin, datum.source_id))
        if override is not None:
            self._used[override] = None
            return override.trust
        if datum.origin == AGENT_GENERATED:
            return TRUSTED if datum.derived_from else UNKNOWN
        return DEFAULT_TRUST.get(datum.origin, UNTRUSTED)

    def _find(self, provenance_id: str) -> KnownDatum | None:
        return self._here.get(provenance_id) or self._lineage.find(provenance_id)

    def _remember(self, datum: KnownDatum) -> None:
        self._here[datum.provenance_id] = datum


def _datum(provenance: Mapping[str, Any]) -> Datum:
    return Datum(
        provenance["provenance_id"],
        provenance["origin"],
        provenance.get("source_id", ""),
        tuple(provenance.get("derived_from", ())),
    )
