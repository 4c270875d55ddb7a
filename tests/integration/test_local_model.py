"""The real small model: llama.cpp in a child of ours, behind the gateway, under the harness."""

import asyncio
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.contract.gateway_rig import BODY, client_of
from tests.contract.harness_rig import DEADLINE_S, Inside, Worker, converse, start_frame

from turnkeeper.sandbox.gateway import ModelGateway, ModelSpec
from turnkeeper.sandbox.local_model import (
    ENGINE_PACKAGE,
    MODEL_NAME,
    WEIGHTS_PACKAGE,
    LocalModel,
    LocalModelLimits,
    LocalModelUnavailable,
)
from turnkeeper.testing.memory_meter import MemoryMeter

MISSING = [name for name in (ENGINE_PACKAGE, WEIGHTS_PACKAGE) if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (see requirements/model.txt)"),
]

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "rain": {"type": "boolean"}},
    "required": ["city", "rain"],
    "additionalProperties": False,
}
PARAMS: dict[str, object] = {"temperature": 0, "seed": 1, "max_tokens": 400}


def test_the_model_writes_a_result_of_the_asked_form(tmp_path: Path) -> None:
    async def main() -> tuple[Worker, MemoryMeter]:
        local, gateway, meter, worker = LocalModel(), ModelGateway(), MemoryMeter(), Worker()
        try:
            handle = await gateway.open(tmp_path, ModelSpec(await local.start(), MODEL_NAME, PARAMS), meter)
            inside = await Inside.open()
            start = start_frame(
                handle.path,
                model=MODEL_NAME,
                instructions="Extract the city and whether it rains.",
                input="It rains in Paris today.",
                output_schema=json.dumps(SCHEMA),
                output_mode="native",
            )
            await inside.side.send(start)
            await converse(inside.side, worker)
            await inside.close()
            await handle.close()
        finally:
            await gateway.close()
            await local.stop()
        return worker, meter

    worker, meter = asyncio.run(main())

    result = json.loads(worker.report.result or "null")
    assert set(result) == {"city", "rain"}
    assert isinstance(result["rain"], bool)
    usage = meter.settlements[0].usage
    assert not usage.estimated
    assert min(usage.input_tokens, usage.output_tokens) > 0


def test_the_model_streams_with_a_count_of_its_own(tmp_path: Path) -> None:
    async def main() -> tuple[str, MemoryMeter]:
        local, gateway, meter = LocalModel(), ModelGateway(), MemoryMeter()
        try:
            handle = await gateway.open(tmp_path, ModelSpec(await local.start(), MODEL_NAME, PARAMS), meter)
            asked = BODY | {"model": MODEL_NAME, "stream": True}
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(handle.path))) as client:
                answer = await client.post("http://gateway/v1/chat/completions", json=asked, timeout=DEADLINE_S)
            await handle.close()
        finally:
            await gateway.close()
            await local.stop()
        return answer.text, meter

    text, meter = asyncio.run(main())

    settled = meter.settlements[0]
    assert text.count("data: {") > 1
    assert text.endswith("data: [DONE]\n\n")
    assert min(settled.usage.input_tokens, settled.usage.output_tokens) > 0
    assert (settled.usage.estimated, settled.outcome.first_token_ms is None) == (False, False)


def test_the_server_takes_only_its_own_key_and_leaves_no_path_in_answers(tmp_path: Path) -> None:
    async def main() -> None:
        local, gateway = LocalModel(), ModelGateway()
        provider = await local.start()
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S) as stranger:
            assert (await stranger.post(provider.url("/chat/completions"), json=BODY)).status_code == 401
        handle = await gateway.open(tmp_path, ModelSpec(provider, "m1", {"max_tokens": 8}), MemoryMeter())
        async with client_of(handle) as client:
            answer = await client.post("/v1/chat/completions", json=BODY, timeout=DEADLINE_S)
        assert answer.status_code == 200
        assert ".gguf" not in answer.text
        await handle.close()
        await gateway.close()
        await local.stop()

    asyncio.run(main())


def test_a_context_that_is_too_long_has_a_name(tmp_path: Path) -> None:
    async def main() -> None:
        local, gateway = LocalModel(), ModelGateway()
        handle = await gateway.open(tmp_path, ModelSpec(await local.start(), "m1"), MemoryMeter())
        async with client_of(handle) as client:
            body = BODY | {"messages": [{"role": "user", "content": "rain and wind " * 10_000}]}
            answer = await client.post("/v1/chat/completions", json=body, timeout=DEADLINE_S)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        await handle.close()
        await gateway.close()
        await local.stop()

    asyncio.run(main())


def test_a_server_that_was_killed_comes_back_under_the_same_address(tmp_path: Path) -> None:
    async def main() -> None:
        local = LocalModel(limits=LocalModelLimits(restart_delay_ms=1))
        before = await local.start()
        assert local.pid is not None
        os.kill(local.pid, signal.SIGKILL)
        await local.wait_for_start(2, timeout_ms=DEADLINE_S * 1000)
        assert await local.start() == before
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.post(before.url("/chat/completions"), json=BODY)).status_code == 401
        await local.stop()
        assert local.pid is None

    asyncio.run(main())


def test_the_server_does_not_outlive_its_parent() -> None:
    program = (
        "import asyncio, os\n"
        "from turnkeeper.sandbox.local_model import LocalModel\n"
        "async def main():\n"
        "    local = LocalModel()\n"
        "    await local.start()\n"
        "    print(local.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    gone = os.pidfd_open(int(parent.stdout)) if Path(f"/proc/{int(parent.stdout)}").exists() else None

    if gone is not None:
        with os.fdopen(gone) as pid_file:
            wait_readable(pid_file.fileno())


def test_weights_that_are_none_are_reported(tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"GGUF nonsense")

    async def main() -> None:
        local = LocalModel(weights=weights)
        with pytest.raises(LocalModelUnavailable):
            await local.start()
        assert local.pid is None
        await local.stop()

    asyncio.run(main())


def wait_readable(descriptor: int) -> None:
    """A process descriptor is readable when its process has ended."""
    ready, _, _ = select.select([descriptor], [], [], DEADLINE_S)
    assert ready
