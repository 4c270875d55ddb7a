"""Text while it is written, from a worker to a reader of another process: PostgreSQL is all that they share."""

import json
import threading
from asyncio import to_thread
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from tests.acceptance.apart import Apart, postgres
from tests.acceptance.server import Json
from tests.acceptance.stub import StubModel

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.postgres, pytest.mark.timeout(240)]

Frames: TypeAlias = Generator[tuple[str, str | None, Json], None, None]
"""What each frame of a stream is, its id, its data."""

DEADLINE_S: Final = 60
FIRST, REST = "Hello, ", "reader."


class HesitantModel(StubModel):
    """Writes the first piece of its answer, and the rest once `may_go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    async def _answer(self, request: Request) -> Response:
        self.bodies.append(json.loads(await request.body()))
        return StreamingResponse(self._pieces(), media_type="text/event-stream")

    async def _pieces(self) -> AsyncIterator[str]:
        yield _chunk({"role": "assistant", "content": FIRST})
        assert await to_thread(self.may_go_on.wait, DEADLINE_S)
        yield _chunk({"content": REST})
        yield _chunk({}, reason="stop")
        yield "data: [DONE]\n\n"


def _chunk(delta: Json, *, reason: str | None = None) -> str:
    usage = None if reason is None else {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps({**whole, 'usage': usage})}\n\n"


@contextmanager
def in_parts(folder: Path, model: StubModel) -> Generator[Apart]:
    """An API, a Guardian and one worker, each a process, on one PostgreSQL."""
    with ExitStack() as stack:
        stack.enter_context(model)
        place = Apart(folder, stack, model, stack.enter_context(postgres()))
        place.work("one")
        yield place


def live_turn(place: Apart) -> Json:
    """A turn of an agent whose text may be read before the Guardian has decided on it."""
    agent = {"name": "a", "model": {"provider": "stub", "id": "m"}, "guardian": {"stream_before_decision": True}}
    session = place.post("/v1/sessions", {"agent_id": place.post("/v1/agents", agent)["id"]})
    return place.post(f"/v1/sessions/{session['id']}/turns", {"input": "hi"})


def frames(place: Apart, turn_id: str, last_event_id: str | None = None) -> Frames:
    """The frames of the turn's stream. Closing them closes the connection."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    query = "?after=0" if last_event_id is None else ""
    with place.client.stream("GET", f"/v1/turns/{turn_id}/events/stream{query}", headers=headers) as response:
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "data" in fields:
                yield fields["event"], fields.get("id"), cast("Json", json.loads(fields["data"]))
                fields = {}


def test_a_text_that_a_worker_writes_is_read_while_it_is_written_through_another_process(tmp_path: Path) -> None:
    """Contract 11: deltas arrive as they are written, and a reader who comes back gets the whole first."""
    model = HesitantModel()
    with in_parts(tmp_path, model) as place:
        turn, last_id, written = live_turn(place), "0", ""
        reading = frames(place, turn["id"])
        for event, event_id, data in reading:
            last_id = event_id or last_id
            if event in {"message.delta", "message.snapshot"}:
                written = data["data"]["text"]
                break
        reading.close()
        assert (written, place.turn(turn["id"])["status"]) == (FIRST, "running")

        again = frames(place, turn["id"], last_id)
        snapshot = next(data for event, _, data in again if event == "message.snapshot")
        assert (snapshot["data"]["text"], snapshot["data"]["offset"]) == (FIRST, len(FIRST))
        model.may_go_on.set()
        rest = [(event, data) for event, _, data in again]
        deltas = [data["data"] for event, data in rest if event == "message.delta"]
        assert [(one["offset"], one["text"]) for one in deltas] == [(len(FIRST), REST)]
        completed = [data["data"] for event, data in rest if event == "message.completed"]
        assert [(one["message_id"], one["text"]) for one in completed] == [(deltas[0]["message_id"], FIRST + REST)]
        assert [event for event, _ in rest][-2:] == ["turn.completed", "stream.closing"]
        assert place.turn(turn["id"], wait_ms=10_000)["output"] == {"text": FIRST + REST}
