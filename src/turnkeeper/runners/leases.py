"""What a runner is told of the turn that it is given. Pure."""

from dataclasses import asdict, dataclass
from typing import Final

import orjson

from turnkeeper.acs import JsonObject
from turnkeeper.runners.pools import Leased
from turnkeeper.runners.tokens import LeaseTokens
from turnkeeper.sandbox.protocol import HistoryItem, Start

BEATS_PER_TTL: Final = 3
BEATS_PER_GRACE: Final = 4
"""Word of a cancel comes with a heartbeat, so it must come while there is grace left."""
GATEWAY_PATH: Final = "/worker/v1/gateway"


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What is the same for all leases of a process. `url` is where runners reach it; None is where they asked."""

    ttl_ms: int = 30_000
    cancel_grace_ms: int = 10_000
    url: str | None = None

    @property
    def heartbeat_ms(self) -> int:
        """How often a runner should say that it lives."""
        return max(1, min(self.ttl_ms // BEATS_PER_TTL, self.cancel_grace_ms // BEATS_PER_GRACE))


def lease_document(leased: Leased, tokens: LeaseTokens, terms: LeaseTerms, *, asked_at: str) -> JsonObject:
    """The answer to `POST /worker/v1/leases`. `asked_at` is the address under which the runner asked."""
    holder, base = leased.box.holder, (terms.url or asked_at).rstrip("/")
    return {
        "turn": turn_document(leased.start),
        "attempt": leased.start.attempt,
        "fence": holder.fence,
        "token": tokens.token("lease", holder),
        "sandbox_id": leased.box.sandbox_id,
        "lease_ttl_ms": terms.ttl_ms,
        "heartbeat_ms": terms.heartbeat_ms,
        "gateway": {"url": f"{base}{GATEWAY_PATH}", "token": tokens.token("gateway", holder)},
        "workspace": None,
    }


def turn_document(start: Start) -> JsonObject:
    """The turn as its runner needs it. What a model wrote stays the text that it is."""
    return {
        "id": start.turn_id,
        "instructions": start.instructions,
        "input": start.input,
        "model": {"id": start.model, "params": orjson.loads(orjson.dumps(start.params)), "wire": start.wire},
        "output_schema": None if start.output_schema is None else orjson.loads(start.output_schema),
        "history": [_item(item) for item in start.history],
        "pending": None if start.pending is None else _item(start.pending),
        "submissions": start.submissions,
        "accepted": None if start.accepted is None else orjson.loads(start.accepted),
        "max_model_calls": start.max_model_calls,
        "stream": start.stream,
    }


def _item(item: HistoryItem) -> JsonObject:
    return asdict(item)
