"""Questions about evidence: chains, seals, heads, signed answers, trust. The corpus's hashes are dummies.

A real session takes their place, hash for hash; what the question changes in it is changed, and our own verifier, our
own reader of answers or our own Guardian says what it finds.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from uuid import uuid4

import orjson
from tests.conformance.corpus.answers import (
    CHAIN_MISMATCH,
    SIGNATURE_INVALID,
    Question,
    Said,
    agreed,
    allowed,
    denied,
    unmeasurable,
)
from tests.conformance.corpus.guardian import KEY_ID, Play, played
from tests.unit.guardian.kit import MESSAGE, TOOL_CALL, Agent, engine

from turnkeeper.acs import AnswerRejected, Keyring, ObservedSession, link, sign_response
from turnkeeper.guardian.export import export_lines
from turnkeeper.guardian.provenance import TRUSTED, UNKNOWN, UNTRUSTED
from turnkeeper.guardian.verify import verify_export
from turnkeeper.store.chain_reader import SqliteChainReader

NOON: Final = "2026-09-09T12:00:00Z"
SYMMETRIC: Final = "symmetric"

_ORIGINS: Final[Mapping[str, str]] = {TRUSTED: "user_input", UNTRUSTED: "retrieved"}
_RANK: Final[Mapping[str, int]] = {UNTRUSTED: 0, UNKNOWN: 1, TRUSTED: 2}
_TELL_TRUST: Final = "version: 1\nname: trust\ndefault: allow\nrules:\n" + "".join(
    f'  - {{id: {level}, when: provenance.trust == "{level}", decision: allow, reason_codes: [is_{level}]}}\n'
    for level in _RANK
)

Line = dict[str, Any]


async def _recorded(play: Play, steps: int) -> tuple[Agent, list[Line]]:
    """A session of some steps and its end, and its export: the handshake's line first."""
    agent = play.agent({})
    await agent.hello()
    for _ in range(steps):
        await agent.step("toolCallRequest", TOOL_CALL)
    await agent.step("sessionEnd", {"reason": "completed"})
    with SqliteChainReader(play.here.path) as reader:
        return agent, [orjson.loads(line) for line in export_lines(reader, agent.session_id)]


def _relinked(line: Line, entry: Mapping[str, object], previous: str | None, agent: Agent) -> Line:
    """A line whose entry is another one, as whoever holds the key could have written it."""
    linked = link({name: entry[name] for name in entry if name not in ("entry_hash", "previous_hash")}, previous)
    result = line["response"]["result"] | {"chain_hash": linked["entry_hash"]}
    response = sign_response(line["response"] | {"result": result}, agent.session.key)
    return line | {"entry": linked, "response": response}


def _verified(lines: list[Line], agent: Agent, witnessed: frozenset[str] = frozenset()) -> list[str]:
    """What breaks the record."""
    report = verify_export(
        [orjson.dumps(line) + b"\n" for line in lines],
        agent.keyring,
        witnessed_heads={agent.session_id: witnessed} if witnessed else None,
    )
    return [] if report.intact else [found.code for found in report.findings]


def sealed(question: Question) -> Said:
    """A sessionEnd over some head, against the heads that the other party was shown."""
    shown = [str(head["chain_hash"]) for head in question["witnessed_heads"]]
    under = question["context_entry"].get("previous_hash")

    async def work(play: Play) -> Said:
        agent, lines = await _recorded(play, len(shown))
        _, *steps, seal = lines
        heads = [str(line["entry"]["entry_hash"]) for line in steps]
        kept = shown.index(under) + 1 if under in shown else 0
        previous = heads[kept - 1] if kept else None
        record = [*lines[: kept + 1], _relinked(seal, seal["entry"], previous, agent)]
        broken = _verified(record, agent, frozenset(heads))
        return denied(CHAIN_MISMATCH, ", ".join(broken)) if broken else allowed("the seal is over the last head")

    return played(work, engine(), at=NOON)


def entered(question: Question) -> Said:
    """An entry that has, or lacks, what the audit profile asks for."""
    has = "request_hash" in question["context_entry"]

    async def work(play: Play) -> Said:
        agent, (hello, step, _) = await _recorded(play, 1)
        entry = {name: value for name, value in step["entry"].items() if has or name != "request_hash"}
        broken = _verified([hello, _relinked(step, entry, None, agent)], agent)
        return denied(CHAIN_MISMATCH, ", ".join(broken)) if broken else allowed("the entry is what the request gives")

    return played(work, engine(), at=NOON)


def covered(question: Question) -> Said:
    """An answer some of whose members were added after it was signed."""
    inside = set(question["signature_covers"])
    loose = {"chain_hash"} - inside

    async def work(play: Play) -> Said:
        agent, lines = await _recorded(play, 1)
        response = lines[1]["response"]
        request_id = response["result"]["request_id"]
        part = {name: value for name, value in response["result"].items() if name not in loose}
        signature = cast("Line", sign_response(response | {"result": part}, agent.session.key))["result"]["signature"]
        sent = response | {"result": response["result"] | {"signature": signature}}
        rejected = _rejected(agent.session, sent, request_id)
        if rejected is None:
            return allowed("the head is inside what was signed")
        return denied(CHAIN_MISMATCH if loose else SIGNATURE_INVALID, rejected)

    return played(work, engine(), at=NOON)


def headed(question: Question) -> Said:
    """A signed head and who signed it, as far as this verifier knows its algorithm."""
    key, by = question["key_id_resolves_to"], str(question["signed_by"])
    algorithm = question["guardian_response"]["signature"]["algorithm"]
    presented = question.get("presented_as", {})

    async def work(play: Play) -> Said:
        agent, lines = await _recorded(play, 1)
        response = lines[1]["response"]
        request_id = response["result"]["request_id"]
        if key["class"] != SYMMETRIC:
            signature = response["result"]["signature"] | {"algorithm": algorithm}
            sent = response | {"result": response["result"] | {"signature": signature}}
            return denied(SIGNATURE_INVALID, f"acs-crypto is not claimed: {_rejected(agent.session, sent, request_id)}")
        if presented.get("audience") == "third_party":
            # Without the secret nothing can be verified, and with it the verifier could have signed it itself.
            broken = _verified(lines, Agent(play.here.guardian, play.here.clock, keyring=Keyring({KEY_ID: b"x" * 32})))
            return denied(None, f"to who has no secret: {', '.join(broken)}")
        if _rejected(agent.session, response, request_id) is not None:
            return denied(SIGNATURE_INVALID, "the head is not signed with the session's key")
        again = sign_response(response, agent.session.key)
        if by != "guardian" and again == response:
            return unmeasurable("both sides hold the key and make the same signature")
        return allowed("the head holds for who has the key")

    return played(work, engine(), at=NOON)


def _rejected(session: ObservedSession, document: Line, request_id: str) -> str | None:
    try:
        session.answer(orjson.dumps(document), request_id=request_id)
    except AnswerRejected as rejected:
        return rejected.message
    return None


def trusted(question: Question) -> Said:
    """The trust a record claims, against what our Guardian derives from the same sources."""
    record = question["record"]
    sources = {str(source["provenance_id"]): str(source["trust"]) for source in record["derived_from"]}

    async def work(play: Play) -> Said:
        agent = play.agent({})
        await agent.hello(claims={"provenance_producer": "deterministic"})
        for name, level in sources.items():
            origin = _ORIGINS.get(level, "agent_generated")
            await agent.step("userMessage", _said({"provenance_id": name, "origin": origin}))
        made = {"provenance_id": str(uuid4()), "origin": record["origin"], "derived_from": list(sources)}
        verdict = await agent.step("agentResponse", _said(made))
        (ours,) = [code.removeprefix("is_") for code in verdict.reason_codes if code.startswith("is_")]
        return agreed(same=_RANK[record["trust"]] <= _RANK[ours], why=f"derived trust: {ours}")

    return played(work, engine(_TELL_TRUST.encode()), at=NOON)


def _said(provenance: Mapping[str, object]) -> dict[str, object]:
    (part,) = cast("list[dict[str, object]]", MESSAGE["content"])
    return {"content": [part | {"provenance": dict(provenance)}]}
