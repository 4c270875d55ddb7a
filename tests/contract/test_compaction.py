"""Compaction in the built-in harness: when it asks, what it shows the model afterwards. The model is scripted."""

from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from tests.contract.harness_rig import SHELL, Worker, play

from turnkeeper.harness.compaction import REQUEST, transcript
from turnkeeper.sandbox.protocol import Compacted, CompactionAsked, HistoryItem, SummaryRuled, ToolResult
from turnkeeper.testing.scripted_model import ScriptedAnswer, ScriptedCall, ScriptedUsage, SeenRequest

WINDOW = 1_000
DONE = ScriptedAnswer(text="done", usage=ScriptedUsage(100, 5))
SUMMARY = ScriptedAnswer(text="SUMMARY", usage=ScriptedUsage(900, 7))
LONG = "word " * 1_000


def calls_shell(tokens: int) -> ScriptedAnswer:
    """A call of the shell, after so many tokens were read."""
    return ScriptedAnswer(tool_calls=(ScriptedCall("shell", '{"command":"ls"}'),), usage=ScriptedUsage(tokens, 10))


def contents(request: SeenRequest) -> list[str]:
    """What each message says."""
    return [str(message.get("content")) for message in request.messages]


def asked(worker: Worker) -> int:
    """How often the harness asked."""
    return sum(isinstance(frame, CompactionAsked) for frame in worker.frames)


def test_a_context_near_the_window_is_summarized_and_the_latest_exchange_stays(tmp_path: Path) -> None:
    script = [calls_shell(100), calls_shell(800), SUMMARY, DONE]

    worker, rig = play(tmp_path, script, tools=[SHELL], context_tokens=WINDOW)

    assert [frame.summary for frame in worker.frames if isinstance(frame, Compacted)] == ["SUMMARY"]
    summarizing, after = rig.model.requests[2:]
    assert contents(summarizing)[0].startswith(REQUEST)
    assert contents(summarizing)[0].count("shell returned:") == 2
    assert "tools" not in summarizing.body
    assert [message["role"] for message in after.messages] == ["system", "user", "user", "assistant", "tool"]
    assert contents(after)[1:3] == ["This is a summary of the conversation so far:\n\nSUMMARY", "hello"]
    assert (worker.report.text, worker.report.usage["model_calls"]) == ("done", 4)


def test_earlier_turns_are_summarized_before_the_first_call(tmp_path: Path) -> None:
    history = [HistoryItem("user", LONG), HistoryItem("agent", "I see")]

    worker, rig = play(tmp_path, [SUMMARY, DONE], history=history, context_tokens=WINDOW)

    assert asked(worker) == 1
    assert contents(rig.model.requests[1])[-1] == "hello"
    assert LONG not in contents(rig.model.requests[1])


def test_without_a_window_that_is_known_nothing_is_summarized(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, [calls_shell(10_000_000), DONE], tools=[SHELL])

    assert (asked(worker), worker.report.status) == (0, "completed")


def test_after_a_no_the_agent_goes_on_with_everything_and_asks_no_more(tmp_path: Path) -> None:
    worker, rig = play(
        tmp_path,
        [calls_shell(900), calls_shell(950), DONE],
        Worker(may_compact=False),
        tools=[SHELL],
        context_tokens=WINDOW,
    )

    assert (asked(worker), worker.report.status) == (1, "completed")
    assert len(rig.model.requests[2].messages) == 6


def test_when_the_window_is_over_without_a_compaction_the_model_error_is_reported(tmp_path: Path) -> None:
    over = ScriptedAnswer(status=400, error_code="context_length_exceeded")

    worker, _ = play(
        tmp_path, [calls_shell(900), over], Worker(may_compact=False), tools=[SHELL], context_tokens=WINDOW
    )

    assert (worker.report.stop_reason, worker.report.status) == ("model_error", "failed")
    assert str(worker.report.error).startswith("context_length_exceeded")


def test_only_the_summary_that_the_worker_hands_back_is_used(tmp_path: Path) -> None:
    worker = Worker(summary=lambda _: SummaryRuled(taken=True, summary="REDACTED"))

    _, rig = play(tmp_path, [calls_shell(900), SUMMARY, DONE], worker, tools=[SHELL], context_tokens=WINDOW)

    said = " ".join(contents(rig.model.requests[2]))
    assert ("REDACTED" in said, "SUMMARY" in said) == (True, False)


def test_a_summary_that_is_not_taken_leaves_the_context_as_it_was(tmp_path: Path) -> None:
    worker = Worker(summary=lambda _: SummaryRuled(taken=False))

    _, rig = play(tmp_path, [calls_shell(900), SUMMARY, DONE], worker, tools=[SHELL], context_tokens=WINDOW)

    assert contents(rig.model.requests[2])[1] == "hello"


def test_a_model_that_cannot_summarize_is_said_so_and_the_turn_goes_on(tmp_path: Path) -> None:
    worker = Worker(summary=lambda _: SummaryRuled(taken=False))
    script = [calls_shell(900), ScriptedAnswer(status=400, error_code="no"), DONE]

    worker, _ = play(tmp_path, script, worker, tools=[SHELL], context_tokens=WINDOW)

    assert [frame.summary for frame in worker.frames if isinstance(frame, Compacted)] == [""]
    assert worker.report.status == "completed"


def test_a_latest_exchange_that_fills_the_window_alone_is_not_summarized_again_and_again(tmp_path: Path) -> None:
    worker = Worker(tool=lambda request: ToolResult(request.call_id, "ok", LONG))

    worker, _ = play(
        tmp_path, [calls_shell(100), SUMMARY, calls_shell(100), DONE], worker, tools=[SHELL], context_tokens=WINDOW
    )

    assert (asked(worker), worker.report.status) == (1, "completed")


def test_prompted_calls_are_summarized_alike(tmp_path: Path) -> None:
    call = ScriptedAnswer(text='{"tool": "shell", "arguments": {}}', usage=ScriptedUsage(900, 10))

    worker, rig = play(tmp_path, [call, SUMMARY, DONE], tools=[SHELL], tool_calling="prompted", context_tokens=WINDOW)

    assert asked(worker) == 1
    assert [message["role"] for message in rig.model.requests[2].messages] == ["system", "user", "assistant", "user"]


@given(st.lists(st.text(max_size=400), max_size=8), st.integers(100, 1_000))
def test_a_transcript_keeps_to_its_size(texts: list[str], max_bytes: int) -> None:
    messages = cast("list[ModelMessage]", [ModelRequest(parts=[UserPromptPart(content=text)]) for text in texts])
    assert len(transcript(messages, max_bytes=max_bytes).encode()) <= max_bytes + len("User: ")
