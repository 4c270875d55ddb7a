"""A policy's own tests: facts in, the decision that is expected out.

Answers for cases that can fail: an unknown fact, rule or member is refused, and a case that expects nothing is too.
Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeVar

from turnkeeper.acs import METHODS, Decision, Disposition, RequestEnvelope, hook_spec
from turnkeeper.policy.document import load_document, mapping, one_of, optional_text, rejected, sequence, texts
from turnkeeper.policy.facts import ApprovalFacts, Facts, ProvenanceFacts, SessionFacts, TurnFacts
from turnkeeper.policy.intent import Capability, IntentFacts

MAX_CASES: Final = 2_000
MAX_NAME_CHARACTERS: Final = 200
TEST_SESSION: Final = "test-session"

_CASE_KEYS = frozenset({"name", "facts", "expect"})
_EXPECT_KEYS = frozenset({"decision", "rules", "reason_codes"})
_FACT_KEYS = frozenset(
    {
        "hook",
        "payload",
        "tool",
        "provider",
        "operation",
        "capability",
        "args",
        "turn",
        "session",
        "provenance",
        "intent",
        "approval",
        "agent",
        "environment",
    }
)
P = TypeVar("P", TurnFacts, SessionFacts, ProvenanceFacts, ApprovalFacts)


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One test. `rules` and `reason_codes` are None where the case does not say."""

    name: str
    file: str
    facts: Facts
    decision: Disposition
    rules: frozenset[str] | None = None
    reason_codes: frozenset[str] | None = None

    def problem(self, decision: Decision) -> str | None:
        """What is wrong with a decision; None where it is the expected one."""
        cited = frozenset(found.rule_id for found in decision.policy_references if found.rule_id is not None)
        codes = frozenset(decision.reason_codes)
        if decision.disposition is not self.decision:
            by = f" by {', '.join(sorted(cited))}" if cited else ""
            return f"expected {self.decision}, got {decision.disposition}{by} {sorted(codes)}"
        if self.rules is not None and cited != self.rules:
            return f"expected rules {sorted(self.rules)}, got {sorted(cited)}"
        if self.reason_codes is not None and codes != self.reason_codes:
            return f"expected reason codes {sorted(self.reason_codes)}, got {sorted(codes)}"
        return None


def parse_cases(content: bytes, file: str, rule_ids: frozenset[str] | None = None) -> tuple[PolicyCase, ...]:
    """The cases of one file. A case may cite the rules of `rule_ids`, where given. Raises `PolicyRejected`."""
    document = mapping(load_document(content, file), file, frozenset({"tests"}), required=("tests",))
    items = sequence(document["tests"], f"{file}: tests")
    if not 0 < len(items) <= MAX_CASES:
        raise rejected(f"{file}: tests", f"must hold from 1 to {MAX_CASES} tests")
    return tuple(_case(item, file, f"{file}: tests[{index}]", rule_ids) for index, item in enumerate(items))


def read_facts(value: object, path: str) -> Facts:
    """Facts as a test writes them; what is left out is as at the first step of a session. Raises `PolicyRejected`."""
    members = mapping(value, path, _FACT_KEYS, required=("hook",))
    hook = optional_text(members, "hook", path, MAX_NAME_CHARACTERS) or ""
    method = f"steps/{hook}" if f"steps/{hook}" in METHODS else hook
    if hook_spec(method) is None:
        raise rejected(f"{path}.hook", f"{hook!r} is not a hook")
    return Facts(
        method=method,
        step_id="test-step",
        payload=_payload(members, path),
        agent_id=_text(members, "agent", path) or "test-agent",
        session=_part(SessionFacts(TEST_SESSION, steps=1), members, "session", path),
        turn=_part(TurnFacts(), members, "turn", path),
        environment=_text(members, "environment", path),
        provenance=_part(ProvenanceFacts(), members, "provenance", path),
        intent=_intent(members, path),
        approval=_part(ApprovalFacts(), members, "approval", path),
    )


def facts_of_request(document: object, overlay: Mapping[str, object] | None = None) -> Facts:
    """The facts of one request as if it were the first of its session, with parts of `overlay` in place of its own.

    `document` has passed the request's schema. Raises `EnvelopeMalformed`, `PolicyRejected`.
    """
    envelope = RequestEnvelope.of(document)
    environment = envelope.metadata.get("environment")
    calls = int(envelope.method == "steps/toolCallRequest")
    given = mapping(dict(overlay or {}), "facts", frozenset({"turn", "session", "provenance", "intent", "approval"}))
    turn = TurnFacts(envelope.turn_id or "", open=envelope.turn_id is not None, steps=1, tool_calls=calls)
    return Facts(
        method=envelope.method,
        step_id=envelope.request_id,
        payload=envelope.payload,
        agent_id=envelope.agent_id,
        session=_part(SessionFacts(envelope.session_id, steps=1, tool_calls=calls), given, "session", "facts"),
        turn=_part(turn, given, "turn", "facts"),
        environment=environment if isinstance(environment, str) else "",
        provenance=_part(ProvenanceFacts(), given, "provenance", "facts"),
        intent=_intent(given, "facts"),
        approval=_part(ApprovalFacts(), given, "approval", "facts"),
    )


def _case(value: object, file: str, path: str, rule_ids: frozenset[str] | None) -> PolicyCase:
    members = mapping(value, path, _CASE_KEYS, required=("name", "facts", "expect"))
    expect = mapping(members["expect"], f"{path}.expect", _EXPECT_KEYS, required=("decision",))
    rules = frozenset(texts(expect, "rules", f"{path}.expect")) if "rules" in expect else None
    if rules is not None and rule_ids is not None and (unknown := sorted(rules - rule_ids)):
        raise rejected(f"{path}.expect.rules", f"names {', '.join(unknown)}, which the policy does not have")
    return PolicyCase(
        name=optional_text(members, "name", path, MAX_NAME_CHARACTERS) or "",
        file=file,
        facts=read_facts(members["facts"], f"{path}.facts"),
        decision=Disposition(one_of(expect["decision"], f"{path}.expect.decision", tuple(Disposition))),
        rules=rules,
        reason_codes=frozenset(texts(expect, "reason_codes", f"{path}.expect")) if "reason_codes" in expect else None,
    )


def _payload(members: Mapping[str, object], path: str) -> Mapping[str, object]:
    if "payload" in members:
        if shorthand := sorted({"tool", "provider", "operation", "capability", "args"} & set(members)):
            raise rejected(f"{path}.payload", f"is the whole of it; leave out {', '.join(shorthand)}")
        return mapping(members["payload"], f"{path}.payload", None)
    payload: dict[str, object] = {}
    if "tool" in members:
        provider = _text(members, "provider", path)
        payload["tool"] = {"name": _text(members, "tool", path), **({"provider": provider} if provider else {})}
    for name in ("operation", "capability"):
        if name in members:
            payload[name] = _text(members, name, path)
    if "args" in members:
        arguments = mapping(members["args"], f"{path}.args", None)
        payload["arguments"] = {name: {"value": value} for name, value in arguments.items()}
    return payload


def _part(default: P, members: Mapping[str, object], name: str, path: str) -> P:
    """A part of the facts with what the mapping says of it, each member of the type that it has."""
    place = f"{path}.{name}"
    values: dict[str, object] = {member.name: getattr(default, member.name) for member in fields(default)}
    given = mapping(members.get(name, {}), place, frozenset(values))
    for member, value in given.items():
        wanted = type(values[member])
        if wanted is tuple:
            values[member] = texts(given, member, place)
        elif type(value) is not wanted:
            raise rejected(f"{place}.{member}", f"must be of type {wanted.__name__}")
        else:
            values[member] = value
    return type(default)(**values)  # pyright: ignore[reportArgumentType]  each has the type of its default


def _intent(members: Mapping[str, object], path: str) -> IntentFacts:
    place = f"{path}.intent"
    given = mapping(members.get("intent", {}), place, frozenset({"raw", "capabilities", "scope_mode"}))
    capabilities: list[Capability] = []
    for index, item in enumerate(sequence(given.get("capabilities", []), f"{place}.capabilities")):
        at = f"{place}.capabilities[{index}]"
        one = mapping(item, at, frozenset({"tool", "operation", "resource"}))
        capabilities.append(Capability(_text(one, "tool", at), _text(one, "operation", at), _text(one, "resource", at)))
    return IntentFacts(_text(given, "raw", place), tuple(capabilities), _text(given, "scope_mode", place))


def _text(members: Mapping[str, object], name: str, path: str) -> str:
    value = members.get(name, "")
    if not isinstance(value, str):
        raise rejected(f"{path}.{name}", "must be a text")
    return value


def failing(cases: Sequence[PolicyCase], decisions: Sequence[Decision]) -> list[tuple[PolicyCase, str]]:
    """The cases whose decision is another than the expected one, each with what is wrong."""
    paired = zip(cases, decisions, strict=True)
    return [(case, problem) for case, decision in paired if (problem := case.problem(decision))]
