"""`python -I -m turnkeeper.harness`: one turn over standard input and output, then gone.

The process makes itself undumpable and takes the frame pipes before anything large is imported, so that no import can
print into the protocol.
"""

import asyncio
import gc
import sys

from turnkeeper.harness.hardening import FramePipes, claim_frame_pipes, forbid_dumping, yield_to_running_turns

forbid_dumping()
yield_to_running_turns()
PIPES = claim_frame_pipes()

from turnkeeper.harness.channel import PipeChannel  # noqa: E402 - after the lines above, see the docstring
from turnkeeper.harness.loop import serve  # noqa: E402
from turnkeeper.harness.rehearsal import rehearse  # noqa: E402


async def _main(pipes: FramePipes) -> int:
    await rehearse()
    # What the imports left behind lives as long as the process; no collection needs to walk it again.
    gc.freeze()
    channel = await PipeChannel.open(pipes)
    try:
        return await serve(channel)
    finally:
        channel.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(PIPES)))
