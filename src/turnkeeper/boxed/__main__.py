"""`python -I -m turnkeeper.boxed KIND`: one turn of a client over standard input and output, then gone."""

import asyncio
import sys

from turnkeeper.boxed.kinds import KINDS
from turnkeeper.boxed.runner import serve
from turnkeeper.harness.channel import PipeChannel
from turnkeeper.harness.hardening import claim_frame_pipes, forbid_dumping


async def _main(kind: str) -> int:
    channel = await PipeChannel.open(PIPES)
    try:
        return await serve(channel, KINDS[kind])
    finally:
        channel.close()


if __name__ == "__main__":
    forbid_dumping()
    PIPES = claim_frame_pipes()
    sys.exit(asyncio.run(_main(sys.argv[1])))
