"""Cedar policies, evaluated in a process of their own.

Answers for a step as Cedar's request (`Agent::"id"` does `Action::"toolCallRequest"` to `Tool::"shell"`, the facts as
context) and for its answer as a decision. Must never let a value of the agent's become an entity or a call in Cedar,
nor accept an answer beside which a policy failed: a `forbid` that fails is silent, and silence would permit. Pure.
"""

from collections.abc import Mapping
from typing import Final, TypeGuard, cast

from turnkeeper.acs import Decision, Disposition, PolicyReference
from turnkeeper.policy.composition import quote
from turnkeeper.policy.facts import Facts
from turnkeeper.policy.hosted import (
    AGENT_LAYER_UNAVAILABLE,
    ENGINE_ANSWER_INVALID,
    ENGINE_FAILED,
    FACTS_NOT_EXPRESSIBLE,
    EngineLink,
    EngineUnavailable,
    unanswered,
)
from turnkeeper.policy.settings import HostedSettings

CEDAR: Final = "cedar"
CEDAR_DENIED: Final = "policy_denied"
NO_PERMIT: Final = "no_rule_allows"
HOST_MODULE: Final = "turnkeeper.policy.engines.cedar_host"

MAX_DEPTH: Final = 32

_INT64 = range(-(2**63), 2**63)
_NO_PERMIT = "No policy permits this step."
_FORBIDDEN = "A policy forbids this step."
# Cedar reads members of these names in JSON as calls and references.
_RESERVED = "__"
_CONTEXT = ("args", "turn", "session", "environment", "provenance", "intent", "approval")


class NotExpressible(Exception):
    """Facts that Cedar has no values for."""


class CedarEngine:
    """The Cedar policies of a bundle at the end of a link."""

    name = CEDAR

    def __init__(self, reference: PolicyReference, settings: HostedSettings, link: EngineLink) -> None:
        self._reference = reference
        self._settings = settings
        self._link = link

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        return self._reference

    def concerns(self, facts: Facts) -> bool:
        """Whether the policy asks Cedar about this hook."""
        return self._settings.concern(facts.hook)

    async def evaluate(self, facts: Facts) -> Decision:
        """Cedar's word on one step. Raises `EngineUnavailable`, also for facts that Cedar has no values for."""
        try:
            question = cedar_request(facts)
        except NotExpressible as problem:
            raise EngineUnavailable(f"Cedar cannot be asked: {problem}", code=FACTS_NOT_EXPRESSIBLE) from problem
        return self._read(await self._link.ask(question))

    async def close(self) -> None:
        """Ends Cedar's process."""
        await self._link.stop()

    def _read(self, answer: Mapping[str, object]) -> Decision:
        if "fault" in answer:
            raise EngineUnavailable(f"Cedar failed: {answer['fault']}", code=ENGINE_FAILED)
        decided, errors, found = answer.get("decision"), answer.get("errors"), answer.get("policies")
        if type(errors) is int and errors > 0:
            # What a `forbid` that failed would have said is not known.
            return unanswered(self._reference)
        if decided not in ("allow", "deny") or type(errors) is not int or not _are_notes(found):
            raise EngineUnavailable("Cedar's answer is none", code=ENGINE_ANSWER_INVALID)
        references = tuple(self._cited(one["id"]) for one in found) or (self._reference,)
        if decided == "allow" and any("delegate_to" in one for one in found):
            raise EngineUnavailable("a policy delegates, and nobody is there to decide", code=AGENT_LAYER_UNAVAILABLE)
        if decided == "allow":
            return Decision(Disposition.ALLOW, policy_references=references)
        if not found:
            return Decision(Disposition.DENY, _NO_PERMIT, (NO_PERMIT,), references)
        codes = tuple(dict.fromkeys(one.get("reason_code") or CEDAR_DENIED for one in found))
        reasoning = quote(one.get("reasoning") or _FORBIDDEN for one in found)
        return Decision(Disposition.DENY, reasoning, codes, references)

    def _cited(self, policy: str) -> PolicyReference:
        return PolicyReference(
            policy_id=self._reference.policy_id,
            policy_version=self._reference.policy_version,
            policy_name=CEDAR,
            rule_id=policy,
        )


def _are_notes(value: object) -> TypeGuard[list[Mapping[str, str]]]:
    return isinstance(value, list) and all(_is_note(one) for one in cast("list[object]", value))


def _is_note(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    note = cast("dict[object, object]", value)
    return "id" in note and all(isinstance(text, str) for text in (*note, *note.values()))


def cedar_request(facts: Facts) -> dict[str, object]:
    """The question in the members of a Cedar request. Raises `NotExpressible`."""
    variables = facts.to_variables()
    context = {name: cedar_value(variables[name]) for name in _CONTEXT}
    tool = facts.tool_name
    resource = {"type": "Step", "id": facts.hook} if tool is None else {"type": "Tool", "id": tool}
    return {
        "principal": {"type": "Agent", "id": facts.agent_id},
        "action": {"type": "Action", "id": facts.hook},
        "resource": resource,
        "context": context,
    }


def cedar_value(value: object, depth: int = 0) -> object:
    """A JSON value as Cedar has it: null is left out, what is no 64-bit integer is text. Raises `NotExpressible`."""
    if depth > MAX_DEPTH:
        raise NotExpressible("nested too deeply")
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value if value in _INT64 else str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        if any(name.startswith(_RESERVED) for name in members):
            raise NotExpressible(f"a member's name begins with {_RESERVED}")
        return {name: cedar_value(one, depth + 1) for name, one in members.items() if one is not None}
    if isinstance(value, (list, tuple)):
        return [cedar_value(one, depth + 1) for one in cast("list[object]", value) if one is not None]
    raise NotExpressible(f"a value of type {type(value).__name__}")
