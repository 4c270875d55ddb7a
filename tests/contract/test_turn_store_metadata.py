"""Lists narrowed by metadata (contract 2.2, 2.3): what fits, of the project that asks, in the order of the list."""

from sqlalchemy import create_engine, func, select
from tests.contract.store_rig import BY_APP, Rig, with_store

from turnkeeper.store.tables import metadata_terms
from turnkeeper.turns.metadata import MetadataFilter
from turnkeeper.turns.model import PROJECT_ID, Reach
from turnkeeper.turns.ports import PageRequest, SessionFilter, TurnFilter
from turnkeeper.turns.retention import SessionChange

HERE = Reach(PROJECT_ID)


async def turns_with(rig: Rig, *wanted: tuple[str, str], reach: Reach = HERE) -> list[str]:
    page = await rig.store.turns(PageRequest(), wanted=TurnFilter(reach, metadata=wanted))
    return [turn.id for turn in page.items]


async def sessions_with(rig: Rig, *wanted: tuple[str, str]) -> list[str]:
    page = await rig.store.sessions(PageRequest(), wanted=SessionFilter(HERE, metadata=wanted))
    return [session.id for session in page.items]


@with_store
async def test_turns_are_found_by_what_their_metadata_says(rig: Rig) -> None:
    session = await rig.session(metadata_json='{"invoice":4711}')
    one = await rig.post(session.id, metadata_json='{"invoice":4711,"customer":"a"}')
    two = await rig.post(session.id, metadata_json='{"customer":"a","invoice":"4711"}')
    await rig.post(session.id, metadata_json='{"invoice":[4711],"customer":"b"}')

    assert await turns_with(rig, ("invoice", "4711")) == [two.id, one.id]
    assert await turns_with(rig, ("customer", "a"), ("invoice", "4711")) == [two.id, one.id]
    assert await turns_with(rig, ("customer", "b"), ("invoice", "4711")) == []
    assert await sessions_with(rig, ("invoice", "4711")) == [session.id]


@with_store
async def test_pages_go_on_in_the_order_of_the_list(rig: Rig) -> None:
    session = await rig.session()
    posted = [(await rig.post(session.id, metadata_json='{"k":"v"}')).id for _ in range(5)]
    wanted: MetadataFilter = (("k", "v"),)

    first = await rig.store.turns(PageRequest(2), session_id=session.id, wanted=TurnFilter(HERE, metadata=wanted))
    after = first.items[-1].id
    rest = await rig.store.turns(PageRequest(20, after), wanted=TurnFilter(HERE, metadata=wanted))
    upwards = await rig.store.turns(PageRequest(20, after, "asc"), wanted=TurnFilter(HERE, metadata=wanted))

    assert [turn.id for turn in first.items + rest.items] == posted[::-1]
    assert (first.has_more, rest.has_more) == (True, False)
    assert [turn.id for turn in upwards.items] == posted[-1:]


@with_store
async def test_another_project_finds_nothing(rig: Rig) -> None:
    session = await rig.session()
    await rig.post(session.id, metadata_json='{"k":"v"}')

    assert await turns_with(rig, ("k", "v"), reach=Reach("prj_00000000000000000000000001")) == []


@with_store
async def test_a_session_is_found_by_the_metadata_it_has_now(rig: Rig) -> None:
    session = await rig.session(metadata_json='{"stage":"new","kept":1}')
    await rig.store.retention().change_session(session.id, SessionChange(metadata_json='{"stage":"old","kept":1}'))

    assert await sessions_with(rig, ("stage", "new")) == []
    assert await sessions_with(rig, ("stage", "old")) == [session.id]


@with_store
async def test_nothing_of_an_erased_session_is_left_in_the_index(rig: Rig) -> None:
    session = await rig.session(metadata_json='{"k":"v"}')
    await rig.post(session.id, metadata_json='{"k":"v"}')
    await rig.store.retention().delete_session(session.id, by=BY_APP)
    await rig.store.close_ended(session.id, "completed", None)
    await rig.store.retention().erase(10)

    engine = create_engine(rig.url)
    with engine.connect() as connection:
        left = connection.execute(select(func.count()).select_from(metadata_terms)).scalar_one()
    engine.dispose()
    assert left == 0
