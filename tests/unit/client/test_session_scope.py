"""A session is begun and ended whatever happens inside it, and is what its parts agree on."""

import asyncio

import orjson
import pytest
from tests.unit.client.rig import KEYRING, SESSION, Rig

from turnkeeper.acs import RequestEnvelope, Verdict, build_result, sign_response
from turnkeeper.acs.lineage import MAX_SOURCES
from turnkeeper.client import (
    ClientSettings,
    Denied,
    Failure,
    GuardianClient,
    Retrieved,
    SavedTerms,
    ScopeOver,
    SessionDenied,
    StepDenied,
    StepInvalid,
    steps,
)
from turnkeeper.client.asking import Asker
from turnkeeper.client.exchange import MAX_WATCHED
from turnkeeper.testing.scripted_guardian import deny


def test_a_denied_session_does_not_start() -> None:
    rig = Rig()
    rig.scripted.next("steps/sessionStart", deny("not you", "unknown_user"))

    async def work(guardian: GuardianClient) -> None:
        with pytest.raises(SessionDenied, match="not you") as denied:
            async with guardian.session():
                pytest.fail("the body of a denied session ran")
        assert denied.value.reason_codes == ("unknown_user",)

    rig.run(work)
    assert rig.sent() == ["handshake/hello", "sessionStart", "sessionEnd"]
    assert rig.scripted.received[-1].payload == {"reason": "error"}


def test_a_session_that_is_not_open_takes_no_step_and_no_turn() -> None:
    async def work(guardian: GuardianClient) -> None:
        session = guardian.session()
        with pytest.raises(ScopeOver):
            await session.agent_trigger()
        with pytest.raises(ScopeOver):
            session.turn()

    Rig().run(work)


def test_a_session_canceled_while_it_begins_is_ended_as_cancelled() -> None:
    rig = Rig()
    begun, never = asyncio.Event(), asyncio.Event()
    rig.scripted.default_timeout_ms = 60_000

    async def stuck(body: bytes) -> bytes:
        raw = await rig.scripted.exchange(body, timeout_ms=0)
        if b'"method":"steps/sessionStart"' in body:
            begun.set()
            await never.wait()
        return raw

    async def work(guardian: GuardianClient) -> None:
        starting = asyncio.create_task(guardian.session().__aenter__())
        await begun.wait()
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()

    rig.answer = stuck
    rig.run(work)
    assert rig.scripted.received[-1].payload == {"reason": "cancelled"}


def test_a_turn_canceled_while_it_begins_is_ended_as_interrupted() -> None:
    rig = Rig()
    begun, never = asyncio.Event(), asyncio.Event()
    rig.scripted.default_timeout_ms = 60_000

    async def stuck(body: bytes) -> bytes:
        raw = await rig.scripted.exchange(body, timeout_ms=0)
        if b'"method":"steps/turnStart"' in body:
            begun.set()
            await never.wait()
        return raw

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session:
            starting = asyncio.create_task(session.turn().__aenter__())
            await begun.wait()
            starting.cancel()
            await asyncio.wait({starting})
            assert starting.cancelled()

    rig.answer = stuck
    rig.run(work)
    assert rig.sent()[-2:] == ["turnEnd", "sessionEnd"]
    assert rig.scripted.received[-2].payload["outcome"] == "interrupted"


def test_a_start_that_the_standard_refuses_sends_nothing() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        with pytest.raises(StepInvalid):
            await guardian.session(intent={"raw": 1}).__aenter__()
        async with guardian.session() as session:
            with pytest.raises(StepInvalid):
                await session.turn("because").__aenter__()  # type: ignore[arg-type]

    rig.run(work)
    assert rig.sent() == ["handshake/hello", "handshake/hello", "sessionStart", "sessionEnd"]


def test_an_attached_session_is_neither_begun_nor_ended() -> None:
    rig = Rig()

    async def work(guardian: GuardianClient) -> None:
        async with await guardian.attach(SESSION) as session:
            await session.agent_trigger()

    rig.run(work)
    assert rig.sent() == ["handshake/hello", "agentTrigger"]


def test_nothing_is_asked_before_the_handshake() -> None:
    async def work(guardian: GuardianClient) -> None:
        session = await guardian.attach(SESSION)
        core = session._asker.core  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(ScopeOver):
            await Asker(core, SESSION).ask(steps.session_start())

    Rig().run(work)


def test_a_step_that_has_no_canonical_form_is_blocked() -> None:
    rig = Rig()
    rig.scripted.on_decision_failure = "proceed"

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            with pytest.raises(StepDenied) as denied:
                await turn.settle(steps.plain("steps/memoryStore", {"content": {"value": 2**60 + 1}}))
            assert denied.value.reason_codes == ("step_not_sendable",)

    rig.run(work)


def test_terms_where_a_decision_was_due_are_no_decision() -> None:
    rig = Rig()
    rig.scripted.on_decision_failure = "deny"

    async def always_terms(body: bytes) -> bytes:
        envelope = RequestEnvelope.of(orjson.loads(body))
        terms = {
            "negotiated_version": "0.1.0",
            "methods_evaluated": ["steps/agentTrigger"],
            "selected_transport": "http",
            "timeout_config": {"default_ms": 500},
            "on_decision_failure": "deny",
        }
        key = KEYRING.session_key("default", envelope.session_id)
        return orjson.dumps(sign_response(build_result(envelope.id, terms), key))

    async def work(guardian: GuardianClient) -> None:
        session = await guardian.attach(SESSION)
        outcome = await session.ask(steps.agent_trigger("system"))
        assert isinstance(outcome, Denied)
        assert isinstance(await guardian.ping(), Failure)

    rig.answer = always_terms
    rig.run(work)
    assert rig.records[0].document["failure"] == {
        "kind": "malformed_response",
        "message": "the answer is none to a step",
    }


def test_a_decision_where_terms_were_saved_is_no_terms() -> None:
    rig = Rig()
    verdict = {"type": "final", "acs_version": "0.1.0", "request_id": SESSION, "decision": "allow"}
    key = KEYRING.session_key("default", SESSION)
    rig.terms.save(SESSION, SavedTerms(SESSION, orjson.dumps(sign_response(build_result(SESSION, verdict), key))))

    async def work(guardian: GuardianClient) -> None:
        await guardian.attach(SESSION)

    rig.run(work)
    assert rig.audited() == [("saved_terms_rejected", "observed")]


def test_late_answers_are_waited_for_up_to_a_bound() -> None:
    rig = Rig(ClientSettings(max_payload_bytes=900_000))
    rig.scripted.on_decision_failure = "proceed"
    waiting: set[asyncio.Task[object]] = set()

    async def silent(body: bytes) -> bytes:
        if b'"method":"steps/agentTrigger"' in body:
            task = asyncio.current_task()
            assert task is not None
            waiting.add(task)
            try:
                await asyncio.Event().wait()
            finally:
                waiting.discard(task)
        return await rig.scripted.exchange(body, timeout_ms=0)

    async def work(guardian: GuardianClient) -> None:
        session = await guardian.attach(SESSION)
        for _ in range(MAX_WATCHED + 5):
            await session.agent_trigger()
        await asyncio.sleep(0)
        assert len(waiting) == MAX_WATCHED

    rig.answer = silent
    rig.run(work)
    assert waiting == set()


def test_a_session_says_so_when_more_comes_in_than_lineage_is_kept_of() -> None:
    rig = Rig(ClientSettings(provenance="deterministic"))

    async def work(guardian: GuardianClient) -> None:
        async with guardian.session() as session, session.turn() as turn:
            with pytest.raises(StepInvalid, match=str(MAX_SOURCES)):
                await turn.knowledge_retrieval("q", [Retrieved(number) for number in range(MAX_SOURCES)])

    rig.run(work)


def test_a_ping_needs_no_session() -> None:
    """Its answer proves nothing about a session, only that somebody with the key is there."""
    rig = Rig()

    async def pong(body: bytes) -> bytes:
        envelope = RequestEnvelope.of(orjson.loads(body))
        result = {"type": "final", "acs_version": "0.1.0", "request_id": envelope.request_id, "decision": "allow"}
        key = KEYRING.session_key("default", envelope.session_id)
        return orjson.dumps(sign_response(build_result(envelope.id, result), key))

    rig.answer = pong

    async def work(guardian: GuardianClient) -> None:
        assert isinstance(await guardian.ping(), Verdict)

    rig.run(work)
