"""An Idempotency-Key that stood for a turn still does."""

import asyncio
from pathlib import Path

from alembic import command
from sqlalchemy import column, create_engine, table
from tests.contract.store_rig import open_store
from tests.migration.test_budget_migration import ROWS, TURN

from turnkeeper.store.admin import alembic_config

KEY = {"project_id": "prj", "key": "k", "fingerprint": "f", "turn_id": f"trn_{TURN}", "created_at": 7}


def test_a_key_of_a_turn_is_one_after_the_migration(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/turns.db"
    engine = create_engine(url)
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0004")
        for name, values in (*ROWS, ("idempotency_keys", KEY)):
            connection.execute(table(name, *map(column, values)).insert().values(values))
        command.upgrade(alembic_config(connection), "head")
    engine.dispose()

    async def scenario() -> None:
        rig = await open_store(url)
        session_id = (await rig.store.turn(f"trn_{TURN}")).session_id
        accepted = await rig.accept(session_id, idempotency_key="k", fingerprint="f")
        await rig.store.close()
        assert (accepted.turn.id, accepted.replayed) == (f"trn_{TURN}", True)

    asyncio.run(scenario())
