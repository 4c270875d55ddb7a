"""What a rule may look at when a step is decided.

Answers for the shape of the facts, the same for every engine. Must never hold a value that the Guardian did not count
or verify itself under a name that says otherwise: counts come from the session, not from the client. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, cast

from turnkeeper.acs import hook_name
from turnkeeper.policy.intent import Capability, IntentFacts, IntentMatch, match_intent
from turnkeeper.records import record, record_with_cache

FACT_NAMES: Final = (
    "step",
    "payload",
    "tool",
    "args",
    "turn",
    "session",
    "agent",
    "environment",
    "provenance",
    "intent",
    "approval",
)
NEVER_TAINTED: Final = -1

_NO_INTENT = IntentFacts()


@record
class TurnFacts:
    """The turn that is open in the session; `id` is empty and the counts are 0 where none is.

    `steps` and `tool_calls` include the step being decided; `denials` and `deferrals` are those answered before it.
    `denied` says that the turn's own turnStart was denied, `taint_step` names the earliest step that carried data of
    untrusted origin, this one included.
    """

    id: str = ""
    open: bool = False
    denied: bool = False
    steps: int = 0
    tool_calls: int = 0
    tainted: bool = False
    taint_step: str = ""
    denials: int = 0
    deferrals: int = 0
    parent_id: str = ""
    triggered_by: str = ""


@record
class SessionFacts:
    """The session so far, counted as a turn is; `turns_since_taint` is -1 where nothing tainted it."""

    id: str
    steps: int = 0
    tool_calls: int = 0
    turns: int = 0
    tainted: bool = False
    taint_step: str = ""
    turns_since_taint: int = NEVER_TAINTED
    denials: int = 0
    deferrals: int = 0


@record
class ProvenanceFacts:
    """Where the step's own data comes from. `trust` is what the Guardian derived, the lowest of all; "" without data.

    One of `trusted`, `unknown`, `untrusted`. Each list holds distinct values.
    """

    ids: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    trust: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalFacts:
    """The approval that this very step was granted before; `by` names the approver, `scope` what for."""

    granted: bool = False
    by: str = ""
    scope: str = ""


_NO_TURN = TurnFacts()
_NO_PROVENANCE = ProvenanceFacts()


@record_with_cache
class Facts:
    """One step and what stands around it. `environment` is empty where the client names none.

    `called` is the tool call inside a wrapped message, in the members of a toolCallRequest; `tool` and `args` are read
    from it where there is one. What several rules of a policy ask for is worked out once.
    """

    method: str
    step_id: str
    payload: Mapping[str, object]
    agent_id: str
    session: SessionFacts
    turn: TurnFacts = _NO_TURN
    environment: str = ""
    provenance: ProvenanceFacts = _NO_PROVENANCE
    intent: IntentFacts = _NO_INTENT
    approval: ApprovalFacts = ApprovalFacts()
    called: Mapping[str, object] | None = None

    @property
    def hook(self) -> str:
        """The hook's short name, as rules name it."""
        return hook_name(self.method)

    @cached_property
    def intent_match(self) -> IntentMatch:
        """How a tool call stands to the session's intent; any other step is not covered."""
        is_call = self.called is not None or self.hook == "toolCallRequest"
        return match_intent(self.intent, self.call) if is_call else IntentMatch()

    @property
    def tool_name(self) -> str | None:
        """The tool that the step is about; None where it is about none."""
        return _text(self.call.get("tool"), "name")

    def to_variables(self) -> dict[str, object]:
        """The facts as plain values, by the names that rules use."""
        return {
            "step": {"method": self.method, "hook": self.hook, "id": self.step_id},
            "payload": self.payload,
            "tool": {"name": self.tool_name or "", "provider": _text(self.call.get("tool"), "provider") or ""},
            "args": self.arguments,
            "turn": _members(self.turn),
            "session": _members(self.session),
            "agent": {"id": self.agent_id},
            "environment": self.environment,
            "provenance": {
                "ids": list(self.provenance.ids),
                "origins": list(self.provenance.origins),
                "sources": list(self.provenance.sources),
                "trust": self.provenance.trust,
            },
            "intent": self._intent_members(),
            "approval": _members(self.approval),
        }

    @cached_property
    def arguments(self) -> dict[str, object]:
        """The values of a tool call's arguments by their names; what is no argument of the standard's is left out."""
        given = self.call.get("arguments")
        if not isinstance(given, dict):
            return {}
        return {
            name: cast("dict[str, object]", argument).get("value")
            for name, argument in cast("dict[str, object]", given).items()
            if isinstance(argument, dict)
        }

    @property
    def call(self) -> Mapping[str, object]:
        """Where a tool call's members stand: in the payload, or in the call inside a wrapped message."""
        return self.payload if self.called is None else self.called

    def _intent_members(self) -> dict[str, object]:
        match = self.intent_match if self.intent.declared else IntentMatch()
        return {
            "raw": self.intent.raw,
            "capabilities": [_members(capability) for capability in self.intent.capabilities],
            "scope_mode": self.intent.scope_mode,
            "declared": self.intent.declared,
            "covered": match.covered,
            "covers_tool": match.covers_tool,
            "unclear": match.unclear,
            "resources": list(match.resources),
        }


def _members(part: TurnFacts | SessionFacts | Capability | ApprovalFacts) -> dict[str, object]:
    return {member.name: getattr(part, member.name) for member in fields(part)}


def _text(value: object, name: str) -> str | None:
    member = cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None
    return member if isinstance(member, str) else None
