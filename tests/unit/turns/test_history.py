"""What comes back of earlier turns."""

from datetime import UTC, datetime

import orjson

from turnkeeper.events import catalogue
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.sandbox.protocol import HistoryItem
from turnkeeper.turns.history import rebuild_history

TURNS = ("trn_00000000000000000000000001", "trn_00000000000000000000000002")
CALL = "tcl_00000000000000000000000001"


def stored(*events: NewEvent) -> list[Event]:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    return [
        Event(f"evt_{number}", new.type, now, new.source, "prj", "ses", new.turn_id, number, 1, new.data)
        for number, new in enumerate(events, start=1)
    ]


def said(turn_id: str, text: str) -> list[NewEvent]:
    return [
        catalogue.message_received(turn_id=turn_id, message_id="msg_1", parts=[{"type": "text", "text": text}]),
        catalogue.message_completed(turn_id=turn_id, attempt=1, message_id="msg_2", text=f"re: {text}", final=True),
    ]


def requested(*, truncated: bool = False) -> NewEvent:
    return catalogue.tool_requested(
        turn_id=TURNS[0],
        attempt=1,
        tool_call_id=CALL,
        name="shell",
        input_json='"{\\"comm"' if truncated else '{"command":"ls"}',
        input_hash="0" * 64,
        truncated=truncated,
    )


def completed() -> NewEvent:
    return catalogue.tool_completed(
        turn_id=TURNS[0],
        attempt=1,
        tool_call_id=CALL,
        status="ok",
        output="a.txt",
        modified=False,
        truncated=False,
        duration_ms=1,
    )


def test_messages_and_finished_calls_come_back_in_order() -> None:
    question, reply = said(TURNS[0], "list")
    assert rebuild_history(stored(question, requested(), completed(), reply), max_bytes=1_000) == [
        HistoryItem("user", "list"),
        HistoryItem("tool", "a.txt", CALL, "shell", '{"command":"ls"}'),
        HistoryItem("agent", "re: list"),
    ]


def test_a_call_without_an_end_does_not_come_back() -> None:
    assert rebuild_history(stored(requested()), max_bytes=1_000) == []


def test_a_cut_input_comes_back_as_an_object_that_says_so() -> None:
    (item,) = rebuild_history(stored(requested(truncated=True), completed()), max_bytes=1_000)
    assert orjson.loads(item.arguments) == {"cut": '{"comm'}


def test_the_oldest_turns_are_left_out_whole() -> None:
    events = stored(*said(TURNS[0], "x" * 100), *said(TURNS[1], "short"))
    assert [item.text for item in rebuild_history(events, max_bytes=60)] == ["short", "re: short"]


def test_a_turn_that_does_not_fit_brings_back_nothing() -> None:
    assert rebuild_history(stored(*said(TURNS[0], "x" * 100)), max_bytes=60) == []
