"""What a rule may look at when a step is decided.

Answers for the shape of the facts, the same for every engine. Must never hold a value that the Guardian did not count
or verify itself under a name that says otherwise: counts come from the session, not from the client. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from turnkeeper.acs import hook_name

FACT_NAMES: Final = ("step", "payload", "tool", "args", "turn", "session", "agent", "environment")


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """The turn that is open in the session; `id` is empty and the counts are 0 where none is.

    Both counts include the step being decided. `denied` says that the turn's own turnStart was denied.
    """

    id: str = ""
    open: bool = False
    denied: bool = False
    steps: int = 0
    tool_calls: int = 0


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The session so far; the counts include the step being decided."""

    id: str
    steps: int = 0
    tool_calls: int = 0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """One step and what stands around it. `environment` is empty where the client names none."""

    method: str
    step_id: str
    payload: Mapping[str, object]
    agent_id: str
    session: SessionFacts
    turn: TurnFacts = TurnFacts()
    environment: str = ""

    @property
    def hook(self) -> str:
        """The hook's short name, as rules name it."""
        return hook_name(self.method)

    @property
    def tool_name(self) -> str | None:
        """The tool that the step is about; None where it is about none."""
        return _text(self.payload.get("tool"), "name")

    def to_variables(self) -> dict[str, object]:
        """The facts as plain values, by the names that rules use."""
        return {
            "step": {"method": self.method, "hook": self.hook, "id": self.step_id},
            "payload": self.payload,
            "tool": {"name": self.tool_name or "", "provider": _text(self.payload.get("tool"), "provider") or ""},
            "args": self._argument_values(),
            "turn": {
                "id": self.turn.id,
                "open": self.turn.open,
                "denied": self.turn.denied,
                "steps": self.turn.steps,
                "tool_calls": self.turn.tool_calls,
            },
            "session": {
                "id": self.session.id,
                "steps": self.session.steps,
                "tool_calls": self.session.tool_calls,
                "turns": self.session.turns,
            },
            "agent": {"id": self.agent_id},
            "environment": self.environment,
        }

    def _argument_values(self) -> dict[str, object]:
        arguments = self.payload.get("arguments")
        if not isinstance(arguments, dict):
            return {}
        given = cast("dict[str, object]", arguments)
        return {
            name: cast("dict[str, object]", argument).get("value")
            for name, argument in given.items()
            if isinstance(argument, dict)
        }


def _text(value: object, name: str) -> str | None:
    member = cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None
    return member if isinstance(member, str) else None
