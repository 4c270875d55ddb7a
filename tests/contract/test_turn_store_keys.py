"""Idempotency keys of all that is made (contract 9), on both databases: once, seen again, never held for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest
from sqlalchemy import Engine, create_engine, text
from tests.contract.store_rig import AGENT, BY_APP, Rig, open_store, with_store

from turnkeeper.events.webhooks.endpoints import Endpoint, NewEndpoint
from turnkeeper.store.tx import StoreLimits
from turnkeeper.turns.access import NewKey, SessionDeleted
from turnkeeper.turns.budget_accounts import Account, NewBudget
from turnkeeper.turns.creations import Created, Creations
from turnkeeper.turns.idempotency import (
    IdempotencyInProgress,
    IdempotencyKeyReused,
    IdempotencyResourceDeleted,
    KeyedRequest,
)
from turnkeeper.turns.model import PROJECT_ID, Agent, ApiKey, Budget, Session
from turnkeeper.turns.ports import NewSession

REQUEST = KeyedRequest(PROJECT_ID, "k", "f")
ENDPOINT = NewEndpoint(url="https://1.1.1.1/", types=("*",))
KEY = NewKey("app", "a" * 64, PROJECT_ID)
BUDGET = NewBudget(PROJECT_ID, "project", PROJECT_ID, Budget(max_model_calls=1))


@dataclass(frozen=True)
class Identified:
    id: str


Made = TypeVar("Made", Agent, Session, Account, ApiKey, Endpoint)
Make = Callable[[Creations, KeyedRequest | None], Awaitable[Created[Identified]]]


async def make_agent(creations: Creations, request: KeyedRequest | None) -> Created[Identified]:
    return named(await creations.agent(AGENT, request))


async def make_session(creations: Creations, request: KeyedRequest | None) -> Created[Identified]:
    agent = await creations.agent(AGENT, KeyedRequest(PROJECT_ID, "of the agent", "f"))
    return named(await creations.session(NewSession(agent.thing.id, None, "{}", None), request))


async def make_budget(creations: Creations, request: KeyedRequest | None) -> Created[Identified]:
    return named(await creations.budget(BUDGET, request))


async def make_key(creations: Creations, request: KeyedRequest | None) -> Created[Identified]:
    return named(await creations.api_key(KEY, request, actor="key_1"))


async def make_endpoint(creations: Creations, request: KeyedRequest | None) -> Created[Identified]:
    return named(await creations.endpoint(ENDPOINT, request, secret="whsec_x"))


def named(created: Created[Made]) -> Created[Identified]:
    return Created(Identified(created.thing.id), created.replayed)


@pytest.mark.parametrize(
    "make", [make_agent, make_session, make_budget, make_key, make_endpoint], ids=lambda make: make.__name__
)
def test_the_same_request_makes_one_thing_and_another_is_refused(store_url: str, make: Make) -> None:
    async def scenario(rig: Rig) -> None:
        first = await make(rig.store.creations(), REQUEST)
        again = await make(rig.store.creations(), REQUEST)
        assert (again.thing.id, first.replayed, again.replayed) == (first.thing.id, False, True)
        with pytest.raises(IdempotencyKeyReused) as refused:
            await make(rig.store.creations(), replace(REQUEST, fingerprint="other"))
        assert refused.value.detail == {"resource_id": first.thing.id}

    with_store(scenario)(store_url)


@with_store
async def test_a_key_that_made_something_else_makes_no_turn_and_the_other_way_round(rig: Rig) -> None:
    session = await rig.session()
    await rig.store.creations().agent(AGENT, REQUEST)
    with pytest.raises(IdempotencyKeyReused) as refused:
        await rig.post(session.id, idempotency_key="k", fingerprint="f")
    turn = await rig.post(session.id, idempotency_key="t", fingerprint="f")

    with pytest.raises(IdempotencyKeyReused) as other:
        await rig.store.creations().agent(AGENT, KeyedRequest(PROJECT_ID, "t", "g"))

    assert str(refused.value.detail["resource_id"]).startswith("agt_")
    assert other.value.detail == {"turn_id": turn.id}


@with_store
async def test_a_key_is_its_projects_alone(rig: Rig) -> None:
    here = await rig.store.creations().agent(AGENT, REQUEST)
    there = await rig.store.creations().agent(AGENT, replace(REQUEST, project_id="prj_00000000000000000000000001"))

    assert (there.replayed, there.thing.id == here.thing.id) == (False, False)


@with_store
async def test_what_was_deleted_is_not_made_again(rig: Rig) -> None:
    creations = rig.store.creations()
    session, endpoint = (
        await make_session(creations, REQUEST),
        await make_endpoint(creations, replace(REQUEST, key="e")),
    )
    await rig.store.retention().delete_session(session.thing.id, by=BY_APP)
    await rig.store.webhooks().delete_endpoint(endpoint.thing.id)

    with pytest.raises(SessionDeleted):
        await make_session(creations, REQUEST)
    with pytest.raises(IdempotencyResourceDeleted):
        await make_endpoint(creations, replace(REQUEST, key="e"))


@with_store
async def test_a_refused_request_leaves_its_key_free(rig: Rig) -> None:
    twice = replace(KEY, name="twice")
    await rig.store.creations().api_key(KEY, None, actor="key_1")
    with pytest.raises(Exception, match="secret_sha256"):
        await rig.store.creations().api_key(twice, REQUEST, actor="key_1")

    made = await rig.store.creations().api_key(replace(twice, secret_sha256="b" * 64), REQUEST, actor="key_1")

    assert not made.replayed


@with_store
async def test_one_key_at_the_same_time_makes_one_thing(rig: Rig) -> None:
    made = await asyncio.gather(*(rig.store.creations().agent(AGENT, REQUEST) for _ in range(6)))

    assert len({created.thing.id for created in made}) == 1
    assert [created.replayed for created in made].count(False) == 1


@pytest.mark.postgres
def test_who_comes_second_does_not_wait_for_ever_for_a_process_that_is_still_committing(postgres_url: str) -> None:
    async def scenario() -> None:
        first = await open_store(postgres_url)
        second = await open_store(postgres_url, limits=StoreLimits(idempotency_wait_ms=50))
        session = await first.session()
        engine = create_engine(postgres_url)
        try:
            with engine.connect() as blocker:
                blocker.execute(text("SELECT id FROM sessions FOR UPDATE"))
                keyed = {"idempotency_key": "k", "fingerprint": "f"}
                posting = asyncio.create_task(first.post(session.id, **keyed))
                await key_is_held(engine)
                with pytest.raises(IdempotencyInProgress):
                    await second.post(session.id, **keyed)
            turn = await posting
            assert (await second.accept(session.id, **keyed)).turn.id == turn.id
        finally:
            engine.dispose()
            await first.store.close()
            await second.store.close()

    asyncio.run(scenario())


async def key_is_held(engine: Engine) -> None:
    held = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    async with asyncio.timeout(20):
        while True:
            with engine.connect() as connection:
                if connection.execute(held).scalar_one():
                    return
            await asyncio.sleep(0.01)
