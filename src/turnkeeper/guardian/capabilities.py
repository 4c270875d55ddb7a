"""What clients can do with a decision, as the Guardian knows it out of band (ACS 6.5 and 9.2).

Answers for one client's abilities, found by the label of its key and by its agent_id. Where several entries match, the
client can do only what all of them say. Must never learn an ability from the wire: a client cannot vouch for itself.
Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Final

APPROVER_TYPES: Final = ("human", "agent", "service")


class AskFallback(StrEnum):
    """What a client gets that cannot wait for an approver: a step that may still be resolved, or an end."""

    DEFER = "defer"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class ClientAbilities:
    """What a client can do. `approver_types` are those whose answers it can wait for."""

    can_modify: bool = True
    can_ask: bool = True
    approver_types: frozenset[str] = frozenset(APPROVER_TYPES)
    ask_fallback: AskFallback = AskFallback.DEFER

    def can_wait_for(self, approver_type: str) -> bool:
        """Whether an ASK to this kind of approver may be sent."""
        return self.can_ask and approver_type in self.approver_types

    def met_with(self, other: "ClientAbilities") -> "ClientAbilities":
        """What both say the client can do."""
        denies = AskFallback.DENY in (self.ask_fallback, other.ask_fallback)
        return ClientAbilities(
            self.can_modify and other.can_modify,
            self.can_ask and other.can_ask,
            self.approver_types & other.approver_types,
            AskFallback.DENY if denies else AskFallback.DEFER,
        )


ABLE: Final = ClientAbilities()
"""A client of which nothing else is known."""


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """What is known of the clients with this key label, this agent_id, or both; None stands for any."""

    abilities: ClientAbilities
    key_id: str | None = None
    agent_id: str | None = None


def abilities_of(clients: Sequence[ClientEntry], key_id: str, agent_id: str) -> ClientAbilities:
    """What one client can do."""
    known = [
        entry.abilities for entry in clients if entry.key_id in (None, key_id) and entry.agent_id in (None, agent_id)
    ]
    return reduce(ClientAbilities.met_with, known, ABLE)
