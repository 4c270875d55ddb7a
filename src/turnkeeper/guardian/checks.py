"""How the Guardian's built-in rules (row 19 of the order of checks) look at a step, each in a module of its own.

A rule is a function from a `Step` and the session's memory to `Checked`: whether it denies, what an auditor should
see, and what the session remembers of it. Must never decide for the policy: a rule that is content says nothing.
Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from turnkeeper.acs import RequestEnvelope
from turnkeeper.guardian.memory import SESSION_MEMORY_FULL, SessionMemory
from turnkeeper.guardian.ports import Lookup, SessionTerms
from turnkeeper.guardian.provenance import Lineage, Trace
from turnkeeper.guardian.windows import Placement
from turnkeeper.records import record

Grant: TypeAlias = Callable[[SessionMemory], SessionMemory]
"""What the session remembers of a step once it was let through."""


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a built-in rule denies a step."""

    code: str
    reasoning: str


@record
class Note:
    """What an auditor should see."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A rule's word. `memory` replaces the session's whatever is answered; None leaves it as it is.

    `grant` applies only where the step is let through. `codes` go into the answer.
    """

    denial: Denial | None = None
    notes: tuple[Note, ...] = ()
    codes: tuple[str, ...] = ()
    memory: SessionMemory | None = None
    grant: Grant | None = None


CONTENT = Checked()
"""A rule that has nothing to say."""


@record
class Step:
    """A step as rules see it; `looked_up` is what the store was asked for beforehand."""

    request: RequestEnvelope
    terms: SessionTerms
    placement: Placement
    lineage: Lineage
    traced: Trace
    head: str | None
    looked_up: Lookup

    @property
    def payload(self) -> Mapping[str, object]:
        """The step's payload."""
        return self.request.payload


Rule: TypeAlias = Callable[[Step, SessionMemory], Checked]


def full(what: str) -> Checked:
    """DENY because the session can remember no more of something."""
    return Checked(Denial(SESSION_MEMORY_FULL, f"The session can remember no more {what}."))


def noted(*codes_and_messages: tuple[str, str]) -> Checked:
    """Nothing but findings."""
    return Checked(notes=tuple(Note(code, message) for code, message in codes_and_messages))
