"""What is ready: a Guardian somewhere else is asked for a connection."""

import asyncio

from turnkeeper.wiring.readiness import takes_connections


async def _hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_a_guardian_takes_connections_while_it_listens_and_not_afterwards() -> None:
    async def main() -> tuple[bool, bool]:
        server = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/acs"
        during = await takes_connections(url)
        server.close()
        await server.wait_closed()
        return during, await takes_connections(url)

    assert asyncio.run(main()) == (True, False)
