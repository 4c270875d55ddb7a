"""Category vectors (enforcement and revocation): a gate's questions, put to whatever part of ours decides such a thing.

They are not about ACS: they tell an action, an authorization and a state. The state becomes a policy, a one-time
authorization an approval, freshness the window of a signed message, a principal the binding of a session, a mandate a
key's label. What none of these can express is unmeasurable here, and the claim says so.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from uuid import uuid4

import orjson
from tests.conformance.corpus.answers import Said, allowed, as_uuid, of_answer, unmeasurable
from tests.conformance.corpus.guardian import Play, played
from tests.unit.guardian.kit import Agent, engine

from turnkeeper.acs import Keyring, KeyUnknown, sign_request
from turnkeeper.clock import epoch_ms
from turnkeeper.guardian.approvals import ApprovalAnswer, Approver, approval_id_of
from turnkeeper.guardian.keyfolder import KeyFolder
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.store.guardian_desk import SqliteGuardianDesk

NOW: Final = "2026-08-19T09:00:00Z"
TOOL_CALL: Final = "steps/toolCallRequest"
VERDICTS: Final = {"allow": "PASS", "deny": "REJECT", "unmeasurable": "UNMEASURABLE"}
UNKNOWN: Final = frozenset(
    {
        "oracle_response",
        "authority_signed_at",
        "issued_at_claimed",
        "supersedes",
        "mandate_seq",
        "publication_interval_seconds",
        "revoked_at",
    }
)
"""Notions for which neither the standard nor Turnkeeper has a place."""

Case = Mapping[str, Any]


def judge(case: Case) -> Said:
    """What our parts make of a case."""
    given = case["input"]
    if named := UNKNOWN & _names(given):
        return unmeasurable(f"nothing of ours knows {', '.join(sorted(named))}")
    for where, member, put in _KINDS:
        if member in given[where]:
            return put(given["action"], given["authorization"], given["state"])
    return _ruled(given["action"], given["authorization"], given["state"])


def _names(node: Any) -> set[str]:
    if not isinstance(node, dict):
        return set()
    members = cast("dict[str, Any]", node)
    return set(members).union(*(_names(value) for value in members.values()))


def _payload(action: Case) -> dict[str, object]:
    arguments = {name: {"value": value} for name, value in action.items() if name != "type"}
    return {"tool": {"name": action["type"]}, "arguments": arguments}


def _ruled(action: Case, _: Case, state: Case) -> Said:
    """An action under the rules that a deployment with this state would have."""

    async def work(play: Play) -> Said:
        agent = await play.framed({})
        return of_answer(await play.send(agent.body(TOOL_CALL, _payload(action))))

    return played(work, _policy(action, state), at=NOW)


def _policy(action: Case, state: Case) -> PolicyEngine:
    about = state.get(action.get("target", ""), {})
    conditions = ["true"] if about.get("settled") or about.get("open") is False else []
    if "ceiling" in about:
        conditions.append(f"int(args.amount) > {about['ceiling']}")
    if "registry_ref" in action and set(action["registry_ref"].removeprefix("0x")) == {"0"}:
        conditions.append("true")
    if "bound_registry_ref" in about:
        conditions.append(f'args.registry_ref != "{about["bound_registry_ref"]}"')
    rules = "".join(
        f"  - {{id: r{number}, decision: deny, reasoning: The state disagrees., when: '{condition}',"
        " hooks: [toolCallRequest]}\n"
        for number, condition in enumerate(conditions)
    )
    head = "version: 1\nname: state\ndefault: allow\n"
    return engine(f"{head}rules:\n{rules}".encode() if rules else f"{head}rules: []\n".encode())


def _once(action: Case, authorization: Case, _: Case) -> Said:
    """A grant that is good for one step, used before or not."""
    asks = (
        "version: 1\nname: once\ndefault: allow\nrules:\n"
        "  - {id: ask, hooks: [toolCallRequest], decision: ask, reasoning: Somebody has to look.,"
        " ask: {question: 'May it?', timeout_seconds: 60, approver: {type: human, id: operators}}}\n"
    )

    async def work(play: Play) -> Said:
        agent, asked_id = await play.framed({}), str(uuid4())
        await play.send(agent.body(TOOL_CALL, _payload(action), request_id=asked_id))
        approver = Approver("key", "operators", "human", frozenset({"operators"}))
        SqliteGuardianDesk(play.here.path).decide(
            approval_id_of(agent.session_id, asked_id),
            ApprovalAnswer("approve"),
            approver,
            epoch_ms(play.here.clock.now()),
        )
        again = _payload(action) | {"request_id_ref": asked_id}
        if authorization["consumed"]:
            await play.send(agent.body(TOOL_CALL, again))
        return of_answer(await play.send(agent.body(TOOL_CALL, again)))

    return played(work, engine(asks.encode()), at=NOW)


def _other_session(action: Case, _: Case, __: Case) -> Said:
    """A step signed with the key of the session before."""

    async def work(play: Play) -> Said:
        agent = await play.framed({"metadata": {"session_id": "now"}})
        before = play.keyring.session_key(agent.key_id, as_uuid("before"))
        document = orjson.loads(agent.body(TOOL_CALL, _payload(action)))
        return of_answer(await play.send(orjson.dumps(sign_request(document, before))))

    return played(work, engine(), at=NOW)


def _aged(action: Case, authorization: Case, state: Case) -> Said:
    """A signed message of some age, in a window of some width."""
    window_ms = int(authorization["freshness_bound_seconds"]) * 1_000

    async def work(play: Play) -> Said:
        agent = await play.framed({})
        written = str(authorization["decision_written_at"])
        return of_answer(await play.send(agent.body(TOOL_CALL, _payload(action), timestamp=written)))

    return played(work, engine(), at=str(state["now"]), settings=GuardianSettings(skew_window_ms=window_ms))


def _for_another_agent(action: Case, authorization: Case, _: Case) -> Said:
    return _bound(action, bound=("agent_id", authorization["decision_for"]), comes=action["actor"])


def _on_another_device(action: Case, authorization: Case, _: Case) -> Said:
    return _bound(action, bound=("key_id", action["required_signer"]), comes=authorization["connected_device_derives"])


def _bound(action: Case, *, bound: tuple[str, str], comes: str) -> Said:
    """A session that belongs to one principal, and whoever comes."""
    member, owner = bound
    secret = b"device" * 8
    keyring = Keyring(dict.fromkeys({"k1", owner, comes}, secret)) if member == "key_id" else None

    async def work(play: Play) -> Said:
        agent = Agent(play.here.guardian, play.here.clock, keyring=play.keyring, door=play.door, key_id="k1")
        setattr(agent, member, owner)
        await agent.hello()
        setattr(agent, member, comes)
        return of_answer(await play.send(agent.body(TOOL_CALL, _payload(action))))

    return played(work, engine(), at=NOW, keyring=keyring)


class _Files:
    """Key files as a registry leaves them: a revoked label has none."""

    def __init__(self, label: str, registry: Case) -> None:
        self._there = label not in registry.get("revoked", ())
        self._readable = bool(registry["reachable"])

    def stamp(self, label: str) -> object | None:
        """Something, where there is a file."""
        return label if self._there or not self._readable else None

    def read(self, label: str) -> bytes:
        """A secret, where it can be read."""
        if not self._readable:
            raise OSError(label)
        return b"mandate!" * 4


def _revoked(_: Case, authorization: Case, state: Case) -> Said:
    """A mandate as the label of a key that may have been taken away."""
    mandate, registry = authorization["mandate_id"], state["revocation_registry"]
    try:
        KeyFolder(_Files(mandate, registry)).session_key(mandate, as_uuid("session"))
    except KeyUnknown as unknown:
        if not registry["reachable"]:
            return unmeasurable("the key could not be read, so it opens nothing and nobody knows whether it might")
        return Said("deny", "SIGNATURE_INVALID", unknown.message)
    return allowed("the label's key is there")


_KINDS: Final = (
    ("state", "revocation_registry", _revoked),
    ("authorization", "one_time_id", _once),
    ("authorization", "session_secret", _other_session),
    ("authorization", "decision_written_at", _aged),
    ("authorization", "decision_for", _for_another_agent),
    ("authorization", "connected_device_derives", _on_another_device),
)
