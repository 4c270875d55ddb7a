"""One turn of the built-in agent: converse, submit, report, and answer again when the Guardian refused.

Proposes everything and decides nothing: tools, submissions, usage and the ending are the worker's (contract 5.2, 5.3).
Reads no environment and opens no connection but the gateway's socket.
"""

import time
from dataclasses import asdict, replace
from typing import Final, Literal

from pydantic_ai.messages import ModelMessage
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from turnkeeper.harness.agents import MAX_ERROR_CHARACTERS, Stop, TurnAgent, stop_for, turn_agent
from turnkeeper.harness.channel import WorkerGone, WorkerLink
from turnkeeper.harness.compaction import BoundedContext
from turnkeeper.harness.history import messages_of, pending_call
from turnkeeper.harness.model import TurnModel
from turnkeeper.harness.speech import Speech
from turnkeeper.harness.subagents import SubagentRuns
from turnkeeper.harness.submit import ASK_ONCE, ResultForm, Submissions, words_for
from turnkeeper.harness.tools import worker_tool
from turnkeeper.harness.wires import socket_transport
from turnkeeper.sandbox.protocol import Done, HarnessProtocolError, Report, ResponseDenied, Start, render_frame

_NATIVE_REQUEST: Final = "Now write the result of your work as JSON in the given form."
_SCHEMA_NAME: Final = "result"


class TurnRun:
    """The state of one turn. `run` returns when the worker has taken the report."""

    def __init__(self, start: Start, link: WorkerLink) -> None:
        self._start = start
        self._link = link
        self._started_ns = time.monotonic_ns()
        self._model = TurnModel(
            start.model,
            socket_transport(start.gateway_socket),
            max_calls=start.max_model_calls,
            wire=start.wire,
            calling=start.tool_calling,
            constrained=start.output_mode == "native",
            speech=Speech(link, wanted=start.stream),
            context=BoundedContext(link, window_tokens=start.context_tokens, task=start.input),
        )
        link.run_subagent = SubagentRuns(self._model, link, lambda: self._settings(None)).run
        self._messages: list[ModelMessage] = []
        self._agent: TurnAgent | None = None
        self._submissions: Submissions | None = None
        self._asked = False

    @property
    def said(self) -> str:
        """What the model said last."""
        return self._model.said

    async def run(self) -> None:
        """Converses, reports, and converses again for as long as the Guardian refuses the answer."""
        # A turn that goes on has its input in its history, and ends there with a call that has no answer yet.
        prompt = self._start.input if self._start.pending is None else None
        try:
            while True:
                verdict = await self._report(await self._converse(prompt))
                if isinstance(verdict, Done) or verdict.attempts_left <= 0:
                    return
                prompt = _refusal(verdict)
        finally:
            await self._model.close()

    async def _converse(self, prompt: str | None) -> Stop:
        try:
            if self._agent is None:
                self._agent = self._build()
            await self._answer(self._agent, prompt)
        except (WorkerGone, HarnessProtocolError):
            raise
        except Exception as error:  # noqa: BLE001 - the turn: whatever the loop raises is reported
            return stop_for(error)
        return Stop("end_turn")

    def _build(self) -> TurnAgent:
        start = self._start
        self._messages = messages_of(start.history)
        if start.pending is not None:
            self._messages.append(pending_call(start.pending))
        tools = [worker_tool(spec, self._link, self._model.usage) for spec in start.tools]
        if start.output_schema is not None:
            form = ResultForm.of(start.output_schema)
            self._submissions = Submissions(form, self._link, start.submissions, start.accepted)
            if start.output_mode == "tool":
                tools.append(self._submissions.tool())
        return turn_agent(self._model, start.instructions, tools)

    async def _answer(self, agent: TurnAgent, prompt: str | None) -> None:
        submissions = self._submissions
        if submissions is not None and self._start.output_mode == "native" and not submissions.closed:
            await self._write_result(agent, prompt, submissions)
            return
        await self._ask(agent, prompt)
        if submissions is not None and submissions.count == 0 and not self._asked:
            self._asked = True
            await self._ask(agent, ASK_ONCE)

    async def _write_result(self, agent: TurnAgent, prompt: str | None, submissions: Submissions) -> None:
        if self._start.tools:
            await self._ask(agent, prompt)
            prompt = _NATIVE_REQUEST
        # The result is written without tools on offer: what has a form must not be a call.
        writer = turn_agent(self._model, self._start.instructions, [])
        while True:
            written = await self._ask(writer, prompt, form=submissions.form)
            result = await submissions.submit(written)
            if result.accepted or result.closed or result.attempts_left <= 0:
                return
            prompt = words_for(result)

    async def _ask(self, agent: TurnAgent, prompt: str | None, *, form: ResultForm | None = None) -> str:
        result = await agent.run(
            prompt,
            message_history=self._messages,
            model_settings=self._settings(form),
            usage_limits=UsageLimits(request_limit=None),
        )
        self._messages = result.all_messages()
        return result.output or ""

    def _settings(self, form: ResultForm | None) -> ModelSettings:
        if self._start.wire != "chat_completions":
            # The gateway puts the agent's parameters into each protocol's own words.
            return ModelSettings()
        body: dict[str, object] = dict(self._start.params)
        if form is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": _SCHEMA_NAME, "schema": form.parameters},
            }
        return ModelSettings(extra_body=body)

    async def _report(self, stop: Stop) -> Done | ResponseDenied:
        report = self._rendered(stop)
        try:
            render_frame(report)
        except HarnessProtocolError as error:
            # An accepted value has crossed in a frame of its own; the text that did not fit is what is lost.
            report = replace(self._rendered(Stop("agent_error", error.message[:MAX_ERROR_CHARACTERS])), text="")
        return await self._link.report(report)

    def _rendered(self, stop: Stop) -> Report:
        return Report(
            status="completed" if stop.error is None else "failed",
            stop_reason=stop.reason,
            text=self.said,
            result=self._submissions.accepted if self._submissions is not None else None,
            result_error=self._result_error(),
            usage=dict(asdict(self._model.usage)),
            duration_ms=(time.monotonic_ns() - self._started_ns) // 1_000_000,
            error=stop.error,
        )

    def _result_error(self) -> Literal["not_submitted", "invalid"] | None:
        if self._submissions is None:
            # Without a form there was no schema, or the turn broke before it was read.
            return None if self._start.output_schema is None else "not_submitted"
        if self._submissions.accepted is not None:
            return None
        return "invalid" if self._submissions.count else "not_submitted"


def _refusal(denied: ResponseDenied) -> str:
    reasons = "\n".join(f"- {reason}" for reason in denied.reasons) or "- no reason was given"
    return f"Your answer was refused:\n{reasons}\nAnswer again in a way that respects this."
