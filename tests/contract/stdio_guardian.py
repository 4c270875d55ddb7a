"""A Guardian on standard streams: `python tests/contract/stdio_guardian.py FOLDER`, until its input ends."""

import asyncio
import os
import sys
from pathlib import Path

from tests.integration.guardian_server import SECRET, rules_of

from turnkeeper.acs import Keyring
from turnkeeper.acs.framing import FrameReader, render_frame
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.store.chain import SqliteGuardianStore

MAX_BODY_BYTES = 1_048_576


async def main(folder: Path) -> None:
    """Answers each frame as it comes."""
    guardian = Guardian(
        store=SqliteGuardianStore(folder / "guardian.db"), engine=CelEngine(rules_of(folder)), clock=SystemClock()
    )
    await guardian.start()
    door, frames = Door("stdio", Keyring({"default": SECRET})), FrameReader(MAX_BODY_BYTES)
    loop = asyncio.get_running_loop()
    while chunk := await loop.run_in_executor(None, os.read, 0, 65_536):
        for body in frames.feed(chunk):
            sys.stdout.buffer.write(render_frame(await guardian.answer(body, door)))
            sys.stdout.buffer.flush()
    await guardian.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
