"""A process that writes to a store for as long as it is let: `python store_writer.py URL`."""

import asyncio
import sys

from tests.contract.store_rig import ANSWER, LOST, a_note, has_started, is_starting, open_store


async def main(url: str) -> None:
    rig = await open_store(url)
    sessions = [await rig.session() for _ in range(2)]
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        for session in sessions:
            await rig.accept(session.id, idempotency_key=f"{session.id} {number}", fingerprint="f")
        claim = await rig.store.claim("writer", slot=True)
        if claim is None:
            continue
        fence = claim.fence
        await rig.store.starting(fence, [is_starting(fence.turn_id)])
        await rig.store.started(fence, [has_started(fence.turn_id)])
        await rig.store.reserve(fence, input_tokens=10, max_output_tokens=300)
        await rig.store.record(fence, [a_note(fence.turn_id)] * 3)
        await rig.store.end(fence, ANSWER if number % 2 else LOST)
        print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
