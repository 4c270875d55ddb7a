"""Subagents inside the built-in harness: a loop in a loop, with a history of its own and the turn's one model."""

from pathlib import Path

from tests.contract.harness_rig import SHELL, Worker, play
from tests.contract.test_harness import DONE, calls, shell

from turnkeeper.sandbox.protocol import SubagentReport, SubagentTask, ToHarness, ToolRequest, ToolResult, ToolSpec
from turnkeeper.testing.scripted_model import ScriptedAnswer, ScriptedCall

READER = ToolSpec("reader", "Reads.", {"type": "object", "properties": {"task": {"type": "string"}}})
THREAD = "thr_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
DELEGATE = calls(ScriptedCall("reader", '{"task":"read it"}'), text="I will have it read.")


class Delegator(Worker):
    """A worker that hands each task on, and answers the call with what the subagent said."""

    waiting: ToolRequest | None = None

    def answer(self, frame: object) -> ToHarness | None:
        if isinstance(frame, ToolRequest) and frame.name == "reader":
            self.waiting = frame
            return SubagentTask(THREAD, "reader", "You read.", "read it", [SHELL])
        if isinstance(frame, SubagentReport) and self.waiting is not None:
            return ToolResult(self.waiting.call_id, "ok", frame.text)
        return super().answer(frame)  # pyright: ignore[reportArgumentType] - every other frame is the base's

    @property
    def told(self) -> list[SubagentReport]:
        return [frame for frame in self.frames if isinstance(frame, SubagentReport)]


def test_a_subagent_has_its_own_history_and_its_tools_alone(tmp_path: Path) -> None:
    script = [DELEGATE, calls(shell()), ScriptedAnswer(text="three lines"), DONE]
    worker, rig = play(tmp_path, script, Delegator(), tools=[SHELL, READER])
    assert isinstance(worker, Delegator)
    assert worker.told == [SubagentReport(THREAD, "end_turn", "three lines")]
    first, last = rig.model.requests[1], rig.model.requests[3]
    assert first.messages == [
        {"role": "system", "content": "You read."},
        {"role": "user", "content": "read it"},
    ]
    assert [tool["function"]["name"] for tool in first.body["tools"]] == ["shell"]  # type: ignore[index,union-attr]
    assert last.messages[-1]["content"] == "three lines"
    assert worker.report.text == "done"
    assert worker.report.usage["model_calls"] == 4


def test_what_a_subagent_said_is_not_what_its_turn_said_last(tmp_path: Path) -> None:
    script = [DELEGATE, ScriptedAnswer(text="three lines"), ScriptedAnswer(status=400)]
    worker, _ = play(tmp_path, script, Delegator(), tools=[READER])
    assert worker.report.stop_reason == "model_error"
    assert worker.report.text == "I will have it read."


def test_a_subagent_whose_model_fails_is_reported_and_its_agent_goes_on(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, [DELEGATE, ScriptedAnswer(status=400), DONE], Delegator(), tools=[READER])
    assert isinstance(worker, Delegator)
    assert [report.stop_reason for report in worker.told] == ["model_error"]
    assert worker.report.stop_reason == "end_turn"


def test_the_turns_bound_on_model_calls_is_one_for_its_subagents_too(tmp_path: Path) -> None:
    script = [DELEGATE, calls(shell()), ScriptedAnswer(text="never asked")]
    worker, rig = play(tmp_path, script, Delegator(), tools=[READER], max_model_calls=2)
    assert isinstance(worker, Delegator)
    assert [report.stop_reason for report in worker.told] == ["budget_reached"]
    assert worker.report.stop_reason == "budget_reached"
    assert len(rig.model.requests) == 2


def test_a_subagents_words_are_not_streamed(tmp_path: Path) -> None:
    script = [DELEGATE, ScriptedAnswer(text="three lines"), DONE]
    worker, rig = play(tmp_path, script, Delegator(), tools=[READER], stream=True)
    assert [request.streams for request in rig.model.requests] == [True, False, True]
    assert "three lines" not in "".join(
        getattr(frame, "text", "") for frame in worker.frames if frame.type == "text_delta"
    )
