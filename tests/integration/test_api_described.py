"""Every operation, asked by and against its description: what it answers is what the document says."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis.strategies import SearchStrategy
from tests.contract.pause_samples import a_pause
from tests.integration.api_door import Api, opened
from tests.integration.described_requests import (
    Answer,
    Operation,
    Request,
    bad,
    check_answer,
    good,
    is_described,
    operations,
    send,
)
from tests.integration.described_values import Described, Json
from tests.unit.turns.test_skill_archives import SKILL, zipped

from turnkeeper.events.envelope import NewEvent
from turnkeeper.events.files import artifact_created

EXAMPLES: Final = 6
WORLD: Final = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example),
    derandomize=True,
)
ENDS: Final = ("/close", "/archive", "/rotate")
SINKS: Final = {"url": "https://1.1.1.1/hook", "types": ["*"]}


@dataclass(frozen=True)
class Door:
    """An API in which a little of everything exists, and the loop that it lives in."""

    api: Api
    run: asyncio.Runner
    described: Described

    @property
    def document(self) -> Json:
        return self.described.document

    def ask(self, request: Request) -> Answer:
        return self.run.run(send(self.api.app, request, self.api.secret))


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        api = runner.run(stack.enter_async_context(opened(tmp_path)))
        try:
            document = runner.run(api.seen("/openapi.json"))
            yield Door(api, runner, Described(document, runner.run(furnished(api))))
        finally:
            runner.run(stack.aclose())


async def furnished(api: Api) -> dict[str, tuple[str, ...]]:
    """Ids of what exists: turns in every state, and the things around them."""
    endpoint = await api.made("/v1/webhook_endpoints", SINKS)
    delivery = await api.made(f"/v1/webhook_endpoints/{endpoint['id']}/test")
    key = await api.made("/v1/api_keys", {"name": "another", "scopes": ["*"]})
    sessions = [await api.session() for _ in range(3)]
    first, second = [await api.turn(sessions[number], output_schema={"type": "object"}) for number in (0, 1)]
    await api.completed(await api.started(), result_json="{}")
    claim, artifact_id = await api.started(), api.deps.ids.new("art")
    await api.store.record(claim.fence, [an_artifact(claim.turn.id, artifact_id)])
    pause = a_pause(api.deps.clock, api.deps.ids, claim.fence)
    await api.store.pause(claim.fence, pause, ())
    queued = await api.turn(sessions[1], metadata={"k": "v"})
    await api.made(f"/v1/sessions/{sessions[2]}/close", {"mode": "cancel"})
    events = (await api.seen(f"/v1/sessions/{sessions[0]}/events"))["data"]
    limited = {"scope": {"type": "session", "id": sessions[0]}, "limits": {"max_model_calls": 5}}
    budget = await api.made("/v1/budgets", limited)
    assert pause.approval is not None
    file = (await api.client.post("/v1/files", files={"file": ("a.txt", b"hello")})).json()
    packed = zipped({"SKILL.md": SKILL})
    skill = (await api.client.post("/v1/skills", files={"file": ("a.zip", packed)})).json()
    return {
        "agt": (first["agent_id"], second["agent_id"]),
        "apr": (pause.approval.id,),
        "art": (artifact_id,),
        "bud": (budget["id"],),
        "evt": (events[0]["id"], events[-1]["id"]),
        "fil": (file["id"],),
        "key": (key["id"],),
        "ses": tuple(sessions),
        "skl": (skill["id"],),
        "trn": (first["id"], second["id"], queued["id"]),
        "whd": (delivery["id"],),
        "whe": (endpoint["id"],),
    }


def an_artifact(turn_id: str, artifact_id: str) -> NewEvent:
    return artifact_created(
        turn_id=turn_id,
        attempt=1,
        artifact_id=artifact_id,
        name="a.txt",
        path=None,
        media_type="text/plain",
        size_bytes=5,
        sha256="0" * 64,
        kind="tool_output",
        content="hello",
    )


Requests = Callable[[Described, Operation], SearchStrategy[Request]]
Law = Callable[[Operation, Request], None]


def holds(door: Door, requests: Requests, law: Law) -> int:
    """Holds every operation to a law; returns how many there are."""
    # What takes things away comes last, or little would be left to ask about.
    found = sorted(operations(door.document), key=lambda one: one.method == "delete" or one.path.endswith(ENDS))
    for operation in found:
        hold(operation, requests(door.described, operation), law)
    return len(found)


def hold(operation: Operation, requests: SearchStrategy[Request], law: Law) -> None:
    @WORLD
    @given(requests)
    def one(request: Request) -> None:
        note(operation.name)
        law(operation, request)

    one()


def test_what_is_asked_as_described_is_answered_as_described(door: Door) -> None:
    taken = set[str]()

    def law(operation: Operation, request: Request) -> None:
        answer = door.ask(request)
        check_answer(door.document, operation, answer)
        assert answer.status not in {405, 413, 415} or operation.takes_files
        assert b'"invalid_json"' not in answer.body
        if answer.status < 400:
            taken.add(operation.name)

    all_of_them = holds(door, good, law)
    # The others need what no schema can say: an open question's hash, a tool call that waits, a dead delivery.
    assert len(taken) > all_of_them / 2


def test_what_is_asked_in_any_other_way_is_answered_as_described(door: Door) -> None:
    def law(operation: Operation, request: Request) -> None:
        answer = door.ask(request)
        check_answer(door.document, operation, answer)
        assert answer.status >= 400 or is_described(door.document, operation, request.body)

    assert holds(door, bad, law) > 40
