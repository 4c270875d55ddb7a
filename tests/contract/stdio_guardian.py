"""A Guardian on standard streams: `python tests/contract/stdio_guardian.py FOLDER`, until its input ends."""

import asyncio
import sys
from pathlib import Path

from tests.integration.guardian_server import SECRET, rules_of

from turnkeeper.acs import Keyring
from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.guardian.stdio import serve_frames
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.store.chain import SqliteGuardianStore

MAX_BODY_BYTES = 1_048_576


async def write(frame: bytes) -> None:
    """Frames are small, and the peer reads."""
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()


async def main(folder: Path) -> None:
    """Serves the one peer."""
    guardian = Guardian(
        store=SqliteGuardianStore(folder / "guardian.db"), engine=CelEngine(rules_of(folder)), clock=SystemClock()
    )
    await guardian.start()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await serve_frames(
        guardian, Door("stdio", Keyring({"default": SECRET})), reader, write, max_body_bytes=MAX_BODY_BYTES
    )
    await guardian.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
