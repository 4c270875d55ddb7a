"""The built-in harness under the runner protocol: a real loop, a real gateway, a scripted model, a test's worker."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.gateway_rig import LIMITS, gateway_rig
from tests.contract.harness_rig import (
    ACCEPTED,
    CLOSED,
    DEADLINE_S,
    SHELL,
    Inside,
    Worker,
    converse,
    play,
    refused,
    start_frame,
)

from turnkeeper.harness.submit import ASK_ONCE
from turnkeeper.sandbox.protocol import (
    Cancel,
    Canceled,
    Done,
    HistoryItem,
    Ready,
    ResponseDenied,
    Started,
    ToHarness,
    ToolRequest,
    ToolResult,
    ToolSpec,
)
from turnkeeper.testing.memory_meter import MemoryMeter
from turnkeeper.testing.scripted_model import ScriptedAnswer, ScriptedCall, ScriptedUsage

DONE = ScriptedAnswer(text="done")
OBJECT_SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
LONG_MS = 60_000


def calls(*called: ScriptedCall, text: str | None = None) -> ScriptedAnswer:
    return ScriptedAnswer(text=text, tool_calls=called)


def shell(arguments: str = '{"command":"ls"}') -> ScriptedCall:
    return ScriptedCall("shell", arguments)


def submit(arguments: str) -> ScriptedAnswer:
    return calls(ScriptedCall("submit_result", arguments))


def test_a_turn_of_text_is_ready_started_and_reported(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, [ScriptedAnswer(text="hi there", usage=ScriptedUsage(11, 3))])

    assert [type(frame) for frame in worker.frames[:2]] == [Ready, Started]
    report = worker.report
    assert (report.status, report.stop_reason, report.text, report.error) == ("completed", "end_turn", "hi there", None)
    assert (report.result, report.result_error) == (None, None)
    assert (report.usage["input_tokens"], report.usage["output_tokens"], report.usage["model_calls"]) == (11, 3, 1)
    assert rig.model.requests[0].messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
    ]
    assert worker.exit_status == 0


def test_tool_arguments_reach_the_worker_as_the_model_wrote_them(tmp_path: Path) -> None:
    written = '{"command":  "ls",\n "n": 1.0, "u": "\\u00e9"}'

    worker, _ = play(tmp_path, [calls(shell(written)), DONE], tools=[SHELL])

    assert [(request.name, request.arguments) for request in worker.requests] == [("shell", written)]


def test_the_agent_gets_exactly_what_the_worker_answers(tmp_path: Path) -> None:
    worker = Worker(tool=lambda request: ToolResult(request.call_id, "denied", "Denied: no shell on Sundays."))

    _, rig = play(tmp_path, [calls(shell()), DONE], worker, tools=[SHELL])

    assert rig.model.requests[1].messages[-1]["content"] == "Denied: no shell on Sundays."
    assert worker.report.usage["tool_calls"] == 0


def test_an_empty_result_that_is_not_a_success_is_named(tmp_path: Path) -> None:
    worker = Worker(tool=lambda request: ToolResult(request.call_id, "timeout", ""))

    _, rig = play(tmp_path, [calls(shell()), DONE], worker, tools=[SHELL])

    assert rig.model.requests[1].messages[-1]["content"] == "(timeout)"


def test_tool_schemas_reach_the_model_unchanged_whatever_it_is_called(tmp_path: Path) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "title": "T",
        "properties": {"a": {"type": "string", "pattern": "^x"}},
        "required": ["a"],
        "additionalProperties": False,
    }

    _, rig = play(tmp_path, [DONE], tools=[ToolSpec("t", "d", schema)])

    function = {"name": "t", "description": "d", "parameters": schema}
    assert rig.model.requests[0].body["tools"] == [{"type": "function", "function": function}]


def test_calls_of_one_answer_are_asked_one_after_the_other(tmp_path: Path) -> None:
    async def main() -> None:
        script = [calls(shell('{"command":"1"}'), shell('{"command":"2"}')), DONE]
        async with gateway_rig(tmp_path, script) as rig:
            inside = await Inside.open()
            await inside.side.send(start_frame(rig.handle.path, tools=[SHELL]))
            frames = [await inside.side.receive() for _ in range(3)]
            request = frames[-1]
            assert isinstance(request, ToolRequest)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(inside.side.reader.read(1))), 0.1)
            inside.serving.cancel()
            await asyncio.gather(inside.serving, return_exceptions=True)
            inside.side.writer.close()
            inside.back.close()

    asyncio.run(main())


def test_calls_of_one_answer_keep_their_order_and_have_ids_of_their_own(tmp_path: Path) -> None:
    same = ScriptedCall("shell", '{"command":"1"}', id="x")
    script = [calls(same, replace(same, arguments='{"command":"2"}', id="y")), calls(same), DONE]

    worker, _ = play(tmp_path, script, tools=[SHELL])

    assert [request.arguments for request in worker.requests] == [f'{{"command":"{n}"}}' for n in (1, 2, 1)]
    assert len({request.call_id for request in worker.requests}) == 3


@pytest.mark.parametrize("arguments", ["{bad", "[1]", '"x"', "null", "1", "[" * 50_000, '{"a": 1} trailing'])
def test_arguments_that_are_no_object_are_told_to_the_model_not_to_the_worker(tmp_path: Path, arguments: str) -> None:
    limits = replace(LIMITS, max_request_bytes=10**6, upstream=replace(LIMITS.upstream, max_response_bytes=10**6))

    worker, rig = play(tmp_path, [calls(shell(arguments)), DONE], tools=[SHELL], limits=limits)

    assert worker.requests == []
    assert "not a JSON object" in str(rig.model.requests[1].messages[-1]["content"])
    assert worker.report.text == "done"


def test_no_arguments_are_an_empty_object(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, [calls(shell("")), DONE], tools=[SHELL])

    assert worker.requests[0].arguments == "{}"


def test_a_tool_that_does_not_exist_does_not_end_the_turn(tmp_path: Path) -> None:
    script = [calls(ScriptedCall("nope"))] * 5 + [DONE]

    worker, rig = play(tmp_path, script, tools=[SHELL])

    assert worker.requests == []
    assert "nope" in str(rig.model.requests[1].messages[-1]["content"])
    assert (worker.report.status, worker.report.text) == ("completed", "done")


def test_earlier_turns_are_the_models_history(tmp_path: Path) -> None:
    history = [
        HistoryItem("user", "first"),
        HistoryItem("tool", "a.txt", call_id="c1", name="shell", arguments='{"command":"ls"}'),
        HistoryItem("agent", "There is a.txt."),
    ]

    _, rig = play(tmp_path, [DONE], history=history, tools=[SHELL])

    messages = rig.model.requests[0].messages
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert (messages[3]["tool_call_id"], messages[3]["content"]) == ("c1", "a.txt")
    assert messages[-1]["content"] == "hello"


def test_a_result_is_submitted_as_the_model_wrote_it(tmp_path: Path) -> None:
    written = '{"n":  1, "u": "\\u00e9"}'

    worker, rig = play(tmp_path, [submit(written), DONE], output_schema=OBJECT_SCHEMA)

    assert worker.submitted == [written]
    assert (worker.report.result, worker.report.result_error, worker.report.text) == (written, None, "done")
    assert rig.model.requests[0].tool_names == ["submit_result"]


def test_a_result_that_is_no_object_travels_wrapped_and_arrives_unwrapped(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, [submit('{"value": [1.0,  2]}'), DONE], output_schema='{"type": "array"}')

    assert (worker.submitted, worker.report.result) == (["[1.0,  2]"], "[1.0,  2]")
    assert "value" in json.dumps(rig.model.requests[0].body["tools"])


def test_a_refused_value_comes_back_to_the_agent_with_its_problems(tmp_path: Path) -> None:
    worker = Worker(submissions=[refused("/n: not an integer"), ACCEPTED])

    _, rig = play(tmp_path, [submit('{"n":"x"}'), submit('{"n":1}'), DONE], worker, output_schema=OBJECT_SCHEMA)

    assert "/n: not an integer" in str(rig.model.requests[1].messages[-1]["content"])
    assert (worker.report.result, worker.report.result_error) == ('{"n":1}', None)


def test_a_value_that_is_not_json_is_the_workers_to_judge(tmp_path: Path) -> None:
    worker = Worker(submissions=[refused("not JSON"), ACCEPTED])

    play(tmp_path, [submit('{"n":'), submit('{"n":1}'), DONE], worker, output_schema=OBJECT_SCHEMA)

    assert worker.submitted == ['{"n":', '{"n":1}']


def test_after_closed_the_agent_ends_in_text(tmp_path: Path) -> None:
    worker = Worker(submissions=[refused("wrong"), CLOSED])
    script = [submit('{"n":"x"}')] * 3 + [DONE]

    _, rig = play(tmp_path, script, worker, output_schema=OBJECT_SCHEMA)

    assert len(worker.submitted) == 2
    assert str(rig.model.requests[3].messages[-1]["content"]).startswith("closed")
    assert (worker.report.result, worker.report.result_error, worker.report.text) == (None, "invalid", "done")


def test_a_later_valid_value_replaces_an_earlier_one_and_an_invalid_one_does_not(tmp_path: Path) -> None:
    worker = Worker(submissions=[ACCEPTED, ACCEPTED, refused("wrong")])
    script = [submit('{"n":1}'), submit('{"n":2}'), submit('{"n":"x"}'), DONE]

    play(tmp_path, script, worker, output_schema=OBJECT_SCHEMA)

    assert (worker.report.result, worker.report.result_error) == ('{"n":2}', None)


def test_an_agent_that_stops_without_submitting_is_asked_once(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, [ScriptedAnswer(text="no")] * 5, output_schema=OBJECT_SCHEMA)

    assert len(rig.model.requests) == 2
    assert rig.model.requests[1].messages[-1] == {"role": "user", "content": ASK_ONCE}
    assert (worker.report.result_error, worker.report.stop_reason) == ("not_submitted", "end_turn")


def test_an_agent_is_not_asked_again_after_its_answer_was_refused(tmp_path: Path) -> None:
    worker = Worker(verdicts=[ResponseDenied(["no"], attempts_left=1), Done()])

    _, rig = play(tmp_path, [ScriptedAnswer(text="no")] * 5, worker, output_schema=OBJECT_SCHEMA)

    asked = [request.messages[-1]["content"] == ASK_ONCE for request in rig.model.requests]
    assert asked == [False, True, False]


def test_an_agent_that_submits_when_asked_is_done(tmp_path: Path) -> None:
    script = [ScriptedAnswer(text="no"), submit('{"n":1}'), DONE]

    worker, _ = play(tmp_path, script, output_schema=OBJECT_SCHEMA)

    assert (worker.report.result, worker.report.text) == ('{"n":1}', "done")


def test_an_agent_whose_value_was_refused_is_not_asked_again(tmp_path: Path) -> None:
    worker, rig = play(
        tmp_path, [submit('{"n":"x"}'), DONE], Worker(submissions=[refused("wrong")]), output_schema=OBJECT_SCHEMA
    )

    assert len(rig.model.requests) == 2
    assert worker.report.result_error == "invalid"


def test_a_native_result_is_asked_for_by_its_form_and_without_tools(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, [ScriptedAnswer(text='{"n": 7}')], output_schema=OBJECT_SCHEMA, output_mode="native")

    sent = rig.model.requests[0].body
    form = {"name": "result", "schema": json.loads(OBJECT_SCHEMA)}
    assert sent["response_format"] == {"type": "json_schema", "json_schema": form}
    assert not {"tools", "tool_choice"} & sent.keys()
    assert (worker.submitted, worker.report.result) == (['{"n": 7}'], '{"n": 7}')


def test_a_native_result_is_repaired_as_long_as_the_worker_takes_more(tmp_path: Path) -> None:
    worker = Worker(submissions=[refused("/n: missing"), refused("/n: missing", left=0)])
    script = [ScriptedAnswer(text="{}"), ScriptedAnswer(text="nonsense"), DONE]

    _, rig = play(tmp_path, script, worker, output_schema=OBJECT_SCHEMA, output_mode="native")

    assert worker.submitted == ["{}", "nonsense"]
    assert "/n: missing" in str(rig.model.requests[1].messages[-1]["content"])
    assert worker.report.result_error == "invalid"


def test_a_native_result_comes_after_the_work_with_tools(tmp_path: Path) -> None:
    script = [calls(shell()), DONE, ScriptedAnswer(text='{"value": 5}')]

    worker, rig = play(tmp_path, script, tools=[SHELL], output_schema='{"type": "integer"}', output_mode="native")

    assert ["tools" in request.body for request in rig.model.requests] == [True, True, False]
    assert (worker.requests[0].name, worker.report.result) == ("shell", "5")


def test_a_refused_answer_is_told_and_given_again(tmp_path: Path) -> None:
    worker = Worker(verdicts=[ResponseDenied(["names a customer"], attempts_left=1), Done()])

    _, rig = play(tmp_path, [ScriptedAnswer(text="Mr. X"), ScriptedAnswer(text="a customer")], worker)

    assert "names a customer" in str(rig.model.requests[1].messages[-1]["content"])
    assert [report.text for report in worker.reports] == ["Mr. X", "a customer"]


def test_a_refusal_without_attempts_left_is_the_end(tmp_path: Path) -> None:
    worker = Worker(verdicts=[ResponseDenied(["no"], attempts_left=0)])

    _, rig = play(tmp_path, [DONE] * 3, worker)

    assert (len(rig.model.requests), worker.exit_status) == (1, 0)


def test_a_native_answer_that_was_refused_is_written_again(tmp_path: Path) -> None:
    worker = Worker(verdicts=[ResponseDenied(["no"], attempts_left=1), Done()])
    script = [ScriptedAnswer(text='{"n": 1}'), ScriptedAnswer(text='{"n": 2}')]

    play(tmp_path, script, worker, output_schema=OBJECT_SCHEMA, output_mode="native")

    assert worker.report.result == '{"n": 2}'


def test_a_spent_budget_ends_the_turn_with_what_was_said(tmp_path: Path) -> None:
    usage = ScriptedUsage(500, 100)
    script = [replace(calls(shell(), text="Looking."), usage=usage), DONE]

    worker, rig = play(tmp_path, script, tools=[SHELL], meter=MemoryMeter(limit_total_tokens=900))

    report = worker.report
    assert (report.status, report.stop_reason, report.text) == ("completed", "budget_reached", "Looking.")
    assert rig.handle.budget_reached


def test_a_result_accepted_before_the_budget_ended_is_kept(tmp_path: Path) -> None:
    script = [replace(submit('{"n":1}'), usage=ScriptedUsage(500, 100)), DONE]

    worker, _ = play(tmp_path, script, output_schema=OBJECT_SCHEMA, meter=MemoryMeter(limit_total_tokens=900))

    assert (worker.report.stop_reason, worker.report.result) == ("budget_reached", '{"n":1}')


def test_the_bound_on_model_calls_stops_the_turn(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, [calls(shell())] * 9, tools=[SHELL], max_model_calls=3)

    assert len(rig.model.requests) == 3
    assert (worker.report.status, worker.report.stop_reason) == ("completed", "budget_reached")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ScriptedAnswer(status=401), "provider_denied"),
        (ScriptedAnswer(raw=b'{"choices": []}'), "provider_bad_answer"),
        (ScriptedAnswer(raw=b"<html>"), "provider_bad_answer"),
        (ScriptedAnswer(raw=b'{"choices": [{"message": {"tool_calls": 5}}]}'), "bad_answer"),
        (ScriptedAnswer(raw=b'{"choices": [{"message": {"content": {"a": 1}}}]}'), "bad_answer"),
    ],
)
def test_a_model_that_fails_fails_the_turn_and_says_why(tmp_path: Path, answer: ScriptedAnswer, code: str) -> None:
    worker, _ = play(tmp_path, [answer])

    report = worker.report
    assert (report.status, report.stop_reason) == ("failed", "model_error")
    assert str(report.error).startswith(code)


def test_a_loop_that_fails_fails_the_turn_and_says_why(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, [DONE], output_schema="{not json")

    assert (worker.report.status, worker.report.stop_reason) == ("failed", "agent_error")
    assert "JSONDecodeError" in str(worker.report.error)
    assert worker.report.result_error == "not_submitted"


def test_a_tool_that_takes_the_name_of_submit_result_is_an_error(tmp_path: Path) -> None:
    worker, rig = play(tmp_path, [DONE], output_schema=OBJECT_SCHEMA, tools=[ToolSpec("submit_result", "", {})])

    assert (worker.report.stop_reason, rig.model.requests) == ("agent_error", [])


def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, [ScriptedAnswer(text="")])

    assert (worker.report.status, worker.report.text) == ("completed", "")


@pytest.mark.parametrize("cut", [ScriptedAnswer(text=None), ScriptedAnswer(text="Half a"), calls(shell('{"comm'))])
def test_an_answer_cut_at_its_cap_is_no_failure(tmp_path: Path, cut: ScriptedAnswer) -> None:
    worker, _ = play(tmp_path, [replace(cut, finish_reason="length"), DONE], tools=[SHELL])

    assert worker.report.status == "completed"


def test_a_text_over_the_frame_limit_fails_the_turn_in_a_report(tmp_path: Path) -> None:
    limits = replace(LIMITS, upstream=replace(LIMITS.upstream, max_response_bytes=8 * 10**6))

    worker, _ = play(tmp_path, [ScriptedAnswer(text="x" * 3 * 10**6)], limits=limits)

    assert (worker.report.status, worker.report.stop_reason, worker.report.text) == ("failed", "agent_error", "")


def test_a_cancel_during_a_model_call_is_acknowledged_with_what_was_said(tmp_path: Path) -> None:
    async def main() -> None:
        script = [calls(shell(), text="Looking."), ScriptedAnswer(text="late", delay_ms=LONG_MS)]
        worker = Worker()
        async with gateway_rig(tmp_path, script) as rig:
            inside = await Inside.open()
            await inside.side.send(start_frame(rig.handle.path, tools=[SHELL]))
            conversing = asyncio.ensure_future(converse(inside.side, worker))
            await rig.model.wait_until(lambda: len(rig.model.requests) == 2)
            await inside.side.send(Cancel(grace_ms=5_000))
            await asyncio.wait_for(conversing, DEADLINE_S)
            assert worker.frames[-1] == Canceled("Looking.")
            await rig.meter.wait_until(lambda: len(rig.meter.settlements) == 2)
            assert await inside.close() == 0

    asyncio.run(main())


def test_a_cancel_during_a_tool_call_is_acknowledged(tmp_path: Path) -> None:
    def cancel(_: ToolRequest) -> ToHarness:
        return Cancel(grace_ms=5_000)

    worker, rig = play(tmp_path, [calls(shell()), DONE], Worker(tool=cancel), tools=[SHELL])

    assert worker.canceled == Canceled("")
    assert (len(rig.model.requests), worker.exit_status) == (1, 0)


def test_a_cancel_before_the_start_is_acknowledged() -> None:
    async def main() -> Worker:
        inside, worker = await Inside.open(), Worker()
        await inside.side.send(Cancel(grace_ms=1))
        await converse(inside.side, worker)
        worker.exit_status = await inside.close()
        return worker

    assert [type(frame) for frame in asyncio.run(main()).frames] == [Ready, Canceled]


def test_a_worker_that_is_gone_ends_the_harness(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_rig(tmp_path, [ScriptedAnswer(delay_ms=LONG_MS)]) as rig:
            inside = await Inside.open()
            await inside.side.send(start_frame(rig.handle.path))
            await rig.model.wait_until(lambda: len(rig.model.requests) == 1)
            assert await inside.close() == 0
            await rig.model.wait_until(lambda: rig.model.abandoned == 1)

    asyncio.run(main())


@pytest.mark.parametrize("answer", [ToolResult("other", "ok", ""), Done(), ACCEPTED])
def test_a_worker_that_answers_something_else_ends_the_harness(tmp_path: Path, answer: ToHarness) -> None:
    worker, _ = play(tmp_path, [calls(shell()), DONE], Worker(tool=lambda _: answer), tools=[SHELL])

    assert (worker.exit_status, worker.reports) == (1, [])


def test_a_frame_that_is_none_ends_the_harness(tmp_path: Path) -> None:
    async def main() -> int:
        async with gateway_rig(tmp_path, [ScriptedAnswer(delay_ms=LONG_MS)]) as rig:
            inside = await Inside.open()
            await inside.side.send(start_frame(rig.handle.path))
            inside.side.writer.write(b"not a frame\n")
            await converse(inside.side, Worker())
            return await inside.close()

    assert asyncio.run(main()) == 1


def test_what_the_agent_says_beside_a_call_is_kept_when_it_ends_silent(tmp_path: Path) -> None:
    worker, _ = play(tmp_path, [calls(shell(), text="Looking."), ScriptedAnswer(text="")], tools=[SHELL])

    assert worker.report.text == "Looking."
