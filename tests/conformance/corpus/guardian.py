"""Questions that the Guardian answers itself: they are sent to a real one over SQLite, signed, at the time they name.

What the corpus calls a request is no envelope of the standard. It becomes one: the method gets its namespace, bare
arguments their values, ids that are no UUIDs stand-ins, and a signature state a signature that has it.
"""

import asyncio
import base64
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from uuid import uuid4

import orjson
from tests.conformance.corpus.answers import Question, Said, allowed, as_uuid, of_answer
from tests.unit.guardian.kit import Agent, House, house

from turnkeeper.acs import Keyring, parse_timestamp, sign_request
from turnkeeper.clock import render_time
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.testing.fake_clock import FakeClock

Result = TypeVar("Result")

AGENT: Final = "agent"
KEY_ID: Final = "k1"
SECRET: Final = b"corpus" * 8
TURN_START: Final = "steps/turnStart"
SESSION_START: Final = "steps/sessionStart"
HELLO: Final = "handshake/hello"


@dataclass
class Play:
    """A running Guardian and the agents that have spoken to it, by agent, session and key."""

    here: House
    keyring: Keyring
    greeted: dict[tuple[str, str, str], Agent] = field(default_factory=dict[tuple[str, str, str], Agent])

    @property
    def door(self) -> Door:
        """The way in, with the labels of the question."""
        return Door("in_process", self.keyring)

    def agent(self, request: Mapping[str, Any], key_id: str = KEY_ID) -> Agent:
        """Whoever sends a request."""
        metadata = request.get("metadata", {})
        who = str(metadata.get("agent_id", AGENT))
        session_id = as_uuid(str(metadata.get("session_id", "")))
        known = self.greeted.get((who, session_id, key_id))
        return known or Agent(self.here.guardian, self.here.clock, who, key_id, self.keyring, self.door, session_id)

    async def framed(self, request: Mapping[str, Any], intent: Mapping[str, Any] | None = None) -> Agent:
        """Whoever sends a request, in a session and a turn that have begun."""
        agent = self.agent(request)
        if (agent.agent_id, agent.session_id, agent.key_id) in self.greeted:
            return agent
        self.greeted[agent.agent_id, agent.session_id, agent.key_id] = agent
        await agent.hello()
        await agent.post(agent.body(SESSION_START, {} if intent is None else {"intent": stated(intent)}))
        turn_id = request.get("metadata", {}).get("turn_id")
        if turn_id is not None:
            start = {"turn_id": turn_id, "triggered_by": "user_message"}
            await agent.post(agent.body(TURN_START, start, turn_id=turn_id))
        return agent

    async def send(self, body: bytes) -> dict[str, Any]:
        """Any bytes and what is answered to them."""
        return cast("dict[str, Any]", orjson.loads(await self.here.guardian.answer(body, self.door)))


@asynccontextmanager
async def playing(
    policy: PolicyEngine, *, clock: FakeClock, settings: GuardianSettings, keyring: Keyring | None = None
) -> AsyncGenerator[Play, None]:
    """A Guardian of the question's own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="turnkeeper-corpus-") as folder:
        async with house(Path(folder), policy=policy, settings=settings, clock=clock) as here:
            yield Play(here, keyring or Keyring({KEY_ID: SECRET}))


def played(
    work: Callable[[Play], Awaitable[Result]],
    policy: PolicyEngine,
    *,
    at: str,
    skew_window_ms: int | None = None,
    settings: GuardianSettings | None = None,
    keyring: Keyring | None = None,
) -> Result:
    """Runs some work against a Guardian whose clock stands at `at`."""
    chosen = settings or (
        GuardianSettings() if skew_window_ms is None else GuardianSettings(skew_window_ms=skew_window_ms)
    )
    clock = FakeClock(parse_timestamp(at))

    async def main() -> Result:
        async with playing(policy, clock=clock, settings=chosen, keyring=keyring) as play:
            return await work(play)

    return asyncio.run(main())


def played_steps(question: Question, policy: PolicyEngine, settings: GuardianSettings | None = None) -> Said:
    """Every step of a question in its order; the first that is refused decides."""
    steps = cast("list[dict[str, Any]]", question.get("steps") or [question])

    async def work(play: Play) -> Said:
        said = allowed("nothing was asked")
        for step in steps:
            said = await _one_step(play, question, {**question, **step})
            if said.verdict != "allow":
                return said
        return said

    at = str(question.get("guardian_clock") or steps[0]["request"]["timestamp"])
    return played(work, policy, at=at, skew_window_ms=question.get("skew_window_ms"), settings=settings)


async def _one_step(play: Play, question: Question, step: Question) -> Said:
    request = cast("dict[str, Any]", step["request"])
    if request["method"] == HELLO:
        agent = play.agent(request)
        play.greeted[agent.agent_id, agent.session_id, agent.key_id] = agent
    else:
        agent = await play.framed(request, question.get("intent"))
        await _observed(agent, step.get("observed_content"))
    # The corpus repeats one envelope for several calls of a budget; a client sends each under an id of its own.
    fresh = "budget" in question.get("policy", {})
    document = envelope(request, agent, request_id=str(uuid4()) if fresh else None)
    return of_answer(await play.send(signed(document, agent, step)))


async def _observed(agent: Agent, content: Mapping[str, Any] | None) -> None:
    """What the agent has read before its step, as the step it was."""
    if content is None:
        return
    provenance = {name: content[name] for name in ("origin", "source_id", "trust") if name in content}
    found = {
        "value": content["text"],
        "source_id": content.get("source_id", "source"),
        "score": 1,
        "provenance": {"provenance_id": "observed", **provenance},
    }
    await agent.post(agent.body("steps/knowledgeRetrieval", {"query": {"value": "q"}, "results": [found]}))


def envelope(request: Mapping[str, Any], agent: Agent, *, request_id: str | None = None) -> dict[str, Any]:
    """A request of the corpus as one of the standard, not signed yet."""
    metadata = dict(request.get("metadata", {}))
    body = agent.session.request(
        str(request["method"]).replace("hooks/", "steps/"),
        payload_of(request),
        request_id=request_id or as_uuid(str(request["request_id"])),
        timestamp=str(request.get("timestamp") or render_time(agent.clock.now())),
        nonce=str(uuid4()),
        turn_id=metadata.pop("turn_id", None),
        metadata={name: value for name, value in metadata.items() if name not in ("agent_id", "session_id")},
    )
    document = cast("dict[str, Any]", orjson.loads(body))
    document["params"]["acs_version"] = version_of(str(request.get("acs", "0.1.0")))
    del document["params"]["signature"]
    return document


def payload_of(request: Mapping[str, Any]) -> dict[str, object]:
    """What the step is about."""
    params = cast("dict[str, Any]", request["params"])
    if request["method"] == HELLO:
        return dict(params)
    tool = params["tool"]
    return {
        "tool": {"name": tool["name"]},
        "arguments": {name: {"value": value} for name, value in tool.get("arguments", {}).items()},
    }


def version_of(text: str) -> str:
    """A version with its three numbers."""
    return ".".join((*text.split("."), "0", "0")[:3])


def signed(document: dict[str, Any], agent: Agent, step: Question) -> bytes:
    """The request with a signature in the state that the question names."""
    state = step.get("signature_state", "VALID")
    if state == "ABSENT":
        return orjson.dumps(document)
    if state == "COVERS_SUBSET":
        part = without(document, [str(name) for name in step.get("signed_fields_omitted", ())])
        document["params"]["signature"] = sign_request(part, agent.session.key)["params"]["signature"]  # type: ignore[index]
        return orjson.dumps(document)
    whole = cast("dict[str, Any]", sign_request(document, agent.session.key))
    if state != "VALID":
        value = base64.b64decode(whole["params"]["signature"]["value"])
        whole["params"]["signature"]["value"] = base64.b64encode(bytes(255 - byte for byte in value)).decode()
    return orjson.dumps(whole)


def without(document: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """A copy in which some members of params, named by dotted paths, are missing."""
    copy = cast("dict[str, Any]", orjson.loads(orjson.dumps(document)))
    for path in paths:
        *parents, last = path.split(".")
        node = copy["params"]
        for parent in parents:
            node = node.get(parent, {})
        node.pop(last, None)
    return copy


def stated(intent: Mapping[str, Any]) -> dict[str, object]:
    """An intent whose capabilities have their members; the corpus names tools alone."""
    parsed: list[object] = [{"tool": one} if isinstance(one, str) else one for one in intent.get("parsed", [])]
    provenance = {"provenance_id": "intent", **intent.get("parser_provenance", {})}
    return {**intent, "parsed": parsed, "parser_provenance": provenance}
