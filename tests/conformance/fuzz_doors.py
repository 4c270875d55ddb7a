"""Fuzzes both doors of the Guardian: `python tests/conformance/fuzz_doors.py --seconds 600 --seed 1`.

Traffic of every hook, of wrapped MCP, of the agent's parts and of steps that wait is broken in its bytes, in its
members (and signed again), in batches and in its framing. Whatever comes: an answer in time that fits the standard's
schema, 200 or 413, codes of the registry with a reason, no internal error, a Guardian that still decides, memory that
does not grow with the rounds, and a chain that verifies at the end.
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

import httpx
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance.fuzz_traffic import POLICY, Talk, decide_something
from tests.unit.guardian.kit import KEYRING, TOOL_CALL, House, engine, house

from turnkeeper.acs import AcsErrorCode, CanonicalizationRejected, Disposition, SchemaViolation, sign_request, validator
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
MOST_FRAMES: Final = 4
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
        self.talks = [self._talk(proven=number % 2 == 0) for number in range(SESSIONS)]
        app = guardian_app(here.guardian, Door("http", KEYRING), max_body_bytes=MAX_BODY_BYTES, path="/acs")
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://guardian")

    async def begin(self) -> None:
        """Opens the sessions that hostile traffic will name."""
        for talk in self.talks:
            if not await talk.begin():
                self._problem("an honest hello was refused", b"")

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
                others = [self.body() for _ in range(self.random.randint(1, MOST_FRAMES))]
                await self._over_stdio([*others, body] if self.random.random() < 0.2 else others)
                if self.report.rounds % 50 == 0:
                    await self._honest()
                if self.report.rounds % 10 == 0:
                    decide_something(self.here, self.random)
                    self.here.clock.advance(self.random.randrange(20_000))
        except TimeoutError:
            self._problem("no answer in time", body)

    def body(self) -> bytes:
        """A body that somebody hostile might send."""
        choices: tuple[Mutation, ...] = (
            _honestly,
            _honestly,
            _cut,
            _flipped,
            _odd_member,
            _signed_oddly,
            _signed_oddly,
            _batch,
        )
        return self.random.choice(choices)(self, self.document())

    def document(self) -> dict[str, Any]:
        """An honest request of any hook, signed."""
        talk = self.random.choice(self.talks)
        ends = self.random.random() < 0.002
        method, payload = ("steps/sessionEnd", {"reason": "completed"}) if ends else talk.step()
        return orjson.loads(talk.agent.body(method, payload, request_id=talk.request_id(), turn_id=talk.turn_id()))

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

    async def _over_stdio(self, bodies: list[bytes]) -> None:
        reader, written = asyncio.StreamReader(limit=65_536), bytearray()
        stream = b"".join(render_frame(body) for body in bodies)
        broken = self.random.choice((_as_it_is, _as_it_is, _cut_short, _flipped_bytes))
        reader.feed_data(broken(self.random, stream))
        reader.feed_eof()
        body = b" ".join(bodies)

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
        talk = self._talk(proven=False)
        await talk.begin()
        if (await talk.agent.step("toolCallRequest", TOOL_CALL)).decision is not Disposition.ALLOW:
            self._problem("an honest step is no longer allowed", b"")
        # Sessions that hostile traffic has ended make room for new ones.
        fresh = self._talk(proven=self.random.random() < 0.5)
        await fresh.begin()
        self.talks[self.random.randrange(SESSIONS)] = fresh

    def _talk(self, *, proven: bool) -> Talk:
        return Talk(self.here.agent(), self.random, proven)

    def _judge(self, body: bytes, raw: bytes) -> None:
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError:
            self._problem("the answer is no JSON", body)
            return
        for one in cast("list[Any]", answer) if isinstance(answer, list) else [answer]:
            self._judge_one(body, one)

    def _judge_one(self, body: bytes, answer: dict[str, Any]) -> None:
        hello = "negotiated_version" in answer.get("result", {})
        try:
            validator("handshake/response" if hello else "response-envelope").check(answer)
        except SchemaViolation as violation:
            self._problem(f"the answer does not fit its schema: {violation.message}", body)
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


def _as_it_is(source: random.Random, stream: bytes) -> bytes:
    del source
    return stream


def _cut_short(source: random.Random, stream: bytes) -> bytes:
    return stream[: source.randrange(len(stream))]


def _flipped_bytes(source: random.Random, stream: bytes) -> bytes:
    changed = bytearray(stream)
    for _ in range(source.randint(1, 4)):
        changed[source.randrange(len(changed))] = source.randrange(256)
    return bytes(changed)


def _honestly(fuzzer: Fuzzer, document: dict[str, Any]) -> bytes:
    del fuzzer
    return orjson.dumps(document)


def _cut(fuzzer: Fuzzer, document: dict[str, Any]) -> bytes:
    body = orjson.dumps(document)
    return body[: fuzzer.random.randrange(len(body) + 1)]


def _flipped(fuzzer: Fuzzer, document: dict[str, Any]) -> bytes:
    return _flipped_bytes(fuzzer.random, orjson.dumps(document))


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


MUTATIONS: Final[tuple[Mutation, ...]] = (
    _honestly, _honestly, _cut, _flipped, _odd_member, _signed_oddly, _signed_oddly, _batch,
)  # fmt: skip


def resident_kib() -> int:
    """The largest memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def fuzz(folder: Path, *, seed: int, rounds: int | None = None, seconds: float | None = None) -> Report:
    """Fuzzes until the rounds are done or the time is over."""
    async with house(folder, policy=engine(POLICY)) as here:
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
