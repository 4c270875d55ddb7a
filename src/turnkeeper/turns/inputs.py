"""The input of a turn as its agent may see it: what the Guardian let through, kept in `message.received`.

Must never fall back to what was posted where an answer of the Guardian changed it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

import orjson

from turnkeeper.turns.model import Turn
from turnkeeper.turns.ports import TurnReads

_MESSAGE_RECEIVED: Final = "message.received"


async def received_text(store: TurnReads, turn: Turn) -> str | None:
    """The text that was let through; None where nothing was yet."""
    events = await store.events(turn.session_id, after=0, limit=1, types=(_MESSAGE_RECEIVED,), turn_id=turn.id)
    return text_of_parts(orjson.loads(events[0].data)["parts"]) if events else None


def text_of_parts(parts: object) -> str:
    """The text of a message's parts."""
    return "\n".join(str(part.get("text", "")) for part in cast("Sequence[Mapping[str, object]]", parts))
