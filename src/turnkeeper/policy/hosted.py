"""Engines that live in a process of their own: what they are asked, and how their word joins the built-in rules'.

Answers for the port that Cedar uses and Rego or OPA can: a step that such an engine has a say in is `Unheard`; whoever
decides it awaits `hear` *before* the Guardian's synchronous step, on facts that are compared again inside it. What was
heard about other facts counts as nothing. Must never wait without a deadline, nor read silence, an error or a malformed
answer as anything but DENY. I/O is handed in. The choice: docs/decisions/0006; the port: docs/reference/engines.md.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from turnkeeper.acs import Decision, Disposition, PolicyReference
from turnkeeper.errors import TurnkeeperError
from turnkeeper.policy.composition import EVALUATION_FAILED, PRECEDENCE, granted, quote, with_details
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.facts import Facts

BUILT_IN: Final = "rules"

ENGINE_UNAVAILABLE: Final = "engine_unavailable"
ENGINE_TIMEOUT: Final = "engine_timeout"
ENGINE_OVERLOADED: Final = "engine_overloaded"
ENGINE_ANSWER_INVALID: Final = "engine_answer_invalid"
ENGINE_FAILED: Final = "engine_failed"
AGENT_LAYER_UNAVAILABLE: Final = "agent_layer_unavailable"
FACTS_NOT_EXPRESSIBLE: Final = "facts_not_expressible"
FACTS_CHANGED: Final = "facts_changed"

_NO_ANSWER = "An engine of the policy gave no answer for this step, so it is denied."
_CHANGED = "The session changed whenever an engine of the policy was asked about this step, so it is denied."

_log = structlog.get_logger(__name__)


class EngineUnavailable(TurnkeeperError):
    """An engine gave no usable word on a step; `error_code` is the reason code that says why."""

    code = ENGINE_UNAVAILABLE


class Unheard(Exception):
    """A step that hosted engines have to be asked about first. What `hear` returns evaluates in the engine's place."""

    def __init__(self, engine: "ComposedEngine", facts: Facts) -> None:
        super().__init__(facts.hook)
        self.engine = engine
        self.facts = facts

    async def hear(self, *, final: bool = False) -> "Hearing":
        """What the engines say. A `final` hearing denies a step whose facts are others by then."""
        return await self.engine.hear(self.facts, final=final)


class HostedEngine(Protocol):
    """An engine that is asked over a wire. Named as its paradigm is in `policy_data`."""

    @property
    def name(self) -> str:
        """`cedar`, `rego`, ..."""
        ...

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        ...

    def concerns(self, facts: Facts) -> bool:
        """Whether this engine has a say in a step. The same for the same facts, and at once."""
        ...

    async def evaluate(self, facts: Facts) -> Decision:
        """The engine's word on one step, within its own deadline. Raises `EngineUnavailable` where it has none."""
        ...

    async def close(self) -> None:
        """Gives back what the engine holds; idempotent. Nobody asks it any more."""
        ...


class EngineLink(Protocol):
    """The wire to one engine's process."""

    async def ask(self, question: Mapping[str, object]) -> Mapping[str, object]:
        """The answer to a question, within the link's deadline. Raises `EngineUnavailable`."""
        ...

    async def stop(self) -> None:
        """Ends the process; idempotent."""
        ...


class ComposedEngine:
    """The built-in rules and hosted engines as one policy. The strictest word holds, and every engine is cited."""

    def __init__(self, built_in: PolicyEngine, hosted: Sequence[HostedEngine]) -> None:
        self.built_in = built_in
        self._hosted = tuple(hosted)
        self._holders = 0
        self._when_unused: Callable[[], None] | None = None

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        return self.built_in.reference

    def needs_hearing(self, facts: Facts) -> bool:
        """Whether a hosted engine has to be asked before the step can be decided."""
        return any(engine.concerns(facts) for engine in self._hosted)

    async def hear(self, facts: Facts, *, final: bool = False) -> "Hearing":
        """Asks every hosted engine that is concerned, one after another. Raises nothing that an engine does."""
        said = [(engine.name, await _word(engine, facts)) for engine in self._hosted if engine.concerns(facts)]
        return Hearing(self, facts, tuple(said), final)

    def evaluate(self, facts: Facts) -> Decision:
        """The policy's word on one step. Raises `Unheard` where a hosted engine is concerned."""
        if self.needs_hearing(facts):
            raise Unheard(self, facts)
        return self.built_in.evaluate(facts)

    @contextmanager
    def held(self) -> Generator[None]:
        """Keeps the engines open for a step that is being decided, also once the policy is replaced."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if self._holders == 0 and self._when_unused is not None:
                self._when_unused()

    def retire(self, when_unused: Callable[[], None]) -> None:
        """Calls back as soon as no step holds the engines, for whoever closes them then."""
        self._when_unused = when_unused
        if self._holders == 0:
            when_unused()

    async def close(self) -> None:
        """Closes the engines; idempotent."""
        for engine in self._hosted:
            await engine.close()


@dataclass(frozen=True, slots=True)
class Hearing:
    """What the hosted engines of `engine` said about certain facts: the policy, as far as these go.

    INVARIANT: about other facts it never decides anything but DENY.
    """

    engine: ComposedEngine
    facts: Facts
    said: tuple[tuple[str, Decision], ...]
    final: bool = False

    @property
    def reference(self) -> PolicyReference:
        """The policy as decisions cite it, without a rule."""
        return self.engine.reference

    def evaluate(self, facts: Facts) -> Decision:
        """The policy's word on one step. Raises `Unheard` for facts that have changed, or denies them if `final`."""
        if facts == self.facts:
            built_in = self.engine.built_in.evaluate(facts)
            return compose_decisions([(BUILT_IN, built_in), *self.said], approved=facts.approval.granted)
        if not self.final:
            raise Unheard(self.engine, facts)
        return Decision(Disposition.DENY, _CHANGED, (EVALUATION_FAILED, FACTS_CHANGED), (self.reference,))


async def decide(engine: PolicyEngine, facts: Facts) -> Decision:
    """A policy's word on one step that stands outside any session, its hosted engines heard."""
    try:
        return engine.evaluate(facts)
    except Unheard as unheard:
        return (await unheard.hear(final=True)).evaluate(facts)


async def _word(engine: HostedEngine, facts: Facts) -> Decision:
    """One engine's word; DENY for whatever goes wrong."""
    try:
        decision = await engine.evaluate(facts)
        if isinstance(decision, Decision):
            return decision
        code, problem = ENGINE_FAILED, f"it said {type(decision).__name__}"
    except EngineUnavailable as unavailable:
        code, problem = unavailable.error_code, unavailable.message
    except Exception:  # noqa: BLE001  one engine call
        _log.exception("policy_engine_failed", engine=engine.name, session_id=facts.session.id, step_id=facts.step_id)
        return unanswered(engine.reference, ENGINE_FAILED)
    _log.error(
        "policy_engine_gave_no_decision",
        engine=engine.name,
        session_id=facts.session.id,
        step_id=facts.step_id,
        problem=problem,
    )
    return unanswered(engine.reference, code)


def compose_decisions(said: Sequence[tuple[str, Decision]], *, approved: bool = False) -> Decision:
    """What several engines say as one decision, whatever their order; `policy_data` is keyed by engine."""
    effective = [(name, granted(decision) if approved else decision) for name, decision in said]
    strictest = min((decision.disposition for _, decision in effective), key=PRECEDENCE.index)
    leading = [decision for _, decision in effective if decision.disposition is strictest]
    references = tuple(dict.fromkeys(found for _, decision in effective for found in decision.policy_references))
    codes = tuple(dict.fromkeys(code for decision in leading for code in decision.reason_codes))
    composed = with_details(
        strictest,
        [_details(decision) for decision in leading],
        reasoning=quote(decision.reasoning for decision in leading) or None,
        reason_codes=codes,
        references=references,
    )
    return replace(
        composed,
        policy_data={name: _data(decision) for name, decision in effective},
        cited_provenance_ids=tuple(dict.fromkeys(one for _, said in effective for one in said.cited_provenance_ids)),
    )


def unanswered(reference: PolicyReference, *codes: str) -> Decision:
    """The word of an engine that gave none; `codes` say why."""
    return Decision(Disposition.DENY, _NO_ANSWER, (EVALUATION_FAILED, *codes), (reference,))


def _details(decision: Decision) -> Mapping[str, object]:
    """What the disposition carries; a question may stand beside a change that is to be made once it is answered."""
    by_disposition = {
        Disposition.MODIFY: decision.modifications,
        Disposition.ASK: decision.ask_details,
        Disposition.DEFER: decision.defer_details,
    }
    return by_disposition.get(decision.disposition) or {}


def _data(decision: Decision) -> dict[str, object]:
    return {**(decision.policy_data or {}), "decision": decision.disposition.value}
