"""The input of a turn as its agent may see it: what the Guardian let through, kept in `message.received`.

Must never fall back to what was posted where an answer of the Guardian changed it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import orjson

from turnkeeper.turns.model import Turn
from turnkeeper.turns.ports import TurnReads
from turnkeeper.turns.turn_files import TurnFile, turn_file_of

_MESSAGE_RECEIVED: Final = "message.received"


async def received_text(store: TurnReads, turn: Turn) -> str | None:
    """The text that was let through; None where nothing was yet."""
    events = await store.events(turn.session_id, after=0, limit=1, types=(_MESSAGE_RECEIVED,), turn_id=turn.id)
    return text_of_parts(orjson.loads(events[0].data)["parts"]) if events else None


async def received_files(store: TurnReads, turn: Turn) -> tuple[TurnFile, ...]:
    """The files that were let through with it."""
    if not turn.input_files:
        return ()
    events = await store.events(turn.session_id, after=0, limit=1, types=(_MESSAGE_RECEIVED,), turn_id=turn.id)
    parts = cast("Sequence[Mapping[str, Any]]", orjson.loads(events[0].data)["parts"] if events else ())
    return tuple(turn_file_of(part) for part in parts if part["type"] == "file")


def text_of_parts(parts: object) -> str:
    """The text of a message's parts; what it says of files is in the text already."""
    texts = cast("Sequence[Mapping[str, object]]", parts)
    return "\n".join(str(part["text"]) for part in texts if part["type"] == "text")
