"""A model call that is sent again is told in the turn's events, and never stops a turn."""

import orjson
from tests.contract.store_rig import Rig, with_store

from turnkeeper.acs.schemas import Validator
from turnkeeper.events.catalogue import event_schema_text
from turnkeeper.turns.meter import LedgerMeter
from turnkeeper.turns.model import Fence, ModelChoice

MODEL = ModelChoice("stub", "large")


@with_store
async def test_a_call_that_is_sent_again_is_an_event_of_the_turn(rig: Rig) -> None:
    fence = await rig.running()
    meter = LedgerMeter(rig.store, lambda: fence)
    meter.attempt = 1

    await meter.retrying(MODEL, status=503, delay_ms=20, try_number=1)

    told = (await rig.events(fence.session_id))[-1]
    Validator(orjson.loads(event_schema_text("model.retrying")), {}).check(orjson.loads(told.data))
    assert (told.type, told.turn_id, told.attempt, told.source) == ("model.retrying", fence.turn_id, 1, "platform")


@with_store
async def test_a_worker_that_lost_its_turn_says_nothing_more_about_it(rig: Rig) -> None:
    fence = await rig.running()
    old = Fence(fence.turn_id, fence.session_id, fence.owner, fence.number - 1)
    before = await rig.types(fence.session_id)

    await LedgerMeter(rig.store, lambda: old).retrying(MODEL, status=None, delay_ms=20, try_number=1)

    assert await rig.types(fence.session_id) == before
