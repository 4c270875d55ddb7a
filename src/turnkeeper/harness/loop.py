"""The process side of a turn: one start, one turn, and an ear for the worker's cancel meanwhile."""

import asyncio
from typing import Final

from turnkeeper import __version__
from turnkeeper.harness.channel import FrameChannel, WorkerGone, WorkerLink
from turnkeeper.harness.turn_run import TurnRun
from turnkeeper.sandbox.protocol import Canceled, HarnessProtocolError, Ready, Start, Started

HARNESS_NAME: Final = "turnkeeper"
ABORT_TIMEOUT_MS: Final = 1_000


async def serve(channel: FrameChannel) -> int:
    """Runs the one turn of this process. Returns its exit status: 0 done, 1 the worker broke the protocol."""
    await channel.send(Ready(harness=HARNESS_NAME, version=__version__))
    try:
        first = await channel.receive()
        if not isinstance(first, Start):
            await channel.send(Canceled())
            return 0
        await channel.send(Started(turn_id=first.turn_id))
        await _run(first, channel)
    except WorkerGone:
        return 0
    except HarnessProtocolError:
        return 1
    return 0


async def _run(start: Start, channel: FrameChannel) -> None:
    link = WorkerLink(channel)
    turn = TurnRun(start, link)
    listening = asyncio.ensure_future(link.listen())
    running = asyncio.ensure_future(turn.run())
    try:
        await asyncio.wait({listening, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        listening.result()
        running.cancel()
        # The acknowledgment has a deadline; a loop that is slow to stop goes with the process.
        await asyncio.wait({running}, timeout=ABORT_TIMEOUT_MS / 1000)
        await channel.send(Canceled(turn.said))
    finally:
        running.cancel()
        listening.cancel()
