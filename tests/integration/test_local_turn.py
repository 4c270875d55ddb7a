"""A turn of the real small model, end to end: a governed tool call in the tool box and a result of the asked form.

Nothing is scripted but the request. Temperature 0, and a grammar that leaves the model the choice of a tool and its
arguments, or an answer: what is wanted of a model this small is the path, not wit.
"""

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from turnkeeper.api.intake import parse_agent
from turnkeeper.cli.run_files import json_body
from turnkeeper.config import load_configuration
from turnkeeper.datadir import DataDir
from turnkeeper.events.envelope import Event
from turnkeeper.sandbox.local_model import ENGINE_PACKAGE, MODEL_NAME, WEIGHTS_PACKAGE
from turnkeeper.turns.model import Step, Turn
from turnkeeper.turns.ports import NewTurn
from turnkeeper.wiring.one_turn import TurnDesk
from turnkeeper.wiring.platform import open_platform

MISSING = [name for name in (ENGINE_PACKAGE, WEIGHTS_PACKAGE) if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.real_model,
    pytest.mark.sandbox,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (see requirements/model.txt)"),
]

PROMPT = "Write the file note.txt with the content: it rains in Paris"
AGENT = {
    "name": "writer",
    "instructions": "You work with files.",
    "model": {"provider": "local", "id": MODEL_NAME, "params": {"temperature": 0, "seed": 1, "max_tokens": 200}},
    "tools": ["write_file"],
}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "rain": {"type": "boolean"}},
    "required": ["city", "rain"],
    "additionalProperties": False,
}


def test_the_real_model_calls_a_governed_tool_and_writes_a_valid_result(tmp_path: Path) -> None:
    turn, steps, events, workspace = asyncio.run(run_turn(tmp_path / "data"))

    assert (turn.status, turn.stop_reason) == ("completed", "end_turn")
    assert orjson.loads(turn.result_json or "null").keys() == {"city", "rain"}
    called = [orjson.loads(event.data)["input"] for event in events if event.type == "tool.requested"]
    assert (workspace / called[-1]["path"]).read_text() == called[-1]["content"]
    asked = [(step.method, step.decision) for step in steps if "toolCall" in step.method]
    assert asked == [("steps/toolCallRequest", "allow"), ("steps/toolCallResult", "allow")] * len(called)
    assert turn.usage.tool_calls == len(called) > 0


async def run_turn(folder: Path) -> tuple[Turn, Sequence[Step], Sequence[Event], Path]:
    """The whole platform in this process, one turn of it, and what it left."""
    data_dir = DataDir(folder)
    data_dir.prepare()
    flags = {"data_dir": folder, "sandbox.warm": 1}
    configuration = load_configuration(file=None, flags=flags, data_dir_name="serve")
    async with open_platform(configuration, data_dir) as platform:
        desk = TurnDesk(platform)
        session_id = await desk.open_session(parse_agent(json_body(orjson.dumps(AGENT), "the agent"), platform.api))
        posted = await desk.post(the_turn(session_id))
        steps = [step async for step in desk.steps(posted)]
        events = await platform.store.events(session_id, after=0, limit=100)
        return await desk.turn(posted), steps, events, data_dir.workspaces / session_id


def the_turn(session_id: str) -> NewTurn:
    """What is asked of the agent."""
    return NewTurn(
        session_id=session_id,
        input_text=PROMPT,
        input_json=orjson.dumps(PROMPT).decode(),
        output_schema_json=orjson.dumps(SCHEMA).decode(),
        metadata_json="{}",
        budget=None,
        max_repair_attempts=3,
        idempotency_key=None,
        fingerprint=None,
    )
