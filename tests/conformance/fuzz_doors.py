"""Fuzzes both doors of the Guardian: `python tests/conformance/fuzz_doors.py --seconds 600 --seed 1`.

Traffic of every hook is broken in its bytes, in its members (and signed again), in batches and in its framing. Whatever
comes: an answer in time, 200 or 413, codes of the registry with a reason, no internal error, a Guardian that still
decides, memory that does not grow with the rounds, and a chain that verifies at the end.
"""

import argparse
import asyncio
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import httpx
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.unit.guardian.kit import KEYRING, TOOL_CALL, Agent, House, house
from tests.unit.guardian.samples import PAYLOADS

from turnkeeper.acs import AcsErrorCode, CanonicalizationRejected, Disposition, sign_request
from turnkeeper.acs.framing import FrameBroken, FrameReader, render_frame
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.http import guardian_app
from turnkeeper.guardian.stdio import serve_frames
from turnkeeper.guardian.verify import verify_stored
from turnkeeper.store.chain_reader import SqliteChainReader

MAX_BODY_BYTES: Final = 262_144
PATIENCE_S: Final = 20.0
SESSIONS: Final = 8
REGISTRY: Final = frozenset(int(code) for code in AcsErrorCode)
METHODS: Final = sorted(PAYLOADS.keys() - {"steps/sessionEnd"})
MAX_GROWTH_KIB: Final = 65_536
ODD: Final[tuple[object, ...]] = (
    None, True, -1, 0.1, 1e308, 2**63, "", "\x00", "x" * 5_000, "\u202e", [], {}, [1], {"": 1}, "2026-12-01T10:00:00Z",
)  # fmt: skip

Mutation = Callable[["Fuzzer", dict[str, Any]], bytes]


@dataclass
class Report:
    """What was sent and what came back. `problems` is empty where every promise was kept."""

    rounds: int = 0
    answers: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])
    grown_kib: int = 0


class Fuzzer:
    """One run over one Guardian."""

    def __init__(self, here: House, seed: int) -> None:
        self.here = here
        self.random = random.Random(seed)
        self.report = Report()
        self.agents = [here.agent() for _ in range(SESSIONS)]
        app = guardian_app(here.guardian, Door("http", KEYRING), max_body_bytes=MAX_BODY_BYTES, path="/acs")
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://guardian")

    async def begin(self) -> None:
        """Opens the sessions that hostile traffic will name."""
        for agent in self.agents:
            await agent.hello()

    async def end(self) -> None:
        """Closes the client and verifies what was recorded."""
        await self._http.aclose()
        if self.here.guardian.in_flight:
            self._problem("requests are still in flight", b"")
        with SqliteChainReader(self.here.path) as reader:
            for summary in reader.sessions(limit=10_000):
                if not verify_stored(reader, summary, KEYRING).intact:
                    self._problem(f"the chain of {summary.session_id} does not verify", b"")

    async def round(self) -> None:
        """One hostile body through each door, and now and then an honest step."""
        self.report.rounds += 1
        body = self.body()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._over_http(body)
                await self._over_stdio(body if self.random.random() < 0.2 else self.body())
                if self.report.rounds % 50 == 0:
                    await self._honest()
        except TimeoutError:
            self._problem("no answer in time", body)

    def body(self) -> bytes:
        """A body that somebody hostile might send."""
        choices: tuple[Mutation, ...] = (_cut, _flipped, _odd_member, _odd_member, _signed_oddly, _signed_oddly, _batch)
        return self.random.choice(choices)(self, self.document())

    def document(self) -> dict[str, Any]:
        """An honest request of any hook, signed."""
        agent: Agent = self.random.choice(self.agents)
        method = "steps/sessionEnd" if self.random.random() < 0.002 else self.random.choice(METHODS)
        turn_id = self.random.choice([None, "t"])
        return orjson.loads(agent.body(method, PAYLOADS[method], request_id=str(uuid4()), turn_id=turn_id))

    def signed(self, document: dict[str, Any], session_id: str) -> bytes:
        """A document with a signature of a session's key, where it has a canonical form."""
        try:
            signed = sign_request(document, KEYRING.session_key("default", session_id))
        except CanonicalizationRejected:
            return orjson.dumps(document)
        return orjson.dumps(signed)

    async def _over_http(self, body: bytes) -> None:
        response = await self._http.post("/acs", content=body)
        if response.status_code not in (200, 413):
            self._problem(f"status {response.status_code}", body)
            return
        self._judge(body, response.content)

    async def _over_stdio(self, body: bytes) -> None:
        reader, written = asyncio.StreamReader(limit=65_536), bytearray()
        reader.feed_data(render_frame(body) if self.random.random() < 0.9 else body)
        reader.feed_eof()

        async def write(frame: bytes) -> None:
            written.extend(frame)

        door = Door("stdio", KEYRING)
        try:
            await serve_frames(self.here.guardian, door, reader, write, max_body_bytes=MAX_BODY_BYTES)
        except FrameBroken:
            self.report.answers["frame_broken"] += 1
        for answer in FrameReader(1 << 24).feed(bytes(written)):
            self._judge(body, answer)

    async def _honest(self) -> None:
        agent = self.here.agent()
        await agent.hello()
        if (await agent.step("toolCallRequest", TOOL_CALL)).decision is not Disposition.ALLOW:
            self._problem("an honest step is no longer allowed", b"")
        # Sessions that hostile traffic has ended make room for new ones.
        self.agents[self.random.randrange(SESSIONS)] = agent

    def _judge(self, body: bytes, raw: bytes) -> None:
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError:
            self._problem("the answer is no JSON", body)
            return
        for one in cast("list[Any]", answer) if isinstance(answer, list) else [answer]:
            self._judge_one(body, one)

    def _judge_one(self, body: bytes, answer: dict[str, Any]) -> None:
        if ("error" in answer) == ("result" in answer):
            self._problem("neither a result nor an error", body)
        elif "error" not in answer:
            self.report.answers[str(answer["result"].get("decision", "hello"))] += 1
        else:
            error = answer["error"]
            self.report.answers[str(error["code"])] += 1
            if error["code"] not in REGISTRY or error["code"] == AcsErrorCode.INTERNAL_ERROR:
                self._problem(f"code {error['code']}", body)
            if not all(isinstance(error.get("data", {}).get(name), str) for name in ("reason", "message")):
                self._problem("an error without a reason", body)

    def _problem(self, what: str, body: bytes) -> None:
        self.report.problems.append(f"round {self.report.rounds}: {what}: {body[:2_000]!r}")


def _cut(fuzzer: Fuzzer, document: dict[str, Any]) -> bytes:
    body = orjson.dumps(document)
    return body[: fuzzer.random.randrange(len(body) + 1)]


def _flipped(fuzzer: Fuzzer, document: dict[str, Any]) -> bytes:
    body = bytearray(orjson.dumps(document))
    for _ in range(fuzzer.random.randint(1, 8)):
        body[fuzzer.random.randrange(len(body))] = fuzzer.random.randrange(256)
    return bytes(body)


def _odd_member(fuzzer: Fuzzer, document: dict[str, Any]) -> bytes:
    _make_odd(fuzzer.random, document)
    return _dumped(document)


def _signed_oddly(fuzzer: Fuzzer, document: dict[str, Any]) -> bytes:
    session_id = document["params"]["metadata"]["session_id"]
    _make_odd(fuzzer.random, document["params"]["payload"] or document["params"])
    return fuzzer.signed(document, session_id)


def _batch(fuzzer: Fuzzer, document: dict[str, Any]) -> bytes:
    items: list[Any] = [document, *(fuzzer.document() for _ in range(fuzzer.random.randrange(4)))]
    items.append(fuzzer.random.choice([document, [], None, {"jsonrpc": "2.0"}]))
    return _dumped(items)


def _make_odd(source: random.Random, node: Any) -> None:
    """Replaces or removes something somewhere in a document that is not empty."""
    container = cast("dict[Any, Any]", node)
    place = source.choice(list(container) if isinstance(node, dict) else list(range(len(container))))
    inner: object = container[place]
    if isinstance(inner, dict | list) and inner and source.random() < 0.6:
        _make_odd(source, inner)
    elif source.random() < 0.2:
        del container[place]
    else:
        container[place] = source.choice(ODD)


def _dumped(document: Any) -> bytes:
    return orjson.dumps(document)


def resident_kib() -> int:
    """The largest memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def fuzz(folder: Path, *, seed: int, rounds: int | None = None, seconds: float | None = None) -> Report:
    """Fuzzes until the rounds are done or the time is over."""
    async with house(folder) as here:
        fuzzer = Fuzzer(here, seed)
        await fuzzer.begin()
        started, warm_kib = time.monotonic(), 0
        while (rounds is None or fuzzer.report.rounds < rounds) and (
            seconds is None or time.monotonic() - started < seconds
        ):
            await fuzzer.round()
            if fuzzer.report.rounds == 2_000:
                warm_kib = resident_kib()
        if warm_kib:
            fuzzer.report.grown_kib = resident_kib() - warm_kib
            if fuzzer.report.grown_kib > MAX_GROWTH_KIB:
                fuzzer.report.problems.append(f"memory grew by {fuzzer.report.grown_kib} KiB")
        await fuzzer.end()
    return fuzzer.report


def main() -> int:
    """Runs for a time and says what happened."""
    parser = argparse.ArgumentParser(description="Fuzz both doors of a Guardian in this process.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="turnkeeper-fuzz-") as folder:
        report = asyncio.run(fuzz(Path(folder), seed=chosen.seed, seconds=chosen.seconds))
    out = [f"seed {chosen.seed}: {report.rounds} rounds, memory +{report.grown_kib} KiB"]
    out += [f"  {count:8} {answer}" for answer, count in report.answers.most_common()]
    sys.stdout.write("\n".join([*out, *report.problems[:50], ""]))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
