"""What the API and the agent's memory read: pages, events, history, keys (contract 2, 10 and 14)."""

import pytest
from tests.contract.store_rig import AGENT, ANSWER, BY_APP, SANDBOX, UNPAID, Rig, a_note, with_store

from turnkeeper.events import catalogue
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.turns.model import Budget, Fence, Submission
from turnkeeper.turns.ports import NotFound, PageRequest


@with_store
async def test_a_list_goes_on_after_the_last_id_until_there_is_no_more(rig: Rig) -> None:
    session = await rig.session()
    posted = [(await rig.post(session.id)).id for _ in range(5)]

    seen: list[str] = []
    after: str | None = None
    while True:
        page = await rig.store.turns(PageRequest(limit=2, after=after, order="desc"), session_id=session.id)
        seen += [turn.id for turn in page.items]
        after = page.items[-1].id
        if not page.has_more:
            break

    assert seen == posted[::-1]
    upwards = await rig.store.turns(PageRequest(limit=5, after=posted[0], order="asc"))
    assert ([turn.id for turn in upwards.items], upwards.has_more) == (posted[1:], False)


@with_store
async def test_lists_are_narrowed_to_what_they_belong_to(rig: Rig) -> None:
    one, other = await rig.session(), await rig.session()
    turn = await rig.post(one.id)
    await rig.post(other.id)

    assert [found.id for found in (await rig.store.turns(PageRequest(), session_id=one.id)).items] == [turn.id]
    narrowed = await rig.store.sessions(PageRequest(), agent_id=other.agent_id)
    assert [found.id for found in narrowed.items] == [other.id]
    assert {found.id for found in (await rig.store.sessions(PageRequest())).items} == {one.id, other.id}
    assert len((await rig.store.agents(PageRequest(limit=1))).items) == 1


@with_store
async def test_an_agent_and_a_session_are_read_as_they_were_made(rig: Rig) -> None:
    agent = await rig.store.create_agent(AGENT)
    session = await rig.session(title="t", metadata_json='{"a":1.0}', budget=Budget(max_model_calls=3))

    assert await rig.store.agent(agent.id) == agent
    assert await rig.store.session(session.id) == session
    assert (session.metadata_json, session.budget, session.acs_state) == ('{"a":1.0}', Budget(3), "new")
    assert (agent.tools, agent.model.provider, agent.version) == (("shell",), "stub", 1)


@with_store
async def test_what_is_not_there_is_not_found(rig: Rig) -> None:
    for look in (rig.store.agent, rig.store.session, rig.store.turn, rig.store.event, rig.store.budget_left):
        with pytest.raises(NotFound):
            await look("trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB")
    with pytest.raises(NotFound):
        await rig.store.cancel_turn("trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB", mode="graceful", by=BY_APP)
    with pytest.raises(NotFound):
        await rig.store.revoke_key("key_01KBC3Y5M8Q2V7R9T4W6X1Z0AB")


@with_store
async def test_events_are_numbered_from_one_without_a_gap(rig: Rig) -> None:
    fence = await rig.running()
    await rig.store.record(fence, [a_note(fence.turn_id)] * 3)

    events = await rig.events(fence.session_id)

    assert [event.sequence for event in events] == list(range(1, 9))
    assert (await rig.store.session(fence.session_id)).last_sequence == 8
    assert (await rig.store.turn(fence.turn_id)).last_sequence == 8
    assert await rig.store.event(events[2].id) == events[2]


@with_store
async def test_events_are_read_after_a_number_by_type_and_by_turn(rig: Rig) -> None:
    fence = await rig.running()
    other = await rig.post(fence.session_id)

    async def read(**changes: object) -> list[str]:
        wanted: dict[str, object] = {"after": 0, "limit": 100, **changes}
        return [event.type for event in await rig.store.events(fence.session_id, **wanted)]  # pyright: ignore[reportArgumentType] (keywords of the method)

    assert await read(after=3, limit=2) == ["turn.starting", "turn.started"]
    assert await read(types=["turn.queued", "turn.started"]) == ["turn.queued", "turn.started", "turn.queued"]
    assert await read(turn_id=other.id) == ["turn.queued"]
    assert await read(after=99) == []


def heard(turn_id: str, text: str) -> NewEvent:
    part = {"type": "text", "text": text}
    return catalogue.message_received(turn_id=turn_id, message_id=SANDBOX.replace("sbx", "msg"), parts=[part])


def said(turn_id: str, text: str, *, final: bool) -> NewEvent:
    message_id = SANDBOX.replace("sbx", "msg")
    return catalogue.message_completed(turn_id=turn_id, attempt=1, message_id=message_id, text=text, final=final)


def wanted(turn_id: str, call_id: str) -> NewEvent:
    return catalogue.tool_requested(
        turn_id=turn_id, attempt=1, tool_call_id=call_id, name="shell", input_json="{}", input_hash="0" * 64
    )


def got(turn_id: str, call_id: str) -> NewEvent:
    return catalogue.tool_completed(
        turn_id=turn_id,
        attempt=1,
        tool_call_id=call_id,
        status="ok",
        output="out",
        modified=False,
        truncated=False,
        duration_ms=1,
    )


async def remember(rig: Rig, fence: Fence, number: int) -> None:
    turn = fence.turn_id
    talk = [
        heard(turn, f"question {number}"),
        wanted(turn, f"tcl_{number}"),
        got(turn, f"tcl_{number}"),
        wanted(turn, f"tcl_open_{number}"),
        said(turn, "thinking", final=False),
        said(turn, f"answer {number}", final=True),
    ]
    await rig.store.record(fence, talk)
    await rig.store.end(fence, ANSWER)


def told(events: tuple[Event, ...]) -> list[str]:
    return [event.type for event in events]


TALK = ["message.received", "tool.requested", "tool.completed", "message.completed"]


@with_store
async def test_memory_is_what_was_allowed_in_earlier_turns(rig: Rig) -> None:
    fence = await rig.running()
    await remember(rig, fence, 1)
    second = await rig.post(fence.session_id)
    later = (await rig.claim()).fence
    await rig.store.record(later, [heard(second.id, "question 2")])

    memory = await rig.store.history(fence.session_id, without=second.id, limit=100)

    assert told(memory) == TALK
    assert "answer 1" in memory[-1].data


@with_store
async def test_memory_is_bounded_and_begins_with_a_question(rig: Rig) -> None:
    fence = await rig.running()
    await remember(rig, fence, 1)
    await rig.post(fence.session_id)
    await rig.store.end((await rig.claim()).fence, UNPAID)
    third = await rig.post(fence.session_id)

    assert told(await rig.store.history(fence.session_id, without=third.id, limit=6)) == TALK
    assert told(await rig.store.history(fence.session_id, without=third.id, limit=4)) == ["message.completed"]
    assert await rig.store.history(fence.session_id, without=fence.turn_id, limit=9) == ()
    assert len(await rig.store.history(fence.session_id, without=None, limit=9)) == len(TALK)


@with_store
async def test_a_key_is_found_by_its_secret_until_it_is_revoked(rig: Rig) -> None:
    key = await rig.store.create_key(name="laptop\0", secret_sha256="ab" * 32)
    assert await rig.store.key_by_secret("ab" * 32) == key

    revoked = await rig.store.revoke_key(key.id)
    rig.clock.advance(5)

    assert revoked.revoked_at is not None
    assert await rig.store.key_by_secret("ab" * 32) is None
    assert await rig.store.keys() == (await rig.store.revoke_key(key.id),) == (revoked,)


@with_store
async def test_submissions_are_kept_with_what_was_wrong_with_them(rig: Rig) -> None:
    fence = await rig.running(output_schema_json="{}")
    error = {"instance_path": "/a", "schema_path": "/type", "keyword": "type", "message": "\0"}
    await rig.store.submit(fence, Submission(1, False, '{"a":1}', (error,)), [a_note(fence.turn_id)])
    await rig.store.submit(fence, Submission(2, True, '{"a":"\\u0000"}', ()), [])

    first, second = await rig.store.submissions(fence.turn_id)

    assert (first.valid, first.errors, first.published) == (False, (error,), False)
    assert (second.valid, second.value_json) == (True, '{"a":"\\u0000"}')


@with_store
async def test_usage_of_a_running_turn_counts_its_time_so_far(rig: Rig) -> None:
    fence = await rig.running()
    rig.clock.advance(250)

    assert (await rig.store.turn(fence.turn_id)).usage.sandbox_ms == 250
    await rig.store.ping()
