"""Letting time go by, for both halves of the client."""

import asyncio
import time


async def asleep(delay_ms: int) -> None:
    """Returns after at least `delay_ms`."""
    await asyncio.sleep(delay_ms / 1000)


def sleep(delay_ms: int) -> None:
    """Returns after at least `delay_ms`."""
    time.sleep(delay_ms / 1000)
