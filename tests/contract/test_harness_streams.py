"""A harness whose worker wants to hear it: the same turn, told while it is written (contract 11)."""

from pathlib import Path
from typing import Final

from tests.contract.harness_rig import SHELL, Worker, play

from turnkeeper.sandbox.protocol import ResponseDenied, TextDelta, ToolRequest
from turnkeeper.testing.memory_meter import MemoryMeter
from turnkeeper.testing.scripted_model import ScriptedAnswer, ScriptedCall, ScriptedUsage

TEXT: Final = "one two three four five six"


def told(worker: Worker) -> dict[int, str]:
    """What was told of each message."""
    texts: dict[int, str] = {}
    for frame in worker.frames:
        if isinstance(frame, TextDelta):
            texts[frame.message] = texts.get(frame.message, "") + frame.text
    return texts


def test_what_is_told_is_what_is_reported_in_the_end(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, [ScriptedAnswer(text=TEXT, usage=ScriptedUsage(11, 3))], stream=True)

    assert (told(worker), worker.report.text) == ({1: TEXT}, TEXT)
    assert (worker.report.usage["input_tokens"], worker.report.usage["output_tokens"]) == (11, 3)
    assert rig.model.requests[0].streams


def test_a_call_is_asked_for_as_the_model_wrote_it_after_what_it_said(tmp_path: Path) -> None:
    call = ScriptedAnswer(text="Looking.", tool_calls=(ScriptedCall("shell", '{ "command" : "ls" }'),))
    worker, _ = play(tmp_path, [call, ScriptedAnswer(text="done")], tools=[SHELL], stream=True)

    assert [request.arguments for request in worker.requests] == ['{ "command" : "ls" }']
    assert told(worker) == {1: "Looking.", 2: "done"}
    said = [frame for frame in worker.frames if isinstance(frame, TextDelta | ToolRequest)]
    assert [type(frame) for frame in said if not isinstance(frame, TextDelta) or frame.message == 1][-1] is ToolRequest


def test_what_a_model_thinks_is_told_apart_from_what_it_says(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, [ScriptedAnswer(text="done", reasoning="hm")], stream=True)

    pieces = [(frame.kind, frame.text) for frame in worker.frames if isinstance(frame, TextDelta)]
    assert "".join(text for kind, text in pieces if kind == "reasoning") == "hm"
    assert ("".join(text for kind, text in pieces if kind == "message"), worker.report.text) == ("done", "done")


def test_an_answer_that_was_refused_is_followed_by_another_message(tmp_path: Path) -> None:
    worker = Worker(verdicts=[ResponseDenied(["no"], 1), *Worker().verdicts])
    worker, _ = play(tmp_path, [ScriptedAnswer(text="bad"), ScriptedAnswer(text="good")], worker=worker, stream=True)

    assert (told(worker), worker.report.text) == ({1: "bad", 2: "good"}, "good")


def test_a_stream_that_breaks_off_fails_the_turn(tmp_path: Path) -> None:
    broken = ScriptedAnswer(text=TEXT, cut_after_events=3)
    worker, _ = play(tmp_path, [broken, broken, broken, broken], stream=True)

    assert (worker.report.status, worker.report.stop_reason) == ("failed", "model_error")


def test_a_spent_budget_ends_a_streamed_turn_too(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, [ScriptedAnswer(text=TEXT)], meter=MemoryMeter(limit_total_tokens=10), stream=True)

    assert (worker.report.status, worker.report.stop_reason) == ("completed", "budget_reached")


def test_a_worker_that_does_not_listen_is_told_nothing(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, [ScriptedAnswer(text=TEXT)])

    assert (told(worker), rig.model.requests[0].streams) == ({}, False)
