"""What was posted before there was an index is found in it afterwards."""

import asyncio
from pathlib import Path

from alembic import command
from sqlalchemy import column, create_engine, table
from tests.contract.store_rig import open_store
from tests.migration.test_budget_migration import ROWS

from turnkeeper.store.admin import alembic_config
from turnkeeper.turns.model import Reach
from turnkeeper.turns.ports import PageRequest, SessionFilter, TurnFilter

SAID = '{"customer":"é\\u0000","invoice":4711,"rate":1.0,"list":[1],"on":true}'
ASKED = (("customer", "é\0"), ("invoice", "4711"), ("on", "true"), ("rate", "1.0"))


def test_metadata_that_was_there_is_found_after_the_migration(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/turns.db"
    engine = create_engine(url)
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0004")
        for name, values in ROWS:
            said = {**values, "metadata_json": SAID} if "metadata_json" in values else values
            connection.execute(table(name, *map(column, said)).insert().values(said))
        command.upgrade(alembic_config(connection), "head")
    engine.dispose()

    async def scenario() -> tuple[int, int]:
        store = (await open_store(url)).store
        turns = await store.turns(PageRequest(), wanted=TurnFilter(Reach("prj"), metadata=ASKED))
        sessions = await store.sessions(PageRequest(), wanted=SessionFilter(Reach("prj"), metadata=ASKED))
        await store.close()
        return len(turns.items), len(sessions.items)

    assert asyncio.run(scenario()) == (1, 1)
