"""kill -9 under load: what was answered is in the chain, and no id is accepted twice afterwards."""

import asyncio
from contextlib import suppress
from pathlib import Path

import httpx
import orjson
import pytest
from tests.integration.guardian_process import KEYRING, TOOL_CALL, Client, Process, guardian_process

from turnkeeper.acs import Refusal
from turnkeeper.guardian.ports import ExportRow
from turnkeeper.guardian.verify import verify_stored
from turnkeeper.store.chain_reader import SqliteChainReader

CLIENTS = 6
STEPS_BEFORE_THE_KILL = 40


async def load_until_dead(process: Process, clients: list[Client]) -> None:
    """Every client sends steps until the connection breaks; the process is killed after a while."""
    enough = asyncio.Event()

    async def work(client: Client, http: httpx.AsyncClient) -> None:
        with suppress(httpx.HTTPError):
            while True:
                await client.send(http, "steps/toolCallRequest", TOOL_CALL)
                if len(client.decided) >= STEPS_BEFORE_THE_KILL:
                    enough.set()

    async with httpx.AsyncClient(timeout=20) as http, asyncio.timeout(60):
        for client in clients:
            await client.hello(http)
        tasks = [asyncio.create_task(work(client, http)) for client in clients]
        await enough.wait()
        await asyncio.to_thread(process.kill)
        await asyncio.gather(*tasks)


async def again(url: str, clients: list[Client]) -> None:
    """Everything that was sent is sent again, as it was and signed anew; then the sessions go on."""
    async with httpx.AsyncClient(timeout=20) as http:
        for client in clients:
            client.url = url
            lost = set(client.unanswered)
            for request_id, body in list(client.bodies.items()):
                copied = await client.post(http, body, request_id)
                if request_id not in lost:
                    assert isinstance(copied, Refusal)
                    assert (copied.code, copied.recorded) == (-32005, None)
            for request_id, head in list(client.decided.items()):
                repeat = client.body("steps/toolCallRequest", TOOL_CALL, request_id)
                told = await client.post(http, repeat, request_id)
                assert isinstance(told, Refusal)
                assert told.recorded is not None
                assert told.recorded.chain_hash == head
            await client.send(http, "steps/sessionEnd", {"reason": "completed"})


def rows_by_request(path: Path, session_id: str) -> dict[str, ExportRow]:
    with SqliteChainReader(path) as reader:
        rows = list(reader.rows(session_id))
    return {orjson.loads(row.request or b"")["params"]["request_id"]: row for row in rows}


@pytest.mark.parametrize("kills", [2])
def test_what_was_answered_before_a_kill_is_in_the_chain_and_stays_used(tmp_path: Path, kills: int) -> None:
    for _ in range(kills):
        clients: list[Client] = []
        with guardian_process(tmp_path) as process:
            clients += [Client(process.url) for _ in range(CLIENTS)]
            asyncio.run(load_until_dead(process, clients))
        answered = [dict(client.decided) for client in clients]
        with guardian_process(tmp_path) as process:
            asyncio.run(again(process.url, clients))
        for client, decided in zip(clients, answered, strict=True):
            rows = rows_by_request(tmp_path / "guardian.db", client.session_id)
            for request_id, head in decided.items():
                assert orjson.loads(rows[request_id].entry or b"{}")["entry_hash"] == head
            assert len(rows) == len(client.bodies)
    with SqliteChainReader(tmp_path / "guardian.db") as reader:
        for summary in reader.sessions(limit=99):
            assert verify_stored(reader, summary, KEYRING).findings == ()
