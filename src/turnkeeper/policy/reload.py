"""A policy that can change while steps are decided: whole bundles only, and the old one while the new one is wrong.

Answers for every step being decided by one bundle from beginning to end, and for a changed folder being taken only once
it reads the same twice and all its own tests pass. Must never serve a policy that failed any check. Reading and
building are handed in. Pure.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from turnkeeper.acs import Decision, PolicyReference
from turnkeeper.errors import TurnkeeperError
from turnkeeper.policy.bundle import Bundle, bundle_digest
from turnkeeper.policy.cases import failing
from turnkeeper.policy.document import PolicyRejected
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.facts import Facts
from turnkeeper.policy.hosted import EngineUnavailable, decide

E = TypeVar("E", bound=PolicyEngine)


def _keep(engine: PolicyEngine) -> None:
    """An engine that holds nothing needs nobody to end it."""
    del engine


class Change(StrEnum):
    """What a look at the policy's place found."""

    UNCHANGED = "unchanged"
    UNSETTLED = "unsettled"
    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Look:
    """One look. `version` is the policy's that decides now, `problem` why another was refused."""

    change: Change
    version: str | None
    problem: str | None = None


class SwitchedEngine(Generic[E]):
    """The engine that decides now. A step that has begun ends with the engine it began with."""

    def __init__(self, engine: E) -> None:
        self.current = engine

    @property
    def reference(self) -> PolicyReference:
        """The policy that decides now."""
        return self.current.reference

    def evaluate(self, facts: Facts) -> Decision:
        """The word of the policy that decides now. Raises `Unheard` where that has engines to be asked first."""
        return self.current.evaluate(facts)


class PolicyReloader(Generic[E]):
    """Looks at a policy's place and switches the engine. Call `look` as often as changes should be noticed."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Mapping[str, bytes]]],
        build: Callable[[Mapping[str, bytes]], Awaitable[E]],
        switched: SwitchedEngine[E],
        served: str,
        retire: Callable[[E], None] = _keep,
    ) -> None:
        """`build` makes an engine after every check and raises `TurnkeeperError` where one fails.

        `served` is the digest of the files that the engine in `switched` was built from. `retire` is handed each
        engine that was replaced.
        """
        self._read = read
        self._build = build
        self._switched = switched
        self._retire = retire
        self._served = served
        self._seen = served
        self._refused: str | None = None

    async def look(self) -> Look:
        """Takes a changed policy if it may be taken. Raises nothing that reading or building does."""
        try:
            files = await self._read()
        except TurnkeeperError as error:
            return self._result(Change.REFUSED, error.message)
        digest = bundle_digest(files)
        if digest in (self._served, self._refused):
            self._seen = digest
            return self._result(Change.UNCHANGED)
        if digest != self._seen:
            # Whoever is still writing has not finished: it counts once it reads the same again.
            self._seen = digest
            return self._result(Change.UNSETTLED)
        return await self._take(files, digest)

    async def _take(self, files: Mapping[str, bytes], digest: str) -> Look:
        try:
            engine = await self._build(files)
        except TurnkeeperError as error:
            # What is wrong with a policy stays wrong; an engine that did not start may start at the next look.
            self._refused = None if isinstance(error, EngineUnavailable) else digest
            return self._result(Change.REFUSED, error.message)
        replaced, self._switched.current = self._switched.current, engine
        self._retire(replaced)
        self._served, self._refused = digest, None
        return self._result(Change.TAKEN)

    def _result(self, change: Change, problem: str | None = None) -> Look:
        return Look(change, self._switched.reference.policy_version, problem)


async def require_passing(bundle: Bundle, engine: PolicyEngine) -> None:
    """Raises `PolicyRejected` where a test of the bundle's own does not hold."""
    wrong = failing(bundle.cases, [await decide(engine, case.facts) for case in bundle.cases])
    if wrong:
        case, problem = wrong[0]
        raise PolicyRejected(
            f"{len(wrong)} of the policy's own {len(bundle.cases)} tests fail; {case.file}, {case.name!r}: {problem}",
            code="policy_test_failed",
            detail={"path": case.file},
        )
