"""Text while it is written, from a real server: live, withheld or off, and never ahead of the stored events."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from tests.integration.api_door import AGENT, Api, Json, serve
from tests.integration.test_api_streams import Door, Frame, listening

from turnkeeper.events import catalogue
from turnkeeper.turns.model import Claim
from turnkeeper.turns.open_texts import OpenText

LIVE: Json = {**AGENT, "guardian": {"stream_before_decision": True}}


async def live_session(api: Api) -> str:
    agent = await api.made("/v1/agents", LIVE)
    return str((await api.made("/v1/sessions", {"agent_id": agent["id"]}))["id"])


async def begun(api: Api, claim: Claim) -> OpenText:
    """A message that the running turn begins to write."""
    message_id = api.deps.ids.new("msg")
    started = catalogue.message_started(turn_id=claim.turn.id, attempt=1, message_id=message_id)
    (stored,) = await api.store.record(claim.fence, [started])
    return OpenText(claim.turn.session_id, claim.turn.id, message_id, 1, stored.sequence)


def said(api: Api, text: OpenText, piece: str) -> OpenText:
    api.deps.texts.write(text, piece)
    return text.with_more(piece)


async def until(found: AsyncIterator[Frame], event: str) -> Frame:
    async for frame in found:
        if frame.event == event:
            return frame
    raise AssertionError(f"the stream ended without {event}")


async def completed(api: Api, claim: Claim, text: OpenText) -> None:
    done = catalogue.message_completed(
        turn_id=claim.turn.id, attempt=1, message_id=text.message_id, text=text.text, final=True
    )
    await api.store.record(claim.fence, [done])
    api.deps.texts.close(text.message_id)


def test_deltas_come_between_the_beginning_and_the_end_of_their_message(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        turn = await door.api.turn(await live_session(door.api))
        claim = await door.api.started()
        async with door.stream(f"/v1/turns/{turn['id']}/events/stream?after=0") as found:
            assert (await anext(found)).data["deltas"] == "live"
            text = said(door.api, await begun(door.api, claim), "Hel")
            first = await until(found, "message.delta")
            text = said(door.api, text, "lo")
            second = await until(found, "message.delta")
            await completed(door.api, claim, text)
            await door.api.completed(claim)
            rest = [frame.event async for frame in found]
        assert [frame.data["data"] for frame in (first, second)] == [
            {"turn_id": turn["id"], "message_id": text.message_id, "offset": 0, "text": "Hel"},
            {"turn_id": turn["id"], "message_id": text.message_id, "offset": 3, "text": "lo"},
        ]
        assert [(frame.id, frame.data["sequence"], frame.data["source"]) for frame in (first, second)] == [
            (None, None, "sandbox")
        ] * 2
        assert rest == ["message.completed", "turn.completed", "stream.closing"]

    listening(tmp_path, work)


def test_a_reader_who_comes_back_gets_the_whole_first_and_then_what_is_new(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await live_session(door.api)
        await door.api.turn(session_id)
        claim = await door.api.started()
        text = said(door.api, await begun(door.api, claim), "Hello")
        async with door.stream(f"/v1/sessions/{session_id}/events/stream") as found:
            snapshot = await until(found, "message.snapshot")
            said(door.api, text, "!")
            delta = await until(found, "message.delta")
        assert (snapshot.data["data"]["text"], snapshot.data["data"]["offset"], snapshot.id) == ("Hello", 5, None)
        assert (delta.data["data"]["text"], delta.data["data"]["offset"]) == ("!", 5)

    listening(tmp_path, work)


def test_the_snapshot_of_a_session_has_its_open_message(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await live_session(api)
        await api.turn(session_id)
        text = said(api, await begun(api, await api.started()), "Hello")
        snapshot = await api.seen(f"/v1/sessions/{session_id}/snapshot")
        assert snapshot["open_messages"] == [{"message_id": text.message_id, "text": "Hello", "offset": 5}]

    serve(tmp_path, work)


def test_what_a_turn_left_open_that_has_ended_is_not_shown(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await live_session(door.api)
        await door.api.turn(session_id)
        claim = await door.api.started()
        said(door.api, await begun(door.api, claim), "a worker that died here never closed it")
        await door.api.completed(claim)
        await door.api.turn(session_id)
        text = await begun(door.api, await door.api.started())
        async with door.stream(f"/v1/sessions/{session_id}/events/stream?after=0") as found:
            said(door.api, text, "fresh")
            assert (await until(found, "message.snapshot")).data["data"]["text"] == "fresh"
        assert [
            one["text"] for one in (await door.api.seen(f"/v1/sessions/{session_id}/snapshot"))["open_messages"]
        ] == ["fresh"]

    listening(tmp_path, work)


def test_without_the_agents_word_nothing_is_shown_and_deltas_false_turns_it_off(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        held, live = await door.api.session(), await live_session(door.api)
        for session_id, query, word in ((held, "", "withheld"), (live, "?deltas=false", "off"), (live, "", "live")):
            async with door.stream(f"/v1/sessions/{session_id}/events/stream{query}") as found:
                assert (await anext(found)).data["deltas"] == word

    listening(tmp_path, work)


def test_only_the_built_member_of_an_agents_guardian_is_taken(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        agent = await api.made("/v1/agents", LIVE)
        assert agent["guardian"] == {"stream_before_decision": True}
        changed = await api.made(f"/v1/agents/{agent['id']}", {"expected_version": 1, "name": "b"})
        assert changed["guardian"] == {"stream_before_decision": True}
        for member, code in (("policy", "not_supported_yet"), ("on_decision_failure", "not_supported_yet")):
            problem = await api.refused("POST", "/v1/agents", json={**AGENT, "guardian": {member: "deny"}})
            assert (problem["status"], problem["code"]) == (422, code)
        wrong = {**AGENT, "guardian": {"stream_before_decision": "yes"}}
        assert (await api.refused("POST", "/v1/agents", json=wrong))["code"] == "invalid_field"

    serve(tmp_path, work)


def test_types_narrow_what_is_shown_while_it_is_written(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        session_id = await live_session(door.api)
        await door.api.turn(session_id)
        claim = await door.api.started()
        async with door.stream(f"/v1/sessions/{session_id}/events/stream?types=message.completed") as found:
            await anext(found)
            text = said(door.api, await begun(door.api, claim), "hi")
            said(door.api, replace(text, kind="reasoning", text=""), "hm")
            await completed(door.api, claim, text)
            assert (await anext(found)).event == "message.completed"

    listening(tmp_path, work)
