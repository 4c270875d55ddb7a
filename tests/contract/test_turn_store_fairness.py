"""Who goes next between sessions, keys and projects (contract 7): nobody's flood keeps another from running."""

from collections import Counter

from sqlalchemy import create_engine, text
from tests.contract.store_rig import UNPAID, Rig, with_store


async def serve(rig: Rig, count: int) -> list[str | None]:
    """The keys of the next turns that are run, one after the other."""
    keys: list[str | None] = []
    for _ in range(count):
        claim = await rig.claim()
        keys.append(claim.turn.api_key_id)
        await rig.store.end(claim.fence, UNPAID)
    return keys


async def flood(rig: Rig, key: str, *, sessions: int, turns: int = 1) -> list[str]:
    opened = [(await rig.session()).id for _ in range(sessions)]
    for session_id in opened:
        for _ in range(turns):
            await rig.post(session_id, api_key_id=key)
    return opened


@with_store
async def test_a_flood_of_one_key_does_not_hold_back_another(rig: Rig) -> None:
    await flood(rig, "loud", sessions=12)
    await flood(rig, "quiet", sessions=2)

    assert (await serve(rig, 4)).count("quiet") == 2


@with_store
async def test_a_flood_of_one_session_does_not_hold_back_another_of_the_same_key(rig: Rig) -> None:
    (loud,) = await flood(rig, "key", sessions=1, turns=8)
    (quiet,) = await flood(rig, "key", sessions=1)
    rig.clock.advance(1)
    ran: list[str] = []

    for _ in range(2):
        claim = await rig.claim()
        ran.append(claim.session.id)
        await rig.store.end(claim.fence, UNPAID)

    assert ran == [loud, quiet]


@with_store
async def test_keys_that_are_busy_alike_are_served_alike(rig: Rig) -> None:
    for key in ("a", "b", "c"):
        await flood(rig, key, sessions=5)

    served = await serve(rig, 9)

    assert Counter(served) == {"a": 3, "b": 3, "c": 3}
    assert all(len(set(served[at : at + 3])) == 3 for at in range(0, 9, 3))


@with_store
async def test_a_key_that_was_away_does_not_get_what_it_might_have_had(rig: Rig) -> None:
    await flood(rig, "away", sessions=1)
    await serve(rig, 1)
    await flood(rig, "there", sessions=12)
    await serve(rig, 8)

    await flood(rig, "away", sessions=8)

    assert Counter(await serve(rig, 8))["there"] >= 3


@with_store
async def test_a_key_of_twice_the_weight_gets_twice_the_turns(rig: Rig) -> None:
    await flood(rig, "heavy", sessions=8)
    await flood(rig, "light", sessions=8)
    engine = create_engine(rig.url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE queue_shares SET weight = 2 WHERE scope = 'key' AND id = 'heavy'"))
    engine.dispose()

    assert Counter(await serve(rig, 6)) == {"heavy": 4, "light": 2}


@with_store
async def test_turns_that_no_key_posted_have_a_share_too(rig: Rig) -> None:
    await flood(rig, "loud", sessions=6)
    await rig.post((await rig.session()).id)

    assert None in await serve(rig, 2)
