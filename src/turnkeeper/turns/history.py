"""What an agent remembers of earlier turns, rebuilt from stored events (architecture: the worker owns history).

Pure. Only what was allowed was ever stored as an event, so only that comes back; a harness's own memory is never
asked. Bounded: the oldest turns are left out first, and a turn comes back whole or not at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import orjson

from turnkeeper.events.envelope import Event
from turnkeeper.sandbox.protocol import HistoryItem
from turnkeeper.turns.inputs import text_of_parts

FATE_UNKNOWN: Final = (
    "[unknown: the sandbox went away before this call ended. It may have taken effect; look before calling it again.]"
)
"""What an agent is told of a call that was open when its attempt was lost (contract 6)."""


def rebuild_history(events: Iterable[Event], *, max_bytes: int) -> list[HistoryItem]:
    """The items of the newest turns that fit into `max_bytes`, oldest first."""
    turns: dict[str, list[HistoryItem]] = {}
    calls: dict[str, tuple[str, str]] = {}
    for event in events:
        item = _item(event, cast("Mapping[str, object]", orjson.loads(event.data)), calls)
        if item is not None and item.kind == "summary":
            turns = _compacted(turns, event, item)
        elif item is not None:
            turns.setdefault(event.turn_id or "", []).append(item)
    return _newest(list(turns.values()), max_bytes)


def _compacted(
    turns: Mapping[str, list[HistoryItem]], event: Event, summary: HistoryItem
) -> dict[str, list[HistoryItem]]:
    """The summary in the place of all before it; of its own turn, what was asked stays as it was."""
    asked = [item for item in turns.get(event.turn_id or "", ()) if item.kind == "user"]
    return {event.turn_id or "": [summary, *asked]}


def _newest(turns: Sequence[list[HistoryItem]], max_bytes: int) -> list[HistoryItem]:
    kept: list[list[HistoryItem]] = []
    for items in reversed(turns):
        max_bytes -= sum(item_bytes(item) for item in items)
        if max_bytes < 0:
            break
        kept.append(items)
    return [item for items in reversed(kept) for item in items]


def _item(event: Event, data: Mapping[str, object], calls: dict[str, tuple[str, str]]) -> HistoryItem | None:
    match event.type:
        case "message.received":
            return HistoryItem("user", text_of_parts(data["parts"]))
        case "message.completed" if not data["final"]:
            # Of messages that are not their turn's answer, the store remembers summaries alone.
            return HistoryItem("summary", str(data["text"]))
        case "message.completed":
            return HistoryItem("agent", str(data["text"]))
        case "tool.requested":
            calls[str(data["tool_call_id"])] = (str(data["name"]), _arguments(data))
        case "tool.completed" if (call := calls.pop(str(data["tool_call_id"]), None)) is not None:
            return HistoryItem("tool", _outcome(data), str(data["tool_call_id"]), call[0], call[1])
        case _:
            pass
    return None


def _outcome(data: Mapping[str, object]) -> str:
    return FATE_UNKNOWN if data["status"] == "unknown" else str(data["output"])


def _arguments(data: Mapping[str, object]) -> str:
    # A cut input is a text that ends in the middle; as one argument it is still a JSON object.
    value = {"cut": data["input"]} if data["truncated"] else data["input"]
    return orjson.dumps(value).decode()


def item_bytes(item: HistoryItem) -> int:
    """How much of an agent's memory an item takes."""
    return len(item.text.encode()) + len(item.arguments.encode()) + len(item.name)
