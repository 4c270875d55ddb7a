"""The built-in harness in each protocol: a real loop, a real gateway, a scripted model behind it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import ModelRequestParameters
from tests.contract.gateway_rig import Rig, anthropic_stub, gateway_rig, stub_provider
from tests.contract.harness_rig import SHELL, Worker, play

from turnkeeper.harness.model import BudgetReached, ModelFailed, SpokenKind, TurnModel
from turnkeeper.harness.wires import socket_transport
from turnkeeper.sandbox.protocol import ModelWire
from turnkeeper.sandbox.providers import Provider
from turnkeeper.testing.memory_meter import MemoryMeter
from turnkeeper.testing.scripted_model import Script, ScriptedAnswer, ScriptedCall, ScriptedUsage

PROVIDERS: dict[ModelWire, Callable[[str], Provider]] = {
    "chat_completions": stub_provider,
    "responses": stub_provider,
    "messages": anthropic_stub,
}
WIRES = pytest.mark.parametrize("wire", PROVIDERS)
CALL = ScriptedAnswer(tool_calls=(ScriptedCall("shell", '{"command": "ls"}'),), usage=ScriptedUsage(40, 9, 20))
DONE = ScriptedAnswer(text="all is done", usage=ScriptedUsage(60, 5, 30))
PROMPT: list[ModelMessage] = [ModelRequest.user_text_prompt("hi")]


@dataclass(slots=True)
class Heard:
    """What a model was heard to say."""

    wanted: bool = True
    pieces: list[tuple[SpokenKind, str]] = field(default_factory=list[tuple[SpokenKind, str]])
    answers: int = 0

    def begin(self) -> None:
        self.answers += 1

    async def say(self, kind: SpokenKind, text: str) -> None:
        if text:
            self.pieces.append((kind, text))

    async def end(self) -> None:
        return


def turn(folder: Path, wire: ModelWire, script: Script, **members: object) -> tuple[Worker, Rig]:
    return play(folder, script, tools=[SHELL], wire=wire, provider_for=PROVIDERS[wire], **members)  # pyright: ignore[reportArgumentType] - the members are the test's


def asked(folder: Path, wire: ModelWire, script: Script, heard: Heard, meter: MemoryMeter | None = None) -> str:
    async def main() -> str:
        async with gateway_rig(folder, script, provider_for=PROVIDERS[wire], meter=meter) as rig:
            model = TurnModel("m1", socket_transport(str(rig.handle.path)), max_calls=9, wire=wire, speech=heard)
            try:
                await model.request(PROMPT, None, ModelRequestParameters())
            finally:
                await model.close()
            assert rig.model.requests[0].streams
        return model.said

    return asyncio.run(main())


@WIRES
def test_a_turn_with_a_tool_step_goes_through_in_every_protocol(tmp_path: Path, wire: ModelWire) -> None:
    worker, rig = turn(tmp_path, wire, [CALL, DONE], params={"temperature": 0.5, "max_tokens": 300})

    assert [(asked.name, asked.arguments.replace(" ", "")) for asked in worker.requests] == [
        ("shell", '{"command":"ls"}')
    ]
    assert (worker.report.stop_reason, worker.report.text) == ("end_turn", "all is done")
    assert [seen.wire for seen in rig.model.requests] == [wire, wire]
    assert (rig.model.requests[1].tool_results, rig.model.requests[1].tool_names) == (1, ["shell"])


@WIRES
def test_the_harness_and_the_ledger_count_alike(tmp_path: Path, wire: ModelWire) -> None:
    worker, rig = turn(tmp_path, wire, [CALL, DONE])

    ledger = [settled.usage for settled in rig.meter.settlements]
    reported = worker.report.usage
    assert reported["input_tokens"] == sum(usage.input_tokens for usage in ledger) == 100
    assert reported["output_tokens"] == sum(usage.output_tokens for usage in ledger) == 14
    assert reported["cached_input_tokens"] == sum(usage.cached_input_tokens for usage in ledger) == 50


@WIRES
def test_a_spent_budget_ends_the_turn_in_every_protocol(tmp_path: Path, wire: ModelWire) -> None:
    worker, rig = turn(tmp_path, wire, [CALL, DONE], meter=MemoryMeter(limit_total_tokens=10))

    assert (worker.report.status, worker.report.stop_reason) == ("completed", "budget_reached")
    assert rig.model.requests == []


@WIRES
def test_a_model_that_fails_is_named_by_the_gateways_code(tmp_path: Path, wire: ModelWire) -> None:
    worker, _ = turn(tmp_path, wire, [ScriptedAnswer(status=401)])

    assert worker.report.stop_reason == "model_error"
    assert str(worker.report.error).startswith("provider_denied: ")


@WIRES
def test_what_the_model_writes_is_heard_word_by_word(tmp_path: Path, wire: ModelWire) -> None:
    heard = Heard()

    said = asked(tmp_path, wire, [replace(DONE, reasoning="let me see")], heard)

    words = [text for kind, text in heard.pieces if kind == "message"]
    assert (said, "".join(words), heard.answers) == ("all is done", "all is done", 1)
    assert len(words) == 3
    assert "reasoning" in {kind for kind, _ in heard.pieces}


@WIRES
def test_a_stream_that_fails_in_the_middle_fails_the_model(tmp_path: Path, wire: ModelWire) -> None:
    broken = replace(DONE, cut_after_events=4)

    with pytest.raises(ModelFailed):
        asked(tmp_path, wire, [broken], Heard())


@WIRES
def test_a_spent_budget_is_told_apart_when_a_stream_was_asked_for(tmp_path: Path, wire: ModelWire) -> None:
    with pytest.raises(BudgetReached):
        asked(tmp_path, wire, [], Heard(), MemoryMeter(limit_total_tokens=10))
