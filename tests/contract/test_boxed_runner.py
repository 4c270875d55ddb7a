"""The runner of a client's box, opposite a program that prints and asks as a client does, and a test's worker."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import pytest
from tests.contract.harness_rig import start_frame

from turnkeeper.boxed import hook, process
from turnkeeper.boxed.claude_code import ClaudeCode
from turnkeeper.boxed.runner import Place, serve
from turnkeeper.sandbox.protocol import (
    Cancel,
    Canceled,
    Done,
    FromHarness,
    Ready,
    Report,
    ResponseDenied,
    Started,
    SubmissionResult,
    Submit,
    ToHarness,
    ToolAsked,
    ToolRan,
    ToolResult,
    ToolRuled,
    Ungoverned,
)

DEADLINE_S: Final = 60
SCRIPT: Final = f"""#!{sys.executable} -S
import json, subprocess, sys, time
from pathlib import Path
here = Path(__file__).parent
runs = json.loads((here / "runs.json").read_text())
number = len(list(here.glob("prompt-*")))
(here / f"prompt-{{number}}").write_text(sys.stdin.read())
(here / f"words-{{number}}").write_text(json.dumps(sys.argv[1:]))
for kind, value in runs[number]:
    if kind == "print":
        print(json.dumps(value), flush=True)
    elif kind == "hook":
        program = "import sys; sys.path.insert(0, {str(Path(hook.__file__).parent)!r}); import hook; "
        program += f"sys.exit(hook.main({{str(here / 'hooks.sock')!r}}))"
        asked = subprocess.run([sys.executable, "-c", program], input=json.dumps(value).encode(), capture_output=True)
        said = [asked.returncode, asked.stdout.decode(), asked.stderr.decode()]
        with (here / "answers").open("a") as answers:
            answers.write(json.dumps(said) + "\\n")
    elif kind == "leave":
        subprocess.Popen(["sleep", "600"])
    elif kind == "hang":
        time.sleep(600)
    else:
        sys.exit(value)
"""
RESULT: Final = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "s1"}
SCHEMA: Final = '{"type":"object"}'


def call(identifier: str = "t1") -> dict[str, object]:
    """A line in which the agent calls its shell."""
    block = {"type": "tool_use", "id": identifier, "name": "Bash", "input": {"command": "ls"}}
    return {"type": "assistant", "session_id": "s1", "message": {"content": [block]}}


def returned(identifier: str = "t1", content: str = "a file", *, is_error: bool = False) -> dict[str, object]:
    """A line in which the agent is given the output."""
    block = {"type": "tool_result", "tool_use_id": identifier, "content": content, "is_error": is_error}
    return {"type": "user", "session_id": "s1", "message": {"content": [block]}}


def before(identifier: str = "t1") -> dict[str, object]:
    """What the hook before a tool is told."""
    names = {"hook_event_name": "PreToolUse", "session_id": "s1", "tool_use_id": identifier, "tool_name": "Bash"}
    return {**names, "tool_input": {"command": "ls"}}


def after(identifier: str = "t1", response: object = "a file") -> dict[str, object]:
    """What the hook after a tool is told."""
    return {**before(identifier), "hook_event_name": "PostToolUse", "tool_response": response}


class Scripted(ClaudeCode):
    """Claude Code's words around a program of ours."""

    program: ClassVar[str] = "client"


Answer = Callable[[FromHarness], ToHarness | None]


def usual(frame: FromHarness) -> ToHarness | None:
    """A worker that allows everything as it is."""
    match frame:
        case ToolAsked():
            return ToolRuled(frame.call_id, allowed=True, arguments=frame.arguments)
        case ToolRan():
            return ToolResult(frame.call_id, frame.status, frame.content)
        case Submit():
            return SubmissionResult(1, accepted=True, closed=False, attempts_left=3)
        case Report():
            return Done()
        case _:
            return None


@dataclass
class AnsweringChannel:
    """Frames out, each answered at once, and the answers in."""

    answer: Answer = usual
    frames: list[FromHarness] = field(default_factory=list[FromHarness])
    inbox: asyncio.Queue[ToHarness] = field(default_factory=asyncio.Queue[ToHarness])

    async def send(self, frame: FromHarness) -> None:
        self.frames.append(frame)
        answer = self.answer(frame)
        if answer is not None:
            self.inbox.put_nowait(answer)

    async def receive(self) -> ToHarness:
        async with asyncio.timeout(DEADLINE_S):
            return await self.inbox.get()

    def of(self, kind: type) -> list[FromHarness]:
        """The frames of one kind."""
        return [frame for frame in self.frames if isinstance(frame, kind)]


def play(
    folder: Path, *runs: list[tuple[str, object]], answer: Answer = usual, output_schema: str | None = None
) -> AnsweringChannel:
    """One turn of the scripted client."""
    program = folder / "client"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    (folder / "runs.json").write_text(json.dumps(runs))
    place = Place(str(folder), str(folder / "home"), str(folder / "hooks.sock"), model_port=0)

    async def main() -> AnsweringChannel:
        channel = AnsweringChannel(answer)
        channel.inbox.put_nowait(start_frame(folder / "gateway.sock", output_schema=output_schema))
        assert await serve(channel, Scripted(), place) == 0
        return channel

    return asyncio.run(main())


def answers(folder: Path) -> list[list[object]]:
    """How each hook's process ended."""
    return [json.loads(line) for line in (folder / "answers").read_text().splitlines()]


def test_a_turn_of_text_is_ready_started_and_reported(tmp_path: Path) -> None:
    channel = play(tmp_path, [("print", RESULT)])
    assert [type(frame) for frame in channel.frames] == [Ready, Started, Report]
    report = channel.frames[-1]
    assert isinstance(report, Report)
    assert (report.status, report.stop_reason, report.text, report.usage) == ("completed", "end_turn", "done", {})
    assert (tmp_path / "prompt-0").read_text() == "hello"
    assert (tmp_path / "home" / ".claude" / "CLAUDE.md").read_text() == "Be brief."


def test_a_hooks_questions_are_the_workers_and_an_allowed_call_is_left_alone(tmp_path: Path) -> None:
    steps: list[tuple[str, object]] = [("print", call()), ("hook", before()), ("hook", after()), ("print", returned())]
    channel = play(tmp_path, [*steps, ("print", RESULT)])
    assert channel.of(ToolAsked) == [ToolAsked("t1", "Bash", '{"command": "ls"}')]
    assert channel.of(ToolRan) == [ToolRan("t1", "ok", "a file")]
    assert answers(tmp_path) == [[0, "", ""], [0, "", ""]]


def test_a_denial_reaches_the_client_with_its_reason(tmp_path: Path) -> None:
    def deny(frame: FromHarness) -> ToHarness | None:
        return ToolRuled(frame.call_id, allowed=False, reason="no") if isinstance(frame, ToolAsked) else usual(frame)

    play(tmp_path, [("hook", before()), ("print", RESULT)], answer=deny)
    ((code, said, _),) = answers(tmp_path)
    assert code == 0
    assert json.loads(str(said))["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_changed_arguments_and_outputs_take_the_place_of_the_clients(tmp_path: Path) -> None:
    def change(frame: FromHarness) -> ToHarness | None:
        if isinstance(frame, ToolAsked):
            return ToolRuled(frame.call_id, allowed=True, arguments='{"command":"pwd"}')
        return ToolResult(frame.call_id, "ok", "[REDACTED]") if isinstance(frame, ToolRan) else usual(frame)

    play(tmp_path, [("hook", before()), ("hook", after()), ("print", RESULT)], answer=change)
    (_, first, _), (_, second, _) = answers(tmp_path)
    assert json.loads(str(first))["hookSpecificOutput"]["updatedInput"] == {"command": "pwd"}
    assert json.loads(str(second))["hookSpecificOutput"]["updatedToolOutput"] == "[REDACTED]"


def test_a_report_that_cannot_be_read_is_a_block(tmp_path: Path) -> None:
    channel = play(tmp_path, [("hook", {"hook_event_name": "PreToolUse"}), ("hook", [1]), ("print", RESULT)])
    assert [code for code, _, _ in answers(tmp_path)] == [2, 2]
    assert channel.of(ToolAsked) == []


def test_a_call_that_no_hook_asked_about_ends_the_turn_as_ungoverned(tmp_path: Path) -> None:
    channel = play(tmp_path, [("print", call()), ("print", returned()), ("hang", None)])
    assert channel.frames[-1] == Ungoverned("Bash")
    assert channel.of(Report) == []


def test_a_call_that_the_client_itself_refused_to_make_needs_no_hook(tmp_path: Path) -> None:
    refused = returned(content="<tool_use_error>no such tool</tool_use_error>", is_error=True)
    channel = play(tmp_path, [("print", call()), ("print", refused), ("print", RESULT)])
    assert channel.of(Ungoverned) == []


def test_a_result_is_submitted_and_repaired_in_the_same_session(tmp_path: Path) -> None:
    tries = iter((False, True))

    def judge(frame: FromHarness) -> ToHarness | None:
        if not isinstance(frame, Submit):
            return usual(frame)
        accepted = next(tries)
        return SubmissionResult(
            1, accepted, closed=False, attempts_left=2, errors=[] if accepted else ["/n is missing"]
        )

    runs: list[list[tuple[str, object]]] = [[("print", {**RESULT, "structured_output": {"n": n}})] for n in (1, 2)]
    channel = play(tmp_path, *runs, answer=judge, output_schema=SCHEMA)
    assert channel.of(Submit) == [Submit('{"n": 1}'), Submit('{"n": 2}')]
    report = channel.frames[-1]
    assert isinstance(report, Report)
    assert (report.result, report.result_error) == ('{"n": 2}', None)
    assert "/n is missing" in (tmp_path / "prompt-1").read_text()
    assert json.loads((tmp_path / "words-1").read_text())[-2:] == ["--resume", "s1"]


def test_an_answer_without_a_result_is_asked_for_it_once(tmp_path: Path) -> None:
    channel = play(tmp_path, [("print", RESULT)], [("print", RESULT)], output_schema=SCHEMA)
    report = channel.frames[-1]
    assert isinstance(report, Report)
    assert (report.status, report.result_error) == ("completed", "not_submitted")
    assert (tmp_path / "prompt-1").exists()


def test_a_refused_answer_is_tried_again(tmp_path: Path) -> None:
    verdicts = iter((ResponseDenied(["not that word"], 1), Done()))
    channel = play(
        tmp_path,
        [("print", RESULT)],
        [("print", {**RESULT, "result": "better"})],
        answer=lambda frame: next(verdicts) if isinstance(frame, Report) else usual(frame),
    )
    assert [report.text for report in channel.of(Report) if isinstance(report, Report)] == ["done", "better"]
    assert "not that word" in (tmp_path / "prompt-1").read_text()


def test_a_client_that_fails_fails_the_turn(tmp_path: Path) -> None:
    channel = play(tmp_path, [("exit", 3)])
    report = channel.frames[-1]
    assert isinstance(report, Report)
    assert (report.status, report.stop_reason) == ("failed", "agent_error")
    assert report.error is not None
    assert report.error.startswith("the client ended with 3")


def test_a_client_that_ran_out_of_budget_has_answered(tmp_path: Path) -> None:
    spent = {**RESULT, "is_error": True, "result": 'API Error: 402 {"code":"budget_reached"}'}
    report = play(tmp_path, [("print", call()), ("print", spent)]).frames[-1]
    assert isinstance(report, Report)
    assert (report.status, report.stop_reason) == ("completed", "budget_reached")


def test_a_cancel_ends_the_client_and_is_acknowledged(tmp_path: Path) -> None:
    def cancel(frame: FromHarness) -> ToHarness | None:
        return Cancel(1_000) if isinstance(frame, ToolAsked) else usual(frame)

    channel = play(tmp_path, [("hook", before()), ("hang", None)], answer=cancel)
    assert isinstance(channel.frames[-1], Canceled)


def test_what_a_client_leaves_running_does_not_hold_up_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "DRAIN_TIMEOUT_S", 0.2)
    report = play(tmp_path, [("leave", None), ("print", RESULT)]).frames[-1]
    assert isinstance(report, Report)
    assert (report.status, report.text) == ("completed", "done")
