"""Ping (ledger section 15): always ALLOW, whoever asks, and it leaves no trace."""

from pathlib import Path
from typing import cast

import orjson
import pytest
from tests.unit.guardian.kit import DENY_ALL, IN_PROCESS, STRANGERS, House, engine, greeted, running

from turnkeeper.store.chain_reader import SqliteChainReader


async def pinged(here: House, body: bytes) -> dict[str, dict[str, object]]:
    return cast("dict[str, dict[str, object]]", orjson.loads(await here.guardian.answer(body, IN_PROCESS)))


def test_an_unsigned_ping_is_allowed_unsigned_even_under_a_policy_that_denies_all(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        document = orjson.loads(here.agent().body("system/ping", {"echo": "x"}))
        del document["params"]["signature"]
        result = (await pinged(here, orjson.dumps(document)))["result"]
        assert result["decision"] == "allow"
        assert cast("dict[str, object]", result["payload"])["echo"] == "x"
        assert cast("dict[str, object]", result["payload"])["status"] == "ok"
        assert not {"signature", "chain_hash"} & result.keys()

    running(tmp_path, work, policy=engine(DENY_ALL))


def test_a_signed_ping_gets_a_signed_answer(tmp_path: Path) -> None:
    async def work(here: House) -> None:
        assert "signature" in (await pinged(here, here.agent().body("system/ping", {})))["result"]

    running(tmp_path, work)


@pytest.mark.parametrize("keyring_is_ours", [True, False])
def test_a_stale_or_badly_signed_ping_is_allowed_twice_and_recorded_never(
    tmp_path: Path, keyring_is_ours: bool
) -> None:
    async def work(here: House) -> None:
        agent = await greeted(here)
        sender = agent if keyring_is_ours else here.agent(session_id=agent.session_id, keyring=STRANGERS)
        body = sender.body("system/ping", {}, timestamp="2001-01-01T00:00:00Z")
        for _ in range(2):
            assert (await pinged(here, body))["result"]["decision"] == "allow"
        with SqliteChainReader(here.path) as reader:
            assert len(list(reader.rows(agent.session_id))) == 1

    running(tmp_path, work)


@pytest.mark.parametrize(("payload", "code"), [({"echo": 7}, -32602), ({"echo": "x" * 257}, -32602), (None, -32600)])
def test_a_malformed_ping_never_gets_a_code_of_acs(
    tmp_path: Path, payload: dict[str, object] | None, code: int
) -> None:
    async def work(here: House) -> None:
        document = orjson.loads(here.agent().body("system/ping", {}))
        document["params"]["payload"] = payload
        answer = await pinged(here, orjson.dumps(document))
        assert answer["error"]["code"] == code
        assert answer["id"] == document["id"]

    running(tmp_path, work)
