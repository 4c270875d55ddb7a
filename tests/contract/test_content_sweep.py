"""The sweep of bytes: what nothing names goes when it is old, and nothing else does."""

import asyncio
from dataclasses import replace

import pytest
from tests.contract.content_rig import LATER, held, pieces
from tests.contract.store_rig import Rig, open_store
from tests.contract.test_file_store import FILE

from turnkeeper.turns.content_sweep import ContentSweep
from turnkeeper.turns.contents import ContentMissing
from turnkeeper.turns.files import File


async def uploaded(rig: Rig, data: bytes) -> File:
    content = await rig.store.contents().put(pieces(data), max_bytes=100)
    new = replace(FILE, sha256=content.sha256, size_bytes=content.size_bytes)
    return (await rig.store.files().add_file(new)).thing


def test_bytes_go_when_nothing_names_them_and_they_are_old(store_url: str) -> None:
    async def main() -> None:
        rig = await open_store(store_url)
        try:
            kept, deleted = await uploaded(rig, b"kept"), await uploaded(rig, b"deleted")
            crashed = await rig.store.contents().put(pieces(b"no row came"), max_bytes=100)
            await rig.store.files().delete_file(deleted.id)
            sweep = ContentSweep(rig.store.files(), rig.store.contents(), rig.clock)
            await sweep.sweep()
            assert await held(rig.store.contents(), deleted.sha256) == b"deleted"
            rig.clock.advance(int(LATER.total_seconds() * 1000))
            young = await rig.store.contents().put(pieces(b"its row is on its way"), max_bytes=100)
            await sweep.sweep()
            for content in (kept, young):
                assert await held(rig.store.contents(), content.sha256)
            for content in (deleted, crashed):
                with pytest.raises(ContentMissing):
                    await held(rig.store.contents(), content.sha256)
        finally:
            await rig.store.close()

    asyncio.run(main())
