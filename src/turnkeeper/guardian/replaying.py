"""A recorded session gone through again: each step considered as the Guardian did, from the traffic alone.

Answers for the turn windows, the memory and the lineage that a verifier compares answers with. What it cannot know is
how far the Guardian trusted a source against its default, and what other sessions' heads were: neither is held
against an answer. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnkeeper.acs import (
    ClientHello,
    Disposition,
    HookSpec,
    JsonObject,
    RequestEnvelope,
    SchemaViolation,
    ServerHello,
)
from turnkeeper.guardian.handshakes import agreed_terms
from turnkeeper.guardian.ledger import Considered, consider, settled
from turnkeeper.guardian.mcp import is_tool_call
from turnkeeper.guardian.ports import Lookup, SessionProgress, SessionTerms
from turnkeeper.guardian.provenance import Lineage
from turnkeeper.guardian.subagents import SUBAGENT_INTENT_EXCEEDS
from turnkeeper.guardian.windows import Placement, TurnWindow

_EXTENDED_BY_APPROVERS: Final = frozenset({SUBAGENT_INTENT_EXCEEDS})


@dataclass(frozen=True, slots=True)
class Replayed:
    """One step gone through again. `denial` is the code of a built-in rule that had to deny it."""

    placement: Placement
    denial: str | None
    codes: tuple[str, ...]
    notes: Mapping[str, str]


class Replay:
    """Takes a session's decided steps in order. Nothing about a step is believed but its request and its decision."""

    def __init__(self, session_id: str) -> None:
        self._terms = SessionTerms(session_id, "", "", "", 0, frozenset(), "", b"", 0)
        self._progress = SessionProgress()
        self._lineage = Lineage()
        self._methods: dict[str, str] = {}

    @property
    def window(self) -> TurnWindow | None:
        """The turn that is open."""
        return self._progress.window

    @property
    def terms(self) -> SessionTerms:
        """What the session's handshake agreed on, once it was taken."""
        return self._terms

    def shake_hands(self, hello: RequestEnvelope, answer: JsonObject | None) -> None:
        """Takes the session's handshake; one that agreed on nothing changes nothing."""
        result = None if answer is None else answer.get("result")
        try:
            told = ServerHello.of(result)
            said = ClientHello.of(hello.payload)
        except SchemaViolation:
            return
        self._terms = agreed_terms(
            said, told, session_id=hello.session_id, key_id="", agent_id=hello.agent_id, created_at_ms=0
        )

    def take(
        self, request: RequestEnvelope, spec: HookSpec, given: Disposition, head: str | None, *, ruled: bool
    ) -> Replayed:
        """Takes a step that was answered with `given` when the chain stood at `head`.

        Where not `ruled`, the step was decided by a program that had no built-in rules: its place is all that counts.
        """
        considered = consider(
            request,
            spec,
            terms=self._terms,
            progress=self._at(head),
            lineage=self._lineage,
            looked_up=self._looked_up(request),
            overrides={},
        )
        placement = considered.placement.decided(given)
        self._advance(request, considered, placement, given, ruled=ruled)
        if not ruled:
            return Replayed(placement, None, (), {})
        denial = None if considered.denial is None else considered.denial.code
        return Replayed(
            placement,
            None if denial in _EXTENDED_BY_APPROVERS else denial,
            considered.codes,
            {note.code: note.message for note in considered.notes},
        )

    def _at(self, head: str | None) -> SessionProgress:
        progress = self._progress
        return SessionProgress(head, turns=progress.turns, window=progress.window, memory=progress.memory)

    def _looked_up(self, request: RequestEnvelope) -> Lookup:
        reference = request.payload.get("request_id_ref")
        return Lookup(referenced_method=self._methods.get(reference) if isinstance(reference, str) else None)

    def _advance(
        self, request: RequestEnvelope, considered: Considered, placement: Placement, given: Disposition, *, ruled: bool
    ) -> None:
        if is_tool_call(request):
            self._methods[request.request_id] = request.method
        memory = settled(considered, placement, request, given)
        if not ruled:
            deferred = memory.kept.deferred_turns
            memory = self._progress.memory.keeping(deferred_turns=deferred)
        else:
            self._lineage.add(considered.traced.remembered)
        turns = self._progress.turns + placement.opened
        self._progress = SessionProgress(turns=turns, window=placement.window, memory=memory)
