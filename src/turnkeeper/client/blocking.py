"""The Guardian for agents that do not await: the same client, run on a thread of its own.

Answers for nothing new: every rule is the awaiting half's. Must never be used inside an event loop, which it would
hold up, nor from an audit sink, which runs on the client's own thread.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from turnkeeper.acs import Verdict
from turnkeeper.acs.lineage import Marks
from turnkeeper.client import steps
from turnkeeper.client.audit import AuditSink, log_audit
from turnkeeper.client.bridge import Bridge
from turnkeeper.client.guardian import GuardianClient
from turnkeeper.client.heads import HeadBreak
from turnkeeper.client.helpers_blocking import SyncSessionSteps, SyncTurnSteps
from turnkeeper.client.identity import Identity
from turnkeeper.client.outcomes import Allowed, Denied, Outcome, Pending
from turnkeeper.client.posture import Failure, Stance
from turnkeeper.client.sessions import GuardedSession
from turnkeeper.client.settings import ClientSettings
from turnkeeper.client.steps import Payload, PolicyMode, SessionReason, Step, TurnOutcome
from turnkeeper.client.terms import TermsStore
from turnkeeper.client.transports import Transport
from turnkeeper.client.turns import GuardedTurn, ToolCall

T = TypeVar("T")


class SyncGuardianClient:
    """An agent's Guardian: `with SyncGuardianClient(HttpTransport(url), identity) as guardian`."""

    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        *,
        settings: ClientSettings | None = None,
        audit: AuditSink = log_audit,
        terms: TermsStore | None = None,
    ) -> None:
        """As `GuardianClient`."""
        self._bridge = Bridge()
        self._inner = GuardianClient(transport, identity, settings=settings, audit=audit, terms=terms)

    def session(
        self,
        *,
        session_id: str | None = None,
        policy_mode: PolicyMode | None = None,
        intent: Payload | None = None,
        user_identity: Payload | None = None,
        platform_context: Payload | None = None,
    ) -> "SyncSession":
        """As `GuardianClient.session`."""
        inner = self._inner.session(
            session_id=session_id,
            policy_mode=policy_mode,
            intent=intent,
            user_identity=user_identity,
            platform_context=platform_context,
        )
        return SyncSession(self._bridge, inner)

    def attach(self, session_id: str) -> "SyncSession":
        """As `GuardianClient.attach`."""
        return SyncSession(self._bridge, self._bridge.run(self._inner.attach(session_id)))

    def resolve(self, pending: Pending) -> Allowed | Denied:
        """As `GuardianClient.resolve`."""
        return self._bridge.run(self._inner.resolve(pending))

    def ping(self, *, timeout_ms: int = 5_000, echo: str | None = None) -> Verdict | Failure:
        """As `GuardianClient.ping`."""
        return self._bridge.run(self._inner.ping(timeout_ms=timeout_ms, echo=echo))

    def close(self) -> None:
        """Lets go of the wire and ends the thread; idempotent."""
        if not self._bridge.closed:
            self._bridge.run(self._inner.close())
        self._bridge.close()

    def __enter__(self) -> "SyncGuardianClient":
        """Nothing is sent yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes."""
        self.close()


class SyncSession(SyncSessionSteps):
    """As `GuardedSession`: `with guardian.session() as session`."""

    def __init__(self, bridge: Bridge, inner: GuardedSession) -> None:
        self._bridge = bridge
        self._inner = inner

    @property
    def session_id(self) -> str:
        """The session's id on the wire."""
        return self._inner.session_id

    @property
    def head(self) -> str | None:
        """The last published chain head; None where entries may have been written that nobody was told of."""
        return self._inner.head

    @property
    def witnessed_head(self) -> str | None:
        """The last published chain head, whatever became of later answers."""
        return self._inner.witnessed_head

    @property
    def head_breaks(self) -> tuple[HeadBreak, ...]:
        """Answers whose head did not go on from the one before (CORE-CH-08)."""
        return self._inner.head_breaks

    @property
    def guarded(self) -> bool:
        """Whether there are terms."""
        return self._inner.guarded

    @property
    def stance(self) -> Stance:
        """What a missing decision means here, and who said so."""
        return self._inner.stance

    def marks(self) -> Marks:
        """Labels for the values of one step."""
        return self._inner.marks()

    def conclude(self, reason: SessionReason) -> None:
        """As `GuardedSession.conclude`."""
        self._inner.conclude(reason)

    def ask(self, step: Step[Any]) -> Outcome:
        """As `GuardedSession.ask`."""
        return self._bridge.run(self._inner.ask(step))

    def settle(self, step: Step[T]) -> Allowed:
        """As `GuardedSession.settle`."""
        return self._bridge.run(self._inner.settle(step))

    def resubmit(self, pending: Pending) -> Outcome:
        """As `GuardedSession.resubmit`."""
        return self._bridge.run(self._inner.resubmit(pending))

    def resolve(self, pending: Pending) -> Allowed | Denied:
        """As `GuardedSession.resolve`."""
        return self._bridge.run(self._inner.resolve(pending))

    def turn(
        self,
        triggered_by: steps.TurnTrigger = "user_message",
        *,
        turn_id: str | None = None,
        parent: "SyncTurn | None" = None,
    ) -> "SyncTurn":
        """As `GuardedSession.turn`."""
        above = None if parent is None else parent.inner
        return SyncTurn(self._bridge, self._inner.turn(triggered_by, turn_id=turn_id, parent=above))

    def __enter__(self) -> "SyncSession":
        """As `GuardedSession`."""
        self._bridge.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `GuardedSession`."""
        self._bridge.run(self._inner.__aexit__(kind, error, trace))


class SyncTurn(SyncTurnSteps):
    """As `GuardedTurn`: `with session.turn() as turn`."""

    def __init__(self, bridge: Bridge, inner: GuardedTurn) -> None:
        self._bridge = bridge
        self.inner = inner

    @property
    def turn_id(self) -> str:
        """The turn's id on the wire."""
        return self.inner.turn_id

    @property
    def session_id(self) -> str:
        """Its session's id on the wire."""
        return self.inner.session_id

    @property
    def head(self) -> str | None:
        """The session's last published chain head."""
        return self.inner.head

    def marks(self) -> Marks:
        """Labels for the values of one step."""
        return self.inner.marks()

    def conclude(self, outcome: TurnOutcome, *, summary: str | None = None) -> None:
        """As `GuardedTurn.conclude`."""
        self.inner.conclude(outcome, summary=summary)

    def ask(self, step: Step[Any]) -> Outcome:
        """As `GuardedTurn.ask`."""
        return self._bridge.run(self.inner.ask(step))

    def settle(self, step: Step[T]) -> Allowed:
        """As `GuardedTurn.settle`."""
        return self._bridge.run(self.inner.settle(step))

    def resubmit(self, pending: Pending) -> Outcome:
        """As `GuardedTurn.resubmit`."""
        return self._bridge.run(self.inner.resubmit(pending))

    def resolve(self, pending: Pending) -> Allowed | Denied:
        """As `GuardedTurn.resolve`."""
        return self._bridge.run(self.inner.resolve(pending))

    def tool_call(
        self, name: str, arguments: Mapping[str, object], *, capability: str | None = None, provider: str | None = None
    ) -> "SyncToolCall":
        """As `GuardedTurn.tool_call`."""
        inner = self.inner.tool_call(name, arguments, capability=capability, provider=provider)
        return SyncToolCall(self._bridge, inner)

    def call_tool(self, name: str, arguments: Mapping[str, object], function: Callable[..., object]) -> object:
        """As `GuardedTurn.call_tool`; the function runs on the caller's thread."""
        with self.tool_call(name, arguments) as call:
            return call.result(function(**call.arguments))

    def __enter__(self) -> "SyncTurn":
        """As `GuardedTurn`."""
        self._bridge.run(self.inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `GuardedTurn`."""
        self._bridge.run(self.inner.__aexit__(kind, error, trace))


class SyncToolCall:
    """As `ToolCall`."""

    def __init__(self, bridge: Bridge, inner: ToolCall) -> None:
        self._bridge = bridge
        self._inner = inner

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._inner.name

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments to act with."""
        return self._inner.arguments

    @property
    def request_id(self) -> str | None:
        """The id of the request that was allowed."""
        return self._inner.request_id

    def result(self, output: object, *, exit_status: steps.ExitStatus = "success") -> object:
        """As `ToolCall.result`."""
        return self._bridge.run(self._inner.result(output, exit_status=exit_status))

    def __enter__(self) -> "SyncToolCall":
        """As `ToolCall`."""
        self._bridge.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `ToolCall`."""
        self._bridge.run(self._inner.__aexit__(kind, error, trace))
