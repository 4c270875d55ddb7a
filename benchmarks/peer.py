"""A peer that does the same job in the same run: `langgraph-api` in memory, with a graph that asks the same stub model.

Answers for a fair comparison of a turn that is one model call. The peer keeps runs in memory, checks no step, and runs
the graph in its own process; ours stores every event durably, asks the Guardian about every step and runs the agent in
a box. Its packages are installed into a folder of the benchmark's own, once, and are never a dependency of ours.
"""

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from benchmarks.measure import Row
from tests.acceptance.server import free_port
from tests.acceptance.stub import StubModel

NAME = "langgraph-api 0.16.7, in memory"
PACKAGES = ("langgraph-cli[inmem]==0.4.40", "langgraph-api==0.16.7")
PLACE = Path(__file__).parent / "results" / ".peer"
READY_S = 120.0
INSTALL_S = 900.0

GRAPH = """
import os
from typing import TypedDict

import httpx
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    input: str
    output: str


async def answer(state: State) -> dict:
    async with httpx.AsyncClient(trust_env=False) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": state["input"]}]}
        found = await client.post(os.environ["STUB_URL"] + "/chat/completions", json=body)
    return {"output": found.json()["choices"][0]["message"]["content"]}


graph = StateGraph(State).add_node("answer", answer).add_edge(START, "answer").add_edge("answer", END).compile()
"""


@dataclass(frozen=True)
class Peer:
    """The running peer."""

    url: str
    process: subprocess.Popen[bytes]


def installed() -> str | None:
    """Installs the peer where it is not yet; why it cannot be measured, if it cannot."""
    if (PLACE / "ready").exists():
        return None
    PLACE.mkdir(parents=True, exist_ok=True)
    pip = [str(PLACE / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(PLACE / "venv")], check=True, timeout=INSTALL_S)
        subprocess.run(pip, check=True, timeout=INSTALL_S, capture_output=True)
    except (subprocess.SubprocessError, OSError) as error:
        return f"{NAME} could not be installed: {type(error).__name__}"
    (PLACE / "ready").touch()
    return None


@contextmanager
def running(folder: Path, model: StubModel) -> Generator[Peer]:
    """The peer on a port of its own, until the end of the block. Raises `TimeoutError`."""
    (folder / "graph.py").write_text(GRAPH)
    (folder / "langgraph.json").write_text('{"dependencies": ["."], "graphs": {"echo": "./graph.py:graph"}}')
    port, place = free_port(), PLACE / "venv" / "bin"
    environment = {
        "PATH": f"{place}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "STUB_URL": model.base_url,
        "LANGSMITH_TRACING": "false",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    }
    command = [str(place / "langgraph"), "dev", "--no-browser", "--no-reload", "--port", str(port)]
    with (folder / "peer.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1"], env=environment, cwd=folder, stdin=-3, stdout=log, stderr=log
        )
    try:
        _until_ready(f"http://127.0.0.1:{port}", process)
        yield Peer(f"http://127.0.0.1:{port}", process)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/ok", timeout=2, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise TimeoutError(f"{NAME} was not ready in {READY_S:.0f} s")


def measure(folder: Path, model: StubModel, samples: int) -> list[Row]:
    """What an app sees of the peer."""
    with running(folder, model) as peer, httpx.Client(base_url=peer.url, timeout=60, trust_env=False) as client:
        _warm(client)
        return [
            Row(f"accept: POST run -> 200, {NAME}", tuple(accept_times(client, samples))),
            Row(f"post -> answer, one model call, {NAME}", tuple(answer_times(client, samples))),
        ]


def _warm(client: httpx.Client) -> None:
    for _ in range(3):
        list(answer_times(client, 1))


def accept_times(client: httpx.Client, samples: int) -> Iterator[float]:
    """A run posted to a thread of its own; waited for before the next one."""
    for _ in range(samples):
        thread = client.post("/threads", json={}).json()["thread_id"]
        begin = time.perf_counter()
        answer = client.post(f"/threads/{thread}/runs", json=_run())
        yield (time.perf_counter() - begin) * 1000
        assert answer.status_code == 200, answer.text
        client.get(f"/threads/{thread}/runs/{answer.json()['run_id']}/join")


def answer_times(client: httpx.Client, samples: int) -> Iterator[float]:
    """From the post to the answer."""
    for _ in range(samples):
        thread = client.post("/threads", json={}).json()["thread_id"]
        begin = time.perf_counter()
        answer = client.post(f"/threads/{thread}/runs/wait", json=_run())
        yield (time.perf_counter() - begin) * 1000
        assert answer.json()["output"] == "ok", answer.text


def _run() -> dict[str, object]:
    return {"assistant_id": "echo", "input": {"input": "text=ok"}}
