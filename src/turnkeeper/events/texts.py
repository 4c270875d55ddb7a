"""The events of a text that is being written (contract 10.3 and 11): in streams alone, never stored.

Pure, and a part of the catalogue. `offset` counts characters (Unicode code points): those of the message before `text`
in a delta, all there are in a snapshot.
"""

from typing import Final

import orjson

from turnkeeper.events.envelope import NewEvent

EPHEMERAL_TYPES: Final = ("message.delta", "message.snapshot", "reasoning.delta")
"""In streams alone, without `sequence`: nobody stores them."""


def message_delta(*, turn_id: str, attempt: int, message_id: str, offset: int, text: str) -> NewEvent:
    """The agent has written more."""
    return NewEvent("message.delta", "sandbox", _data(turn_id, message_id, offset, text), turn_id, attempt)


def message_snapshot(*, turn_id: str, attempt: int, message_id: str, text: str) -> NewEvent:
    """All that the agent has written of the message so far."""
    return NewEvent("message.snapshot", "platform", _data(turn_id, message_id, len(text), text), turn_id, attempt)


def reasoning_delta(*, turn_id: str, attempt: int, message_id: str, offset: int, text: str) -> NewEvent:
    """The model has thought more before its message."""
    return NewEvent("reasoning.delta", "sandbox", _data(turn_id, message_id, offset, text), turn_id, attempt)


def _data(turn_id: str, message_id: str, offset: int, text: str) -> str:
    return orjson.dumps({"turn_id": turn_id, "message_id": message_id, "offset": offset, "text": text}).decode()
